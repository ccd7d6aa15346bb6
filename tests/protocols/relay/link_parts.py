"""A hub that does what the test says, on a real port, and a host with a real runtime that is linked to it."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.runtime.parts import RuntimeHarness, Waitable, Work, finish_at_once

from switchtower.core import events
from switchtower.core.ports import engine, journal
from switchtower.protocols.relay import encoder
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.link.link import HubLink
from switchtower.protocols.relay.settings import HostSettings, LinkSettings
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.testing.session_driver import start_session
from switchtower.transports import http, upgrade, ws_client
from switchtower.transports.stream import Packet, Stream

HOST = "host_1"
TOKEN = "the-host's-s3cret"
TIMEOUT = 60.0

Frame = dict[str, Any]


async def reject_request(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody asks the hub for a page")


class ScriptedHostConnection:
    """One connection of a host, as the hub sees it."""

    def __init__(self, hub: "ScriptedHub", query: dict[str, str]) -> None:
        self.hub = hub
        self.query = query
        self.frames: list[Frame] = []
        self.stream: Stream
        self.ended = False

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream
        self.hub.notify_changed()

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            told = json.loads(frame)
            if self.ended:
                return
            self.frames.append(told)
            self.hub.record_frame(self, told)
        self.hub.flush(self)
        self.hub.notify_changed()

    def on_oversized_frame(self, problem: str) -> None:
        raise AssertionError(problem)

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None:
        self.ended = True
        self.hub.notify_changed()

    def send(self, type_: str, data: Any = None, **head: Any) -> None:
        self.stream.send(Packet([json.dumps({"type": type_, "data": data or {}, **head}).encode()]))

    def send_ack(self, run_id: str, last_seq: int) -> None:
        self.send("run.ack", {"run_id": run_id, "last_seq": last_seq})

    def cut(self) -> None:
        """Nothing of what is still under way is heard."""
        self.ended = True
        self.stream.abort()

    @property
    def events(self) -> list[Frame]:
        return [frame for frame in self.frames if "seq" in frame]

    def list_messages(self, type_: str) -> list[Frame]:
        return [frame for frame in self.frames if frame["type"] == type_]


class ScriptedHub(Waitable):
    """Stores what it is told, and says so when `acks`. `stored` holds each run's events, each once."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[ScriptedHostConnection] = []
        self.stored: dict[str, list[Frame]] = {}
        self.acks = True
        self.forgetful = False
        """It may miss what it had: what follows a hole is not stored, and the acknowledgement says where the hole is."""
        self.ignored: set[str] = set()
        """Runs that are never acknowledged."""
        self.refuse_with: upgrade.UpgradeRefusal | None = None
        self.refusals = 0
        self.after_heard: Callable[[ScriptedHostConnection, Frame], None] = lambda call, frame: None
        self._to_ack: dict[str, int] = {}
        self.listener: http.HttpListener

    async def open(self, port: int = 0) -> None:
        self.listener = await http.serve(
            reject_request, "127.0.0.1", port, self.accept, max_message_bytes=4_000_000, output_limit_bytes=1_000_000
        )

    async def close(self) -> None:
        await self.listener.close(grace=0)

    def accept(self, request: upgrade.UpgradeRequest) -> ScriptedHostConnection | upgrade.UpgradeRefusal:
        if self.refuse_with is not None:
            self.refusals += 1
            self.notify_changed()
            return self.refuse_with
        assert request.path == "/ws/host"
        self.calls.append(
            ScriptedHostConnection(
                self, {**request.query, "host_token": request.origin.token or request.query.get("host_token", "")}
            )
        )
        return self.calls[-1]

    @property
    def call(self) -> ScriptedHostConnection:
        return self.calls[-1]

    def record_frame(self, call: ScriptedHostConnection, frame: Frame) -> None:
        if "seq" not in frame:
            return
        run = self.stored.setdefault(frame["run_id"], [])
        last_seq = run[-1]["seq"] if run else 0
        if frame["seq"] > last_seq:
            if frame["prev_seq"] == last_seq:
                run.append(frame)
            else:
                assert self.forgetful, "nothing is missing"
        self._to_ack[frame["run_id"]] = run[-1]["seq"] if run else 0
        if run:
            self.after_heard(call, frame)

    def flush(self, call: ScriptedHostConnection) -> None:
        """One acknowledgement a run and read."""
        if self.acks and not call.ended:
            for run_id, last_seq in self._to_ack.items():
                if run_id not in self.ignored:
                    call.send_ack(run_id, last_seq)
            self._to_ack.clear()

    def list_seqs(self, run_id: str) -> list[int]:
        return [frame["seq"] for frame in self.stored.get(run_id, [])]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_stored(self, run_id: str, count: int) -> None:
        await self.wait_until(lambda: len(self.stored.get(run_id, [])) >= count)

    async def wait_for_connection(self, number: int = 1) -> ScriptedHostConnection:
        await self.wait_until(lambda: len(self.calls) >= number and hasattr(self.calls[number - 1], "stream"))
        return self.calls[number - 1]


class LinkedHost:
    """A runtime and its link. A second one over the same journal and registry is a restart."""

    def __init__(
        self,
        hub: ScriptedHub,
        work: Work = finish_at_once,
        *,
        journal_: journal.Journal | None = None,
        registry_: MemoryRegistry | None = None,
        folder: Path | None = None,
        rpc: type[HostRpcHandler] = HostRpcHandler,
        url: str = "",
        **settings: Any,
    ) -> None:
        self.runtime = RuntimeHarness(work, journal_)
        self.registry = registry_ or MemoryRegistry()
        self.is_open = False
        self.rpc: HostRpcHandler
        self.link: HubLink
        self._folder = folder
        self._rpc_class = rpc
        options = {
            "hub_may": "start",
            "heartbeat_s": 60.0,
            "backoff_min_s": 0.01,
            "backoff_max_s": 0.02,
            "refused_s": 0.01,
        } | settings
        self.settings = LinkSettings(
            hub_url=url or hub.listener.url, host_id=HOST, host_token=TOKEN, host_name="a host & its name", **options
        )

    async def open(self, *, link: bool = True) -> None:
        self.is_open = True
        await self.runtime.open()
        await self.registry.open()
        host = HostSettings(
            host_id=HOST, version="1", default_cwd=str(self._folder or "/"), approval_timeout_ms=60_000, log_path=None
        )
        self.rpc = self._rpc_class(self.runtime.runtime, host)
        self.make_link()
        if link:
            self.link.start()

    def make_link(self) -> HubLink:
        connect = partial(
            ws_client.connect, max_message_bytes=4_000_000, output_limit_bytes=1_000_000, ping_seconds=30.0, connect_timeout=5
        )
        self.link = HubLink(self.runtime.runtime, self.registry, self.rpc, self.settings, connect, lambda: 0.5)
        return self.link

    async def close(self) -> None:
        if self.is_open:
            self.is_open = False
            await self.link.close()
            self.rpc.close()
            await self.runtime.close()

    async def start_session(self, session_id: str) -> None:
        await self.runtime.ask(start_session(session_id))

    async def list_expected(self, session_id: str) -> list[Frame]:
        """What the hub has when it has everything: the journal's events in relay's words, each with the one before it."""
        card = await self.runtime.runtime.find_card(session_id)
        assert card is not None
        about = encoder.EnvelopeHeader.from_card(card, HOST)
        told = [json.loads(frame) for frame in encoder.encode_batch(about, await self.runtime.list_stored(session_id))]
        for before, frame in zip([{"seq": 0}, *told], told, strict=False):
            frame["prev_seq"] = before["seq"]
        return told

    async def wait_until_synced(self, hub: ScriptedHub, *session_ids: str) -> None:
        for session_id in session_ids:
            expected = await self.list_expected(session_id)
            await hub.wait_stored(session_id, len(expected))
            assert hub.stored[session_id] == expected


def make_output_tool(count: int, text: str = "some output\n") -> Work:
    """A tool that puts out so many pieces."""

    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        for number in range(count):
            await desk.emit(events.ToolProgressed("call_1", f"{number} {text}"))
        await desk.flush()
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    return work


def find_unsettled_seq(link: HubLink, session_id: str) -> int | None:
    """From where on a session must not be pruned; all of it while that is not known."""
    unsettled = link.list_unsettled()
    return 1 if unsettled is None else unsettled.get(session_id)
