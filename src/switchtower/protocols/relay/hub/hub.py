"""The hub: all runs, whether they live here or on a host that has dialled in. What apps ask finds its way from here.

Implements `tower.Elsewhere`: commands of other protocols for a session on another host go the same way.
"""

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from switchtower.core import commands, events, journal, registry, states, tower
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, names, outbound, rows, stamps
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.hub import forward, roster, screens
from switchtower.protocols.relay.hub.host_peer import HostPeer

log = logging.getLogger(__name__)

MOST_ROWS = 200
MOST_CARDS = 100_000
PLAIN_RPC_TIMEOUT = 60.0
"""For calls that nobody has to decide about."""
SEEN_EVERY_MS = 30_000
"""How often it is written down that a connected host lives."""
HISTORY_PAGE = 500
MOST_PAGES = 40
"""How far one request for history reads: a page may be shorter than was asked for, but not for ever in the making."""

MOST_UNANSWERED = 10_000
"""Commands on other hosts that may yet be refused there."""

Refused = Callable[[str, dict[str, Any]], None]
"""Told the run, and what its host said."""


class Sender(msgspec.Struct, frozen=True):
    """An app that asks."""

    raw: msgspec.Raw = messages.EMPTY
    """What it sent: another host may understand more of it than we do."""
    refused: Refused | None = None


NOBODY = Sender()


class Hub:
    def __init__(
        self, tower_: tower.Tower, hosts: registry.Registry, local: HostRpc, *, host_name: str, lost_after_s: float
    ) -> None:
        self.tower = tower_
        self.local = local
        self.roster = roster.Roster()
        self._unanswered: OrderedDict[str, Refused] = OrderedDict()
        """Who to tell when a host refuses a command that has no answer of its own."""
        self._numbers = itertools.count(1)
        self._registry = hosts
        self._host_name = host_name
        self._lost_after_s = lost_after_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._seen_ms: dict[str, int] = {}

    @property
    def own_host_id(self) -> str:
        return self.local.host_id

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
        self.local.close()

    # Hosts that dial in

    def welcome(self, host_id: str) -> HostPeer:
        """A peer for a host that has shown who it is."""
        return HostPeer(
            self.tower,
            host_id,
            came=self._host_came,
            went=self._host_went,
            heard=self._host_heard,
            failed=self._host_refused,
        )

    def _host_came(self, line: roster.HostLine) -> None:
        self.roster.add(line)
        log.info("host %s is connected", line.host_id)
        if timer := self._timers.pop(line.host_id, None):
            timer.cancel()
        self._note_seen(line.host_id)
        self._do(self._mark(line.host_id, lost=False))

    def _host_went(self, line: roster.HostLine) -> None:
        if self.roster.drop(line):
            log.info("host %s has gone", line.host_id)
            self._note_seen(line.host_id)
            self._watch_absence(line.host_id)

    def _host_heard(self, host_id: str) -> None:
        if self.tower.now_ms() - self._seen_ms.get(host_id, 0) >= SEEN_EVERY_MS:
            self._note_seen(host_id)

    def _note_seen(self, host_id: str) -> None:
        now_ms = self._seen_ms[host_id] = self.tower.now_ms()
        self._do(self._registry.saw_host(host_id, now_ms))

    def _watch_absence(self, host_id: str) -> None:
        if old := self._timers.pop(host_id, None):
            old.cancel()
        call = partial(self._host_is_lost, host_id)
        self._timers[host_id] = asyncio.get_running_loop().call_later(self._lost_after_s, call)

    def _host_is_lost(self, host_id: str) -> None:
        self._timers.pop(host_id, None)
        if host_id not in self.roster:
            log.warning("host %s has been away for %g s: its runs count as lost", host_id, self._lost_after_s)
            self._do(self._mark(host_id, lost=True))

    async def _mark(self, host_id: str, *, lost: bool) -> None:
        for card in await self._active_elsewhere():
            if card.host == host_id and card.host_lost is not lost and (host_id in self.roster) is not lost:
                await self.tower.ask(commands.MarkHost(session_id=card.session_id, lost=lost))

    async def _active_elsewhere(self) -> list[journal.Card]:
        cards = await self.tower.cards(MOST_CARDS)
        return [card for card in cards if card.host is not None and card.state in states.ACTIVE]

    def _expect(self, refused: "Refused") -> str:
        command_id = str(next(self._numbers))
        self._unanswered[command_id] = refused
        if len(self._unanswered) > MOST_UNANSWERED:
            self._unanswered.popitem(last=False)
        return command_id

    def _host_refused(self, run_id: str, problem: dict[str, Any]) -> None:
        """Only who asked is told. Hosts that do not say which command it was have nobody to tell."""
        command_id = problem.pop("command_id", None)
        refused = self._unanswered.pop(command_id, None) if isinstance(command_id, str) else None
        if refused is not None:
            refused(run_id, problem)

    # What apps see

    async def runs(self, limit: int) -> list[messages.RunRow]:
        cards = await self.tower.cards(min(max(limit, 1), MOST_ROWS))
        return [rows.run_row(card, self.own_host_id) for card in cards]

    async def run(self, run_id: str) -> messages.RunRow | None:
        try:
            return rows.run_row(await self.card(run_id), self.own_host_id)
        except errors.Refused:
            return None

    async def history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None:
        try:
            card = await self.card(run_id)
        except errors.Refused:
            return None
        about = outbound.About.card(card, self.own_host_id)
        found: list[messages.Message] = []
        before = tower.FROM_THE_HEAD if before_id is None else before_id
        pages = 0
        while True:
            entries = await self.tower.entries_before(card.session_id, before, HISTORY_PAGE, streamed=include_output)
            if not entries:
                break
            found = rows.history(about, entries, include_output=include_output) + found
            before = entries[0].seq
            pages += 1
            if len(found) >= limit or (found and pages >= MOST_PAGES):
                break
            await asyncio.sleep(0)
        return found[-limit:]

    async def screen(self, run_id: str) -> dict[str, Any] | None:
        try:
            return await screens.of(self.tower, names.session_of(run_id))
        except names.BadId:
            return None

    async def card(self, run_id: str) -> journal.Card:
        try:
            card = await self.tower.card(names.session_of(run_id))
        except names.BadId:
            card = None
        if card is None:
            raise errors.UnknownRun
        return card

    # What apps ask

    async def send_input(self, run_id: str, asked: messages.SendInput, actor: events.Actor, sender: Sender = NOBODY) -> None:
        """A host that refuses it does so later; then the sender hears of it. So with the others."""
        card = await self.card(run_id)
        if card.host is None:
            await self.local.commands.send_input(card, asked, actor)
        else:
            self._pass_on(card, "run.send_input", asked, actor, sender)

    async def send_stdin(self, run_id: str, asked: messages.SendStdin, actor: events.Actor, sender: Sender = NOBODY) -> None:
        card = await self.card(run_id)
        if card.host is None:
            await self.local.commands.send_stdin(card, asked, actor)
        else:
            self._pass_on(card, "run.send_stdin", asked, actor, sender)

    async def resize(self, run_id: str, asked: messages.Resize, actor: events.Actor, sender: Sender = NOBODY) -> None:
        card = await self.card(run_id)
        if card.host is None:
            await self.local.commands.resize(card, asked, actor)
        else:
            self._pass_on(card, "run.resize", asked, actor, sender)

    async def stop(self, run_id: str, asked: messages.Stop, actor: events.Actor, sender: Sender = NOBODY) -> None:
        card = await self.card(run_id)
        if card.host is None:
            await self.local.commands.stop(card, asked.signal, actor)
        else:
            self._pass_on(card, "run.stop", asked, actor, sender)

    async def decide(
        self,
        run_id: str,
        asked: messages.Decide,
        actor: events.Actor,
        sender: Sender = NOBODY,
        *,
        approve: bool,
    ) -> None:
        card = await self.card(run_id)
        if card.host is None:
            await self.local.commands.decide(card, asked, actor, approve=approve)
        else:
            self._pass_on(card, f"run.permission.{'approve' if approve else 'deny'}", asked, actor, sender)

    async def run_rpc(self, type_: str, run_id: str, asked: messages.RunRpc, actor: events.Actor, sender: Sender = NOBODY) -> Any:
        card = await self.card(run_id)
        if card.host is None:
            return await self.local.on_run(type_, card, asked, actor)
        return (await self._call(card.host, type_, run_id, asked, actor, sender)).result

    async def host_rpc(
        self, type_: str, host_id: str, asked: messages.HostRpc, actor: events.Actor, sender: Sender = NOBODY
    ) -> Any:
        if host_id == self.own_host_id:
            return await self.local.on_host(type_, asked, actor)
        if host_id not in self.roster and await self._registry.host(host_id) is None:
            raise errors.UnknownHost
        return (await self._call(host_id, type_, None, asked, actor, sender)).result

    async def _call(
        self,
        host_id: str,
        type_: str,
        run_id: str | None,
        asked: msgspec.Struct,
        actor: events.Actor,
        sender: Sender,
    ) -> messages.Response:
        line = self.roster.line(host_id)
        data = _passed_on(asked, actor, sender)
        frame = roster.command(type_, self.tower.now_ms(), host_id=host_id, run_id=run_id, data=data)
        timeout_s = None if type_ in messages.GATED else PLAIN_RPC_TIMEOUT
        response = await line.call(frame, data["request_id"], timeout_s)
        if not response.ok:
            raise errors.Refused(response.error or "failed")
        return response

    def _pass_on(self, card: journal.Card, type_: str, asked: msgspec.Struct, actor: events.Actor, sender: Sender) -> None:
        assert card.host is not None, "only what lives elsewhere is passed on"
        line = self.roster.line(card.host)
        run_id = names.run_of(card.session_id)
        line.send(
            roster.command(type_, self.tower.now_ms(), host_id=card.host, run_id=run_id, data=_passed_on(asked, actor, sender))
        )

    # What other protocols ask of a session on another host

    def forward(self, host: str, command: commands.AnyCommand, done: tower.Done) -> None:
        try:
            type_, data, outcome = forward.spelled(command, self.tower.mint("msg"))
            line = self.roster.line(host)
        except core_errors.CoreError as refusal:
            done(refusal)
            return
        except errors.HostOffline:
            done(core_errors.HostUnreachable(host, hint="it is asked again when it is back, if you ask again"))
            return
        run_id = names.run_of(command.session_id)
        line.send(roster.command(type_, self.tower.now_ms(), host_id=host, run_id=run_id, data=data))
        done({"after_seq": 0, **outcome})

    # The list of hosts

    async def hosts(self) -> list[messages.HostRow]:
        own = messages.HostRow(
            id=self.own_host_id,
            name=self._host_name,
            last_seen_at=stamps.spelled(self.tower.now_ms()),
            online=True,
            is_this_daemon=True,
        )
        return [own, *[self._row(host) for host in await self._registry.hosts()]]

    def _row(self, host: registry.Host) -> messages.HostRow:
        online = host.host_id in self.roster
        seen_ms = self.tower.now_ms() if online else host.last_seen_ms
        return messages.HostRow(
            id=host.host_id,
            name=host.name,
            last_seen_at=stamps.spelled(seen_ms) if seen_ms else None,
            online=online,
            state=host.state.value,
            first_seen_at=stamps.spelled(host.first_seen_ms),
        )

    async def set_host_state(self, host_id: str, state: str) -> bool:
        known = await self._registry.set_host_state(host_id, registry.HostState(state))
        if known and state != registry.HostState.APPROVED:
            self.roster.cut(host_id, f"this host is {state}")
        return known

    async def rename_host(self, host_id: str, name: str) -> bool:
        return await self._registry.rename_host(host_id, name)

    async def remove_host(self, host_id: str) -> bool:
        known = await self._registry.remove_host(host_id)
        if known:
            self.roster.cut(host_id, "this host was removed")
        return known

    async def rotate_host(self, host_id: str) -> bool:
        """Its token is forgotten: the next one that it comes with is trusted."""
        known = await self._registry.forget_host_token(host_id)
        if known:
            self.roster.cut(host_id, "come back with a new token")
        return known

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("keeping books on hosts failed", exc_info=problem)


def _passed_on(asked: msgspec.Struct, actor: events.Actor, sender: Sender) -> dict[str, Any]:
    """What a host is told: all that was said, as we read it where we do, and by whom."""
    said = msgspec.json.decode(sender.raw, type=dict[str, Any])
    read: dict[str, Any] = msgspec.to_builtins(asked)
    read = {name: value for name, value in read.items() if value is not None}
    return {**said, **read, "actor": outbound.actor(actor), "by": actor.name}
