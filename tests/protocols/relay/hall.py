"""A hub's hall without its doors: a real runtime over memory stores, and hosts at the other end of streams in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.core.test_mirrors import ends, opening
from tests.runtime.parts import PATIENCE, House, Outlet

from switchtower.core import commands, events, registry
from switchtower.protocols.relay import messages, names
from switchtower.protocols.relay.hub.dispatch import Dispatch
from switchtower.protocols.relay.hub.host_peer import HostPeer
from switchtower.protocols.relay.hub.presence import Presence
from switchtower.stores.registry_memory import MemoryRegistry
from switchtower.transports.pair import Inbox, MemoryStream, pair

LONG = 3_600.0
OWN = messages.HostRow(id="hub", name="the hub", last_seen_at=None, online=True, is_this_daemon=True)

Frame = dict[str, Any]


class FarHost(Inbox):
    """A host, as it sees its own end."""

    def __init__(self, host_id: str) -> None:
        super().__init__()
        self.host_id = host_id
        self.hubs_end: MemoryStream

    async def told(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            frame: Frame = json.loads(await self.next())
            return frame

    def say(self, type_: str, run_id: str | None = None, /, **data: object) -> None:
        self.send(json.dumps({"type": type_, "run_id": run_id, "data": data}).encode())

    def respond(self, asked: Frame, *, ok: bool = True, **fields: object) -> None:
        self.say("rpc.response", request_id=asked["data"]["request_id"], ok=ok, rpc_type=asked["type"], **fields)

    async def is_cut(self) -> tuple[int, str] | None:
        """With what the hub closed, once it has."""
        async with asyncio.timeout(PATIENCE):
            await self.until(lambda: self.closed)
        return self.hubs_end.closed_with

    async def heard(self) -> None:
        """Everything that was said before has been read: what has no number is answered with a complaint."""
        self.say("no-such-type")
        while (await self.told())["type"] != "error":
            pass


class Hall:
    def __init__(self, house: House, hosts: MemoryRegistry, *, lost_after_s: float = LONG) -> None:
        self.house = house
        self.registry = hosts
        self.presence = Presence(house.runtime, hosts, OWN, lost_after_s=lost_after_s)
        self.dispatch = Dispatch(house.runtime, self.presence.roster)
        house.runtime.elsewhere = self.dispatch

    async def host(self, host_id: str) -> FarHost:
        """One that has come in; the registry knows it."""
        visit = registry.Visit(host_id, "0" * 64, "", self.house.runtime.now_ms())
        await self.registry.meet(visit, first_state=registry.HostState.APPROVED, most=1_000)
        presence = self.presence
        peer = HostPeer(
            self.house.runtime,
            host_id,
            came=presence.came,
            went=presence.went,
            heard=presence.heard,
            failed=self.dispatch.refused,
        )
        host = FarHost(host_id)
        host.hubs_end, _ = pair(peer, host)
        return host

    async def rows(self) -> dict[str, messages.HostRow]:
        return {row.id: row for row in await self.presence.hosts()}

    async def run(self, host_id: str, run_id: str, *, ended: bool = False) -> Outlet:
        return await told_of(self.house, host_id, run_id, ended=ended)


async def told_of(house: House, host_id: str, run_id: str, *, ended: bool = False) -> Outlet:
    """A run that this host has told of, and one who follows it."""
    session_id = names.session_of(run_id)
    begins = commands.Report(1, _at(host_id, opening(1)))
    mirror = commands.MirrorRun(
        session_id=session_id,
        host=host_id,
        run_id=names.core_run_of(session_id),
        reports=(begins, ends(2)) if ended else (begins,),
        opening=_at(host_id, opening()),
    )
    await house.ask(mirror)
    return await house.attached(session_id)


def _at(host_id: str, told: tuple[events.AnyEvent, ...]) -> tuple[events.AnyEvent, ...]:
    return tuple(
        msgspec.structs.replace(event, host=host_id) if isinstance(event, events.SessionStarted) else event for event in told
    )


@asynccontextmanager
async def opened(clock: Callable[[], int] | None = None, **options: Any) -> AsyncIterator[Hall]:
    house, hosts = House(clock=clock), MemoryRegistry()
    await house.open()
    await hosts.open()
    hall = Hall(house, hosts, **options)
    try:
        yield hall
    finally:
        await hall.presence.close()
        await house.close()
        await hosts.close()
