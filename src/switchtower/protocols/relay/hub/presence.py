"""Which hosts are there, since when one is away, and which may come at all. Runs of a host that stays away count as lost."""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from switchtower.core import commands, journal, registry, states, tower
from switchtower.protocols.relay import messages, stamps
from switchtower.protocols.relay.hub.roster import HostLine, Roster

log = logging.getLogger(__name__)

MOST_CARDS = 100_000
SEEN_EVERY_MS = 30_000
"""How often it is written down that a connected host lives."""


class Presence:
    def __init__(self, tower_: tower.Tower, hosts: registry.Registry, own: messages.HostRow, *, lost_after_s: float) -> None:
        """`own` is this daemon, which is a host too."""
        self.roster = Roster()
        self._tower = tower_
        self._registry = hosts
        self._own = own
        self._lost_after_s = lost_after_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._seen_ms: dict[str, int] = {}

    async def start(self) -> None:
        """Hosts that were there when the last daemon ended have as long to come back as after any other silence."""
        for host_id in {card.host for card in await self._active_elsewhere()}:
            if host_id is not None and host_id not in self.roster:
                self._watch_absence(host_id)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What happens

    def came(self, line: HostLine) -> None:
        self.roster.add(line)
        log.info("host %s is connected", line.host_id)
        if timer := self._timers.pop(line.host_id, None):
            timer.cancel()
        self._note_seen(line.host_id)
        self._do(self._mark(line.host_id, lost=False))

    def went(self, line: HostLine) -> None:
        if self.roster.drop(line):
            log.info("host %s has gone", line.host_id)
            self._note_seen(line.host_id)
            self._watch_absence(line.host_id)

    def heard(self, host_id: str) -> None:
        if self._tower.now_ms() - self._seen_ms.get(host_id, 0) >= SEEN_EVERY_MS:
            self._note_seen(host_id)

    def _note_seen(self, host_id: str) -> None:
        now_ms = self._seen_ms[host_id] = self._tower.now_ms()
        self._do(self._registry.saw_host(host_id, now_ms))

    def _watch_absence(self, host_id: str) -> None:
        if old := self._timers.pop(host_id, None):
            old.cancel()
        call = partial(self._is_lost, host_id)
        self._timers[host_id] = asyncio.get_running_loop().call_later(self._lost_after_s, call)

    def _is_lost(self, host_id: str) -> None:
        self._timers.pop(host_id, None)
        if host_id not in self.roster:
            log.warning("host %s has been away for %g s: its runs count as lost", host_id, self._lost_after_s)
            self._do(self._mark(host_id, lost=True))

    async def _mark(self, host_id: str, *, lost: bool) -> None:
        for card in await self._active_elsewhere():
            if card.host == host_id and card.host_lost is not lost and (host_id in self.roster) is not lost:
                await self._tower.ask(commands.MarkHost(session_id=card.session_id, lost=lost))

    async def _active_elsewhere(self) -> list[journal.Card]:
        cards = await self._tower.cards(MOST_CARDS)
        return [card for card in cards if card.host is not None and card.state in states.ACTIVE]

    # Who may come

    async def knows(self, host_id: str) -> bool:
        return host_id in self.roster or await self._registry.host(host_id) is not None

    async def hosts(self) -> list[messages.HostRow]:
        own = msgspec.structs.replace(self._own, last_seen_at=stamps.spelled(self._tower.now_ms()))
        return [own, *[self._row(host) for host in await self._registry.hosts()]]

    def _row(self, host: registry.Host) -> messages.HostRow:
        online = host.host_id in self.roster
        seen_ms = self._tower.now_ms() if online else host.last_seen_ms
        return messages.HostRow(
            id=host.host_id,
            name=host.name,
            last_seen_at=stamps.spelled(seen_ms) if seen_ms else None,
            online=online,
            state=host.state.value,
            first_seen_at=stamps.spelled(host.first_seen_ms),
        )

    async def set_state(self, host_id: str, state: str) -> bool:
        known = await self._registry.set_host_state(host_id, registry.HostState(state))
        if known and state != registry.HostState.APPROVED:
            self.roster.cut(host_id, f"this host is {state}")
        return known

    async def rename(self, host_id: str, name: str) -> bool:
        return await self._registry.rename_host(host_id, name)

    async def remove(self, host_id: str) -> bool:
        known = await self._registry.remove_host(host_id)
        if known:
            self.roster.cut(host_id, "this host was removed")
        return known

    async def rotate(self, host_id: str) -> bool:
        """Its token is forgotten: the next one that it comes with is trusted."""
        known = await self._registry.forget_host_token(host_id)
        if known:
            self.roster.cut(host_id, "come back with a new token")
        return known

    def _do(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("keeping books on hosts failed", exc_info=problem)
