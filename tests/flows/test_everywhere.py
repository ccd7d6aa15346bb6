"""One flow, watched over every protocol at once: each shows its steps, its logs and its question, and any of them decides."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness
from tests.flows.flowing import count_runs, make_chain, make_counting_step, make_node, report, start

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient, ReceivedEvent
from switchtower.testing.relay_client import RelayApp, RelayHttp

HOST = "hub"
TIMEOUT = 120.0
FLOW = make_chain(
    make_counting_step("first"),
    make_node("ask", "approval", title="Go on?", message="Really?"),
    make_node("greet", "log", message="hello there"),
    make_node("tell", "dsl.emit", by="$step.ask.by"),
)
AFTERWARDS = ["ask", "greet", "tell"]
"""The steps whose end comes after the decision."""
Frame = dict[str, Any]


class FlowPushDriver:
    def __init__(self, client: PushClient) -> None:
        self.client = client
        self._question: ReceivedEvent

    async def join(self, session_id: str) -> None:
        await self.client.attach(session_id)

    async def is_asked(self) -> tuple[str, str]:
        self._question = (await self.client.read_until("approval_required"))[-1]
        return self._question.payload["title"], self._question.payload["summary"]

    async def approve(self) -> None:
        assert (await self.client.decide(self._question)).ok

    async def read_to_end(self) -> tuple[list[str], str]:
        events = await self.client.read_until("run_complete")
        assert "[info] hello there\n" in [event.payload.get("detail") for event in events if event.type == "status"]
        ended = [event.payload["text"] for event in events if event.type == "tool_result" and event.payload["toolName"] != "flow"]
        return [text.partition(":")[0] for text in ended], events[-1].payload["outcome"]


class FlowPiDriver:
    def __init__(self, client: PiClient) -> None:
        self.client = client

    async def join(self, session_id: str) -> None:
        self._session_id = session_id
        await self.client.execute("switch_session", sessionId=session_id)

    async def is_asked(self) -> tuple[str, str]:
        self._question = await self.client.next_event("extension_ui_request")
        return self._question["title"], self._question["message"]

    async def approve(self) -> None:
        yes = {"method": "confirm", "confirmed": True}
        await self.client.execute(
            "extension_ui_response", sessionId=self._session_id, requestId=self._question["requestId"], response=yes
        )

    async def read_to_end(self) -> tuple[list[str], str]:
        def is_the_end(frame: Frame) -> bool:
            return frame["type"] == "event" and frame["event"].get("code") == "FLOW_FINISHED"

        await self.client.wait_for(is_the_end)
        events = self.client.list_events(self._session_id)
        assert "[info] hello there\n" in [event["delta"] for event in events if event["type"] == "tool_execution_update"]
        ended = [event for event in events if event["type"] == "tool_execution_end"]
        assert not any(event["isError"] for event in ended)
        steps = [event["toolCallId"].split(":")[1] for event in ended if event["toolName"] != "flow"]
        return [step for step in steps if step in AFTERWARDS], "success"


class FlowMiniCodexDriver:
    def __init__(self, open_: Callable[[str], Any]) -> None:
        self._open = open_
        self.client: MiniCodexClient

    async def join(self, session_id: str) -> None:
        self.client = await self._open(session_id)
        self._snapshot = await self.client.send_hello()

    async def is_asked(self) -> tuple[str, str]:
        (pending,) = self._snapshot["run_state"]["pending_approvals"]
        self._call_id = pending["call_id"]
        return pending["args"]["with"]["title"], pending["args"]["with"]["message"]

    async def approve(self) -> None:
        await self.client.execute("approve", call_id=self._call_id)

    async def read_to_end(self) -> tuple[list[str], str]:
        ended = await self.client.wait_for_end()
        results = [frame for frame in self.client.frames if frame["type"] == "function_call_output"]
        steps = [frame["call_id"].split(":")[1] for frame in results if frame["call_id"].startswith("step:")]
        return steps, "success" if ended["status"] == "finished" else ended["status"]


class FlowRelayDriver:
    def __init__(self, app: RelayApp) -> None:
        self.app = app

    async def join(self, session_id: str) -> None:
        self._run_id = session_id
        await self.app.subscribe(session_id, after_id=0)

    async def is_asked(self) -> tuple[str, str]:
        self._question = await self.app.next_of_type("run.permission_requested", self._run_id)
        return self._question["data"]["prompt"], self._question["data"]["op_args_summary"]

    async def approve(self) -> None:
        await self.app.send_command("run.permission.approve", self._run_id, request_id=self._question["data"]["request_id"])

    async def read_to_end(self) -> tuple[list[str], str]:
        ended = await self.app.next_of_type("run.exited", self._run_id)
        assert "[info] hello there\n" in self.app.join_output(self._run_id)
        told = {frame["seq"]: frame for frame in self.app.list_events(self._run_id) if frame["type"] == "tool.result"}
        steps = [
            frame["data"]["request_id"].split(":")[1]
            for frame in told.values()
            if frame["data"]["request_id"].startswith("step:") and frame["data"]["ok"]
        ]
        return [step for step in steps if step in AFTERWARDS], "success" if ended["data"]["exit_code"] == 0 else "failed"


Door = FlowPushDriver | FlowPiDriver | FlowMiniCodexDriver | FlowRelayDriver
NAMES = ("push", "pi", "minicodex", "relay")


@pytest.fixture
async def protocol_clients(pi_harness: PiHarness) -> AsyncIterator[dict[str, Door]]:
    """One client of each protocol."""
    await pi_harness.open(host_id=HOST)
    http, token = pi_harness.endpoints["http"], pi_harness.endpoints["token"]
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(await RelayApp.open(http, token, timeout=TIMEOUT))

        async def mini(session_id: str) -> MiniCodexClient:
            client = await stack.enter_async_context(await MiniCodexClient.open(http, token, session_id=session_id))
            client.timeout = TIMEOUT
            return client

        yield {
            "push": FlowPushDriver(await pi_harness.push()),
            "pi": FlowPiDriver(await pi_harness.connect()),
            "minicodex": FlowMiniCodexDriver(mini),
            "relay": FlowRelayDriver(app),
        }


@pytest.mark.requirement("rep:tower:everywhere")
@pytest.mark.parametrize("decider", NAMES)
async def test_every_protocol_shows_a_flow_and_decides_in_it(
    pi_harness: PiHarness, protocol_clients: dict[str, Door], decider: str
) -> None:
    starter = await pi_harness.push()
    session_id = await start(starter, pi_harness.workspace, FLOW)
    while (await starter.next_event()).type != "approval_required":
        pass
    async with asyncio.timeout(TIMEOUT):
        for door in protocol_clients.values():
            await door.join(session_id)
            assert await door.is_asked() == ("Go on?", "Really?")
        assert count_runs(pi_harness.workspace, "first") == 1
        await protocol_clients[decider].approve()
        for name, door in protocol_clients.items():
            assert await door.read_to_end() == (AFTERWARDS, "success"), name
    told = await report(starter, session_id)
    row = await RelayHttp(pi_harness.endpoints["http"], pi_harness.endpoints["token"]).get_run(session_id)

    assert (told["status"], row["status"], row["tool"], row["exit_code"]) == ("completed", "exited", "flow", 0)
    assert told["summary"]["outputs"]["by"]


@pytest.mark.requirement("rep:tower:everywhere")
async def test_a_flow_is_ended_from_relay(pi_harness: PiHarness, protocol_clients: dict[str, Door]) -> None:
    starter, relay = await pi_harness.push(), protocol_clients["relay"]
    session_id = await start(starter, pi_harness.workspace, FLOW)
    assert isinstance(relay, FlowRelayDriver)
    await relay.join(session_id)
    await relay.is_asked()
    await relay.app.send_command("run.stop", session_id)
    await relay.app.next_of_type("run.exited", session_id)

    told = await report(starter, session_id)
    assert (told["status"], told["summary"]["error"]["data"]["cause"]) == ("failed", "Cancelled")
