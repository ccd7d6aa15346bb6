"""Which hosts are there, since when one is away, and which may come at all. Runs of a host that stays away count as lost.

On several nodes each keeps these books, for a host may come back to any. It is away when no node has it.
"""

import asyncio
import logging
import unicodedata
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from switchtower.core import audit, events, registry, tower
from switchtower.protocols.relay import messages, stamps
from switchtower.protocols.relay.hub.losses import Losses
from switchtower.protocols.relay.hub.roster import Far, HostLine, Roster

log = logging.getLogger(__name__)

SEEN_EVERY_MS = 30_000
"""How often it is written down that a connected host lives."""


class Presence:
    def __init__(
        self,
        tower_: tower.Tower,
        hosts: registry.Registry,
        own: messages.HostRow,
        *,
        lost_after_s: float,
        far: Far | None = None,
    ) -> None:
        """`own` is this daemon, which is a host too; `far` are the hosts of other nodes, if there are any."""
        self.roster = Roster(far)
        self._tower = tower_
        self._registry = hosts
        self._own = own
        self._lost_after_s = lost_after_s
        self._shared = far is not None
        # What is written down is also what tells a node that another has a host, when the two cannot speak to each other.
        self._seen_every_ms = min(SEEN_EVERY_MS, int(lost_after_s * 500)) if self._shared else SEEN_EVERY_MS
        self._losses = Losses(tower_, self.roster)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._seen_ms: dict[str, int] = {}

    async def start(self) -> None:
        """Hosts that were there when the last daemon ended have as long to come back as after any other silence."""
        for host_id in await self._losses.hosts_with_runs():
            if host_id not in self.roster:
                self._watch_absence(host_id)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._losses.close()

    # What happens

    def came(self, line: HostLine) -> None:
        self.roster.add(line)
        log.info("host %s is connected", line.host_id)
        self._is_back(line.host_id)
        self._note_seen(line.host_id)
        self._losses.mark(line.host_id, lost=False)

    def went(self, line: HostLine) -> None:
        if self.roster.drop(line):
            log.info("host %s has gone", line.host_id)
            self._note_seen(line.host_id)
            self._seen_ms.pop(line.host_id, None)
            self._watch_absence(line.host_id)

    def came_elsewhere(self, host_id: str) -> None:
        """To another node, which says so to its runs."""
        self._is_back(host_id)

    def went_elsewhere(self, host_id: str) -> None:
        """No other node has it any more. Whichever had it may be dead, so all wait for it."""
        if host_id not in self.roster:
            self._watch_absence(host_id)

    def heard(self, host_id: str) -> None:
        if self._tower.now_ms() - self._seen_ms.get(host_id, 0) >= self._seen_every_ms:
            self._note_seen(host_id)

    def _is_back(self, host_id: str) -> None:
        if timer := self._timers.pop(host_id, None):
            timer.cancel()

    def _note_seen(self, host_id: str) -> None:
        now_ms = self._seen_ms[host_id] = self._tower.now_ms()
        self._do(self._write_down(host_id, now_ms))

    async def _write_down(self, host_id: str, now_ms: int) -> None:
        await self._registry.saw_host(host_id, now_ms)
        if self._shared and self.roster.here(host_id) is not None:
            # Another node's owner may have shut it out, at a time when that node could not tell us.
            host = await self._registry.host(host_id)
            if host is None or host.state is not registry.HostState.APPROVED:
                self.roster.cut_here(host_id, "this host may not stay")

    def _watch_absence(self, host_id: str, after_s: float | None = None) -> None:
        self._is_back(host_id)
        call = partial(self._has_been_away, host_id)
        delay = self._lost_after_s if after_s is None else after_s
        self._timers[host_id] = asyncio.get_running_loop().call_later(delay, call)

    def _has_been_away(self, host_id: str) -> None:
        self._timers.pop(host_id, None)
        if host_id not in self.roster:
            if self._shared:
                self._do(self._lose_unless_seen(host_id))
            else:
                self._lose(host_id)

    async def _lose_unless_seen(self, host_id: str) -> None:
        """A node that cannot be spoken to may have it all the same: then it was seen lately."""
        try:
            host = await self._registry.host(host_id)
        except registry.RegistryUnavailable as problem:
            log.warning("whether host %s is lost cannot be told: %s", host_id, problem)
            self._watch_absence(host_id)
            return
        seen_ago_s = self._lost_after_s if host is None else (self._tower.now_ms() - host.last_seen_ms) / 1_000
        if seen_ago_s < self._lost_after_s:
            # Clocks differ: what was seen in the future is not waited for longer than anything else.
            self._watch_absence(host_id, min(self._lost_after_s - seen_ago_s, self._lost_after_s))
        elif host_id not in self.roster and host_id not in self._timers:
            self._lose(host_id)

    def _lose(self, host_id: str) -> None:
        log.warning("host %s has been away for %g s: its runs count as lost", host_id, self._lost_after_s)
        self._losses.mark(host_id, lost=True)

    # Who may come

    async def knows(self, host_id: str) -> bool:
        return host_id in self.roster or await self._registry.host(host_id) is not None

    async def hosts(self, nodes: tuple[messages.HostRow, ...] = ()) -> list[messages.HostRow]:
        """`nodes` are the other nodes. One that was a host before it became a node is listed once."""
        now = stamps.spelled(self._tower.now_ms())
        ours = [msgspec.structs.replace(row, last_seen_at=now) for row in (self._own, *nodes)]
        listed = {row.id for row in nodes}
        others = [self._row(host) for host in await self._registry.hosts() if host.host_id not in listed]
        return _name_apart([*ours, *others])

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

    async def set_state(self, host_id: str, state: str, by: events.Actor | None = None) -> bool:
        known = await self._registry.set_host_state(
            host_id, registry.HostState(state), note=self._note(f"host.{state}", host_id, by)
        )
        if known and state != registry.HostState.APPROVED:
            self.roster.cut(host_id, f"this host is {state}")
        return known

    async def rename(self, host_id: str, name: str, by: events.Actor | None = None) -> bool:
        return await self._registry.rename_host(host_id, name, note=self._note("host.renamed", host_id, by, name))

    async def remove(self, host_id: str, by: events.Actor | None = None) -> bool:
        known = await self._registry.remove_host(host_id, note=self._note("host.removed", host_id, by))
        if known:
            self.roster.cut(host_id, "this host was removed")
        return known

    async def rotate(self, host_id: str, by: events.Actor | None = None) -> bool:
        """Its token is forgotten: the next one that it comes with is trusted."""
        known = await self._registry.forget_host_token(host_id, note=self._note("host.rotated", host_id, by))
        if known:
            self.roster.cut(host_id, "come back with a new token")
        return known

    def _note(self, kind: str, host_id: str, by: events.Actor | None, detail: str = "") -> audit.Note | None:
        """For the audit. None when no client asked for it."""
        return None if by is None else audit.Note(kind, self._tower.now_ms(), by, host_id, detail)

    def _do(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("keeping books on hosts failed", exc_info=problem)


def _name_apart(rows: list[messages.HostRow]) -> list[messages.HostRow]:
    """The same rows in the same order, no two with names that look alike. A host chooses its name, so the one that was known
    first keeps it, and a later one gets a number."""
    taken: set[str] = set()
    named: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.first_seen_at or "", row.id)):
        name, number = row.name, 1
        while _look(name) in taken:
            number += 1
            name = f"{row.name.strip()} ({number})"
        taken.add(_look(name))
        named[row.id] = name
    return [msgspec.structs.replace(row, name=named[row.id]) for row in rows]


def _look(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
