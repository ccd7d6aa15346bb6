"""The presence of hosts: which are connected, how long one has been absent, and which may connect at all.

Runs of a host that stays absent are marked as lost, and as found when it reconnects. One pass over all runs serves however many
hosts disconnected at once; marks that cannot be stored are retried. In a cluster each node tracks all hosts, for a host may
reconnect to any node. It is absent when no node has it.
"""

import asyncio
import logging
import unicodedata
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from switchtower.core import commands, errors, events, states
from switchtower.core.ports import journal, registry, session_service
from switchtower.protocols.relay import messages, wire_values
from switchtower.protocols.relay.hub.connected_hosts import ConnectedHost, ConnectedHosts, RemoteHostsPort

log = logging.getLogger(__name__)

MAX_CARDS = 100_000
RETRY_SECONDS = 1.0


class LostRunMarker:
    def __init__(self, tower_: session_service.SessionService, hosts: ConnectedHosts, *, retry_s: float = RETRY_SECONDS) -> None:
        self._tower = tower_
        self._hosts = hosts
        self._retry_s = retry_s
        self._wanted: dict[str, bool] = {}
        """Per host: whether its runs are lost. Only what is true at the moment of the mark is marked."""
        self._task: asyncio.Task[None] | None = None

    async def list_hosts_with_runs(self) -> set[str]:
        return {card.host for card in await self._list_cards() if card.host is not None}

    def mark(self, host_id: str, *, lost: bool) -> None:
        self._wanted[host_id] = lost
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._mark_all())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _mark_all(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                again = await self._mark(wanted)
                if again:
                    self._wanted = again | self._wanted
                    await asyncio.sleep(self._retry_s)
        except Exception:
            log.exception("keeping books on the runs of hosts failed")
        finally:
            self._task = None

    async def _mark(self, wanted: dict[str, bool]) -> dict[str, bool]:
        """Returns the marks that have to be retried."""
        again: dict[str, bool] = {}
        try:
            cards = await self._list_cards()
        except errors.CoreError as refusal:
            log.warning("the runs of hosts cannot be looked at: %s", refusal)
            return wanted
        for card in cards:
            host_id = card.host
            lost = None if host_id is None else wanted.get(host_id)
            if host_id is None or lost is None or card.host_lost is lost or (host_id in self._hosts) is lost:
                continue
            try:
                await self._tower.ask(commands.MarkHost(session_id=card.session_id, lost=lost))
            except errors.CoreError as refusal:
                log.warning("%s could not be marked: %s", card.session_id, refusal)
                if refusal.retryable:
                    again[host_id] = lost
        return again

    async def _list_cards(self) -> list[journal.Card]:
        cards = await self._tower.list_cards(MAX_CARDS)
        return [card for card in cards if card.host is not None and card.state in states.ACTIVE]


SEEN_INTERVAL_MS = 30_000
"""Milliseconds between two records that a connected host is alive."""


class HostPresence:
    def __init__(
        self,
        tower_: session_service.SessionService,
        hosts: registry.Registry,
        own_row: messages.HostRow,
        *,
        lost_after_s: float,
        remote_hosts: RemoteHostsPort | None = None,
    ) -> None:
        """`own_row` is this daemon, which is a host too; `remote_hosts` are the hosts of other nodes, if there are any."""
        self.connected_hosts = ConnectedHosts(remote_hosts)
        self._tower = tower_
        self._registry = hosts
        self._own_row = own_row
        self._lost_after_s = lost_after_s
        self._shared = remote_hosts is not None
        # The record also shows a node that another node has a host, when the two cannot reach each other.
        self._seen_interval_ms = min(SEEN_INTERVAL_MS, int(lost_after_s * 500)) if self._shared else SEEN_INTERVAL_MS
        self._lost_runs = LostRunMarker(tower_, self.connected_hosts)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._seen_ms: dict[str, int] = {}

    async def start(self) -> None:
        """Hosts that were connected when the last daemon ended have as long to reconnect as after any other disconnection."""
        for host_id in await self._lost_runs.list_hosts_with_runs():
            if host_id not in self.connected_hosts:
                self._watch_absence(host_id)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lost_runs.close()

    # Connections and disconnections

    def on_host_connected(self, line: ConnectedHost) -> None:
        self.connected_hosts.add(line)
        log.info("host %s is connected", line.host_id)
        self._cancel_absence_timer(line.host_id)
        self._record_seen(line.host_id)
        self._lost_runs.mark(line.host_id, lost=False)

    def on_host_disconnected(self, line: ConnectedHost) -> None:
        if self.connected_hosts.drop(line):
            log.info("host %s has gone", line.host_id)
            self._record_seen(line.host_id)
            self._seen_ms.pop(line.host_id, None)
            self._watch_absence(line.host_id)

    def on_remote_host_connected(self, host_id: str) -> None:
        """The host has connected to another node, which marks its runs."""
        self._cancel_absence_timer(host_id)

    def on_remote_host_disconnected(self, host_id: str) -> None:
        """No other node has the host any more. The node that had it may be dead, so all nodes wait for it."""
        if host_id not in self.connected_hosts:
            self._watch_absence(host_id)

    def record_activity(self, host_id: str) -> None:
        if self._tower.now_ms() - self._seen_ms.get(host_id, 0) >= self._seen_interval_ms:
            self._record_seen(host_id)

    def _cancel_absence_timer(self, host_id: str) -> None:
        if timer := self._timers.pop(host_id, None):
            timer.cancel()

    def _record_seen(self, host_id: str) -> None:
        now_ms = self._seen_ms[host_id] = self._tower.now_ms()
        self._run_in_background(self._store_seen(host_id, now_ms))

    async def _store_seen(self, host_id: str, now_ms: int) -> None:
        await self._registry.touch_host(host_id, now_ms)
        if self._shared and self.connected_hosts.find_local(host_id) is not None:
            # The host may have been revoked on another node, at a time when that node could not reach us.
            host = await self._registry.find_host(host_id)
            if host is None or host.state is not registry.HostState.APPROVED:
                self.connected_hosts.disconnect_local(host_id, "this host may not stay")

    def _watch_absence(self, host_id: str, after_s: float | None = None) -> None:
        self._cancel_absence_timer(host_id)
        call = partial(self._on_absence_timeout, host_id)
        delay = self._lost_after_s if after_s is None else after_s
        self._timers[host_id] = asyncio.get_running_loop().call_later(delay, call)

    def _on_absence_timeout(self, host_id: str) -> None:
        self._timers.pop(host_id, None)
        if host_id not in self.connected_hosts:
            if self._shared:
                self._run_in_background(self._mark_lost_unless_seen(host_id))
            else:
                self._mark_lost(host_id)

    async def _mark_lost_unless_seen(self, host_id: str) -> None:
        """A node that cannot be reached may still have the host: then the host was seen recently."""
        try:
            host = await self._registry.find_host(host_id)
        except registry.RegistryUnavailable as problem:
            log.warning("whether host %s is lost cannot be told: %s", host_id, problem)
            self._watch_absence(host_id)
            return
        seen_ago_s = self._lost_after_s if host is None else (self._tower.now_ms() - host.last_seen_ms) / 1_000
        if seen_ago_s < self._lost_after_s:
            # Clocks differ: a time in the future does not extend the wait.
            self._watch_absence(host_id, min(self._lost_after_s - seen_ago_s, self._lost_after_s))
        elif host_id not in self.connected_hosts and host_id not in self._timers:
            self._mark_lost(host_id)

    def _mark_lost(self, host_id: str) -> None:
        log.warning("host %s has been away for %g s: its runs count as lost", host_id, self._lost_after_s)
        self._lost_runs.mark(host_id, lost=True)

    # Admission of hosts

    async def is_known(self, host_id: str) -> bool:
        return host_id in self.connected_hosts or await self._registry.find_host(host_id) is not None

    async def list_hosts(self, nodes: tuple[messages.HostRow, ...] = ()) -> list[messages.HostRow]:
        """`nodes` are the other nodes. One that was a host before it became a node is listed once."""
        now = wire_values.format_timestamp(self._tower.now_ms())
        ours = [msgspec.structs.replace(row, last_seen_at=now) for row in (self._own_row, *nodes)]
        listed = {row.id for row in nodes}
        others = [self._make_row(host) for host in await self._registry.list_hosts() if host.host_id not in listed]
        return _disambiguate_names([*ours, *others])

    def _make_row(self, host: registry.Host) -> messages.HostRow:
        online = host.host_id in self.connected_hosts
        seen_ms = self._tower.now_ms() if online else host.last_seen_ms
        return messages.HostRow(
            id=host.host_id,
            name=host.name,
            last_seen_at=wire_values.format_timestamp(seen_ms) if seen_ms else None,
            online=online,
            state=host.state.value,
            first_seen_at=wire_values.format_timestamp(host.first_seen_ms),
        )

    async def set_host_state(self, host_id: str, state: str, by: events.Actor | None = None) -> bool:
        known = await self._registry.set_host_state(
            host_id, registry.HostState(state), note=self._make_audit_note(f"host.{state}", host_id, by)
        )
        if known and state != registry.HostState.APPROVED:
            self.connected_hosts.disconnect(host_id, f"this host is {state}")
        return known

    async def rename_host(self, host_id: str, name: str, by: events.Actor | None = None) -> bool:
        return await self._registry.rename_host(host_id, name, note=self._make_audit_note("host.renamed", host_id, by, name))

    async def remove_host(self, host_id: str, by: events.Actor | None = None) -> bool:
        known = await self._registry.remove_host(host_id, note=self._make_audit_note("host.removed", host_id, by))
        if known:
            self.connected_hosts.disconnect(host_id, "this host was removed")
        return known

    async def rotate_host(self, host_id: str, by: events.Actor | None = None) -> bool:
        """Deletes the host's token: the next one that the host presents is trusted."""
        known = await self._registry.forget_host_token(host_id, note=self._make_audit_note("host.rotated", host_id, by))
        if known:
            self.connected_hosts.disconnect(host_id, "come back with a new token")
        return known

    def _make_audit_note(self, kind: str, host_id: str, by: events.Actor | None, detail: str = "") -> journal.AuditNote | None:
        """Makes a note for the audit; None when no client made the request."""
        return None if by is None else journal.AuditNote(kind, self._tower.now_ms(), by, host_id, detail)

    def _run_in_background(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("keeping books on hosts failed", exc_info=problem)


def _disambiguate_names(rows: list[messages.HostRow]) -> list[messages.HostRow]:
    """Returns the same rows in the same order, no two with names that read alike. A host chooses its name, so the one that was
    known first keeps it, and a later one gets a number."""
    taken: set[str] = set()
    named: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.first_seen_at or "", row.id)):
        name, number = row.name, 1
        while _normalize_name(name) in taken:
            number += 1
            name = f"{row.name.strip()} ({number})"
        taken.add(_normalize_name(name))
        named[row.id] = name
    return [msgspec.structs.replace(row, name=named[row.id]) for row in rows]


def _normalize_name(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
