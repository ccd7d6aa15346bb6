"""A hub's hall without its doors: a real runtime over memory stores, and hosts at the other end of streams in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.core.test_mirrors import make_ended, make_opened
from tests.runtime.parts import TIMEOUT, RecordingSubscriber, RuntimeHarness

from switchtower.core import commands, events
from switchtower.core.ports import registry
from switchtower.protocols.relay import messages, wire_values
from switchtower.protocols.relay.hub.dispatcher import HostDispatcher
from switchtower.protocols.relay.hub.host_connection import HostConnection
from switchtower.protocols.relay.hub.presence import HostPresence
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.testing.memory.stream import MemoryStream, RecordingReceiver, join_receivers

LONG = 3_600.0
OWN = messages.HostRow(id="hub", name="the hub", last_seen_at=None, online=True, is_this_daemon=True)

Frame = dict[str, Any]


class MemoryHost(RecordingReceiver):
    """A host, as it sees its own end."""

    def __init__(self, host_id: str) -> None:
        super().__init__()
        self.host_id = host_id
        self.hubs_end: MemoryStream

    async def list_messages(self) -> Frame:
        async with asyncio.timeout(TIMEOUT):
            frame: Frame = json.loads(await self.next_frame())
            return frame

    def send_message(self, type_: str, run_id: str | None = None, /, **data: object) -> None:
        self.send(json.dumps({"type": type_, "run_id": run_id, "data": data}).encode())

    def respond(self, asked: Frame, *, ok: bool = True, **fields: object) -> None:
        self.send_message("rpc.response", request_id=asked["data"]["request_id"], ok=ok, rpc_type=asked["type"], **fields)

    async def is_cut(self) -> tuple[int, str] | None:
        """With what the hub closed, once it has."""
        async with asyncio.timeout(TIMEOUT):
            await self.wait_until(lambda: self.closed)
        return self.hubs_end.closed_with

    async def drain(self) -> None:
        """Everything that was said before has been read: what has no number is answered with a complaint."""
        self.send_message("no-such-type")
        while (await self.list_messages())["type"] != "error":
            pass


class HubHarness:
    def __init__(self, runtime_harness: RuntimeHarness, hosts: MemoryRegistry, *, lost_after_s: float = LONG) -> None:
        self.runtime = runtime_harness
        self.registry = hosts
        self.presence = HostPresence(runtime_harness.runtime, hosts, OWN, lost_after_s=lost_after_s)
        self.dispatch = HostDispatcher(runtime_harness.runtime, self.presence.connected_hosts)
        runtime_harness.runtime.elsewhere = self.dispatch

    async def connect_host(self, host_id: str) -> MemoryHost:
        """One that has come in; the registry knows it."""
        visit = registry.HostContact(host_id, "0" * 64, "", self.runtime.runtime.now_ms())
        await self.registry.record_contact(visit, first_state=registry.HostState.APPROVED, most=1_000)
        presence = self.presence
        peer = HostConnection(
            self.runtime.runtime,
            host_id,
            on_connected=presence.on_host_connected,
            on_disconnected=presence.on_host_disconnected,
            on_activity=presence.record_activity,
            on_refusal=self.dispatch.on_host_refusal,
        )
        host = MemoryHost(host_id)
        host.hubs_end, _ = join_receivers(peer, host)
        return host

    async def list_rows(self) -> dict[str, messages.HostRow]:
        return {row.id: row for row in await self.presence.list_hosts()}

    async def run(self, host_id: str, run_id: str, *, ended: bool = False) -> RecordingSubscriber:
        return await report_run(self.runtime, host_id, run_id, ended=ended)


async def report_run(runtime_harness: RuntimeHarness, host_id: str, run_id: str, *, ended: bool = False) -> RecordingSubscriber:
    """A run that this host has told of, and one who follows it."""
    session_id = wire_values.parse_run_id(run_id)
    begins = commands.HostReport(1, _make_report(host_id, make_opened(1)))
    mirror = commands.MirrorRun(
        session_id=session_id,
        host=host_id,
        run_id=wire_values.make_core_run_id(session_id),
        reports=(begins, make_ended(2)) if ended else (begins,),
        opening=_make_report(host_id, make_opened()),
    )
    await runtime_harness.ask(mirror)
    return await runtime_harness.attach_subscriber(session_id)


def _make_report(host_id: str, told: tuple[events.AnyEvent, ...]) -> tuple[events.AnyEvent, ...]:
    return tuple(
        msgspec.structs.replace(event, host=host_id) if isinstance(event, events.SessionStarted) else event for event in told
    )


@asynccontextmanager
async def open_hub(clock: Callable[[], int] | None = None, **options: Any) -> AsyncIterator[HubHarness]:
    house, hosts = RuntimeHarness(clock=clock), MemoryRegistry()
    await house.open()
    await hosts.open()
    hall = HubHarness(house, hosts, **options)
    try:
        yield hall
    finally:
        await hall.presence.close()
        await house.close()
        await hosts.close()
