"""A program in a terminal is the same thing in every protocol: whoever started it, the others see it, type into it and end it."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import RelayApp, RelayHttp

HOST = "hub"
TIMEOUT = 60.0
REPEATS = "trap 'echo was ended; exit 7' TERM; while read -r line; do echo \"got $line.\"; done"
"""Says again what it was told, and a last word when it is asked to end."""
ENDED_WITH = 7


class TerminalPushDriver:
    name = "push"

    def __init__(self, client: PushClient) -> None:
        self.client = client
        self.seen = ""
        self.ending: dict[str, Any] | None = None
        self._numbers = itertools.count(1)

    async def start(self, workspace: Path) -> str:
        return (await self.client.start_session(workspace, provider="terminal", engine="pty", command=REPEATS)).session_id

    async def join(self, session_id: str) -> None:
        self.session_id = session_id
        await self.client.attach(session_id)

    async def type(self, line: str) -> None:
        typed = {"sessionId": self.session_id, "text": f"{line}\r", "inputId": f"i{next(self._numbers)}"}
        await self.client.request_payload("terminal_input", typed, session_id=self.session_id)

    async def wait_for_text(self, text: str) -> None:
        while text not in self.seen:
            await self._read()

    async def end(self) -> None:
        await self.client.request_payload("cancel_run", {"sessionId": self.session_id}, session_id=self.session_id)

    async def wait_for_end(self) -> None:
        while self.ending is None:
            await self._read()
        assert self.ending["outcome"] == "cancelled"

    async def _read(self) -> None:
        event = await self.client.next_event()
        if event.session_id != self.session_id:
            return
        if event.type == "status" and event.payload["phase"] == "Tool output":
            self.seen += event.payload["detail"]
        if event.type == "run_complete":
            self.ending = event.payload


class TerminalPiDriver:
    name = "pi"

    def __init__(self, client: PiClient) -> None:
        self.client = client

    async def start(self, workspace: Path) -> str:
        made = await self.client.execute("create_session", cwd=str(workspace), engine="pty", command=REPEATS)
        return str(made["sessionId"])

    async def join(self, session_id: str) -> None:
        self.session_id = session_id
        await self.client.execute("switch_session", sessionId=session_id)

    async def type(self, line: str) -> None:
        await self.client.execute("prompt", sessionId=self.session_id, message=line)

    async def wait_for_text(self, text: str) -> None:
        await self._wait_for_event("tool_execution_update", text)

    async def end(self) -> None:
        await self.client.execute("abort", sessionId=self.session_id)

    async def wait_for_end(self) -> None:
        await self._wait_for_event("tool_execution_end", "was ended")
        await self._wait_for_event("notice", "PROGRAM_FINISHED")

    async def _wait_for_event(self, type_: str, text: str = "") -> None:
        def is_it(frame: dict[str, Any]) -> bool:
            event = frame["event"] if frame["type"] == "event" and frame["sessionId"] == self.session_id else {"type": ""}
            return event["type"] == type_ and json.dumps(text)[1:-1] in json.dumps(event)

        await self.client.wait_for(is_it)


class TerminalMiniCodexDriver:
    """It has no word for a program's output while that comes: it sees the call, what is typed, and all at the end."""

    name = "minicodex"

    def __init__(self, open_: Callable[..., Awaitable[MiniCodexClient]]) -> None:
        self._open = open_
        self.client: MiniCodexClient

    async def start(self, workspace: Path) -> str:
        self.client = await self._open(cwd=workspace, engine="pty", command=REPEATS)
        await self.client.send_hello()
        return self.client.session_id

    async def join(self, session_id: str) -> None:
        if not hasattr(self, "client"):
            self.client = await self._open(session_id=session_id)
            await self.client.send_hello()
        assert self.client.session_id == session_id
        assert self.client.ledger.session_state["active_run_id"]

    async def type(self, line: str) -> None:
        await self.client.execute("send", text=line)

    async def wait_for_text(self, text: str) -> None:
        """Not while it runs: `sees_the_end` looks for all of it."""

    async def end(self) -> None:
        await self.client.execute("abort", run_id=self.client.ledger.session_state["active_run_id"])

    async def wait_for_end(self) -> None:
        output = await self.client.wait_for(lambda frame: frame["type"] == "function_call_output")
        for said in (*(f"got from {name}." for name in NAMES), "was ended"):
            assert said in json.dumps(output)


class TerminalRelayDriver:
    name = "relay"

    def __init__(self, app: RelayApp) -> None:
        self.app = app

    async def start(self, workspace: Path) -> str:
        return await self.app.start(HOST, REPEATS, cwd=str(workspace))

    async def join(self, session_id: str) -> None:
        self.run_id = session_id
        await self.app.subscribe(session_id, after_id=0)

    async def type(self, line: str) -> None:
        await self.app.send_command("run.send_input", self.run_id, input_id=self.app.make_id(), text=f"{line}\r")

    async def wait_for_text(self, text: str) -> None:
        await self.app.wait_for(lambda frame: text in self.app.join_output(self.run_id))

    async def end(self) -> None:
        await self.app.send_command("run.stop", self.run_id)

    async def wait_for_end(self) -> None:
        ended = await self.app.wait_for(lambda frame: frame["type"] == "run.exited" and frame.get("run_id") == self.run_id)
        assert ended["data"]["exit_code"] == ENDED_WITH


Door = TerminalPushDriver | TerminalPiDriver | TerminalMiniCodexDriver | TerminalRelayDriver
NAMES = ("push", "pi", "minicodex", "relay")


async def open_protocol_clients(pi_harness: PiHarness, stack: AsyncExitStack) -> dict[str, Door]:
    """One client of each protocol."""
    http, token = pi_harness.endpoints["http"], pi_harness.endpoints["token"]
    push = await pi_harness.push()
    await push.send_hello("terminals")
    app = await stack.enter_async_context(await RelayApp.open(http, token, timeout=TIMEOUT))

    async def mini(**query: object) -> MiniCodexClient:
        client = await stack.enter_async_context(await MiniCodexClient.open(http, token, **query))
        client.timeout = TIMEOUT
        return client

    made: list[Door] = [
        TerminalPushDriver(push),
        TerminalPiDriver(await pi_harness.connect()),
        TerminalMiniCodexDriver(mini),
        TerminalRelayDriver(app),
    ]
    return {door.name: door for door in made}


@pytest.mark.parametrize(("starter", "ender"), list(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)))
async def test_what_one_started_the_others_see_type_into_and_end(pi_harness: PiHarness, starter: str, ender: str) -> None:
    await pi_harness.open(host_id=HOST)
    async with AsyncExitStack() as stack:
        by_name = await open_protocol_clients(pi_harness, stack)
        session_id = await by_name[starter].start(pi_harness.workspace)
        for door in by_name.values():
            await door.join(session_id)
        for typist in by_name.values():
            await typist.type(f"from {typist.name}")
            async with asyncio.timeout(TIMEOUT):
                for door in by_name.values():
                    await door.wait_for_text(f"got from {typist.name}.\r\n")
        await by_name[ender].end()
        async with asyncio.timeout(TIMEOUT):
            for door in by_name.values():
                await door.wait_for_end()
        row = await RelayHttp(pi_harness.endpoints["http"], pi_harness.endpoints["token"]).get_run(session_id)
        assert (row["status"], row["exit_code"]) == ("exited", ENDED_WITH)


async def test_each_lists_what_the_others_started(pi_harness: PiHarness) -> None:
    await pi_harness.open(host_id=HOST)
    async with AsyncExitStack() as stack:
        by_name = await open_protocol_clients(pi_harness, stack)
        started = {await door.start(pi_harness.workspace) for door in by_name.values()}
        assert len(started) == len(by_name)
        push, pi = by_name["push"], by_name["pi"]
        assert isinstance(push, TerminalPushDriver)
        assert isinstance(pi, TerminalPiDriver)
        listed = await push.client.request_payload("list_terminals")
        assert {terminal["sessionId"] for terminal in listed["terminals"]} == started
        listed = await pi.client.execute("list_sessions")
        assert {session["sessionId"] for session in listed["sessions"]} >= started
        rows = await RelayHttp(pi_harness.endpoints["http"], pi_harness.endpoints["token"]).get("/runs")
        assert {row["id"] for row in rows} == started
