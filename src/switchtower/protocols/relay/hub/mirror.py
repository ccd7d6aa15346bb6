"""Stores one host's messages in the journal: batched by run, committed in order, and acknowledged after the commit. Nothing is
acknowledged that is not stored, so whatever goes wrong here the host still has it.

The reorder buffer removes duplicates, restores the order and waits for a missing message. A host numbers the messages of a run.
Our own hosts add the previous number to each message (`prev_seq`); others number without holes. When a message is missing, the
later ones are held back for a while: a host may send new messages before those that it had spooled, and an acknowledgement across
the hole would make it forget messages that never arrived.

Limits on what one host may put into the hub's journal: sessions, open approvals, and messages and bytes a minute.

A host that sends too fast is read more slowly, so that nothing is lost and nothing piles up here. Excess sessions and approvals
are refused. Each kind of excess is logged once an hour."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import session_service
from switchtower.protocols.relay import inbound, messages, wire_values

log = logging.getLogger(__name__)

MINUTE = 60.0
MAX_PAUSE = 5.0
"""The longest time, in seconds, for which a host is not read from."""
RECOUNT_SECONDS = 10.0
"""Seconds between two counts of the sessions while there are too many: some may have been deleted."""
MAX_COUNTED_CARDS = 100_000
_LOG_EVERY_SECONDS = 3_600.0


class HostQuotas(Struct, frozen=True, kw_only=True):
    """The limits of each host. 0 is no limit."""

    sessions: int = 0
    approvals: int = 0
    """Approvals that wait for a decision at a time."""
    messages_per_minute: int = 0
    bytes_per_minute: int = 0


UNLIMITED = HostQuotas()


class _RateAllowance:
    """An allowance per minute, saved up for at most one minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left = float(per_minute)
        self._at = 0.0

    def take(self, amount: int, now: float) -> float:
        """Returns the seconds until the taken amount is covered."""
        if not self._per_minute:
            return 0.0
        per_second = self._per_minute / MINUTE
        self._left = min(self._left + (now - self._at) * per_second, float(self._per_minute)) if self._at else self._left
        self._at = now
        self._left -= amount
        return max(-self._left / per_second, 0.0)


class HostUsage:
    """One host's usage of its quotas, over all its connections."""

    def __init__(
        self, tower_: session_service.SessionService, host_id: str, quotas: HostQuotas, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tower = tower_
        self._host_id = host_id
        self._quotas = quotas
        self._now = now
        self._messages = _RateAllowance(quotas.messages_per_minute)
        self._bytes = _RateAllowance(quotas.bytes_per_minute)
        self._sessions: set[str] | None = None
        """None until they are counted."""
        self._counted_at = 0.0
        self._open_approvals: set[tuple[str, str]] = set()
        """Session and approval id of each open approval."""
        self._logged: dict[str, float] = {}

    def compute_pause(self, frames: list[bytes]) -> float:
        """Returns the seconds for which the host is not read from after these frames."""
        now = self._now()
        pause = max(self._messages.take(len(frames), now), self._bytes.take(sum(map(len, frames)), now))
        if pause:
            self._log_hourly("rate", "sends more than it may in a minute; it is read more slowly")
        return min(pause, MAX_PAUSE)

    async def reserve_session(self, session_id: str) -> bool:
        """Returns whether the host may have one more session, which is then counted."""
        most = self._quotas.sessions
        if not most:
            return True
        now = self._now()
        if self._sessions is None or (len(self._sessions) >= most and now - self._counted_at >= RECOUNT_SECONDS):
            try:
                cards = await self._tower.list_cards(MAX_COUNTED_CARDS)
            except errors.CoreError:
                return False  # the count is unknown; the host sends it again
            self._sessions = {card.session_id for card in cards if card.host == self._host_id}
            self._counted_at = now
        if session_id not in self._sessions and len(self._sessions) >= most:
            self._log_hourly("sessions", f"has {most} sessions here; a new one is refused until some are deleted")
            return False
        self._sessions.add(session_id)
        return True

    def limit_approvals(self, session_id: str, reported: tuple[events.AnyEvent, ...]) -> tuple[events.AnyEvent, ...]:
        """Replaces excess approval requests by events that are only passed on. The end of an approval makes room for another."""
        kept: list[events.AnyEvent] = []
        for event in reported:
            if isinstance(event, events.ApprovalRequested) and not self._reserve_approval(session_id, event.approval.id):
                self._log_hourly("approvals", f"has {self._quotas.approvals} open questions; a new one is not asked here")
                if event.relayed is not None:
                    said = {"request_id": event.approval.id, "prompt": event.approval.title}
                    kept.append(events.HostEventReceived(type="run.permission_requested", data=said, relayed=event.relayed))
                continue
            if isinstance(event, events.ApprovalDecided | events.ApprovalExpired | events.ApprovalWithdrawn):
                self._open_approvals.discard((session_id, event.approval_id))
            elif isinstance(event, events.RunCompleted):
                self._open_approvals = {asked for asked in self._open_approvals if asked[0] != session_id}
            kept.append(event)
        return tuple(kept)

    def _reserve_approval(self, session_id: str, approval_id: str) -> bool:
        asked = (session_id, approval_id)
        if self._quotas.approvals and asked not in self._open_approvals and len(self._open_approvals) >= self._quotas.approvals:
            return False
        self._open_approvals.add(asked)
        return True

    def _log_hourly(self, kind: str, problem: str) -> None:
        now = self._now()
        if now - self._logged.get(kind, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
            self._logged[kind] = now
            log.warning("host %s %s", self._host_id, problem)


MAX_HELD = 2_000


class ReorderBuffer:
    """One run's messages. `last_seq` is the last number that was released."""

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        self._held: dict[int, messages.Envelope] = {}

    @property
    def has_gap(self) -> bool:
        """A message is missing."""
        return bool(self._held)

    @property
    def is_full(self) -> bool:
        return len(self._held) >= MAX_HELD

    def __contains__(self, seq: int) -> bool:
        """Returns whether the message is held back already."""
        return seq in self._held

    def __len__(self) -> int:
        return len(self._held)

    def add(self, envelope: messages.Envelope) -> list[messages.Envelope]:
        """Returns the messages that can be stored now, in order: none for a duplicate, or for one that has to wait."""
        seq = envelope.seq
        assert seq is not None, "only what is numbered comes here"
        if seq <= self.last_seq:
            return []
        self._held[seq] = envelope
        return self._take_contiguous() if seq == min(self._held) else []

    def skip_gap(self) -> list[messages.Envelope]:
        """The missing message will not come: returns the held messages up to the next hole."""
        if not self._held:
            return []
        first = min(self._held)
        self.last_seq = first
        return [self._held.pop(first), *self._take_contiguous()]

    def _take_contiguous(self) -> list[messages.Envelope]:
        ready: list[messages.Envelope] = []
        for seq in sorted(self._held):
            envelope = self._held[seq]
            before = seq - 1 if envelope.prev_seq is None else envelope.prev_seq
            if before > self.last_seq:
                break
            del self._held[seq]
            self.last_seq = seq
            ready.append(envelope)
        return ready


GAP_TIMEOUT = 3.0
"""Seconds for which a missing message is waited for."""
RETRY_SECONDS = 0.5
MAX_UNSTORED = 5_000
"""Messages that are not stored yet: beyond this number the host is not read from."""
MAX_RUNS = 10_000
"""Runs of one host that are tracked at a time."""

OnStored = Callable[[str, int], None]
"""Gets the run and the last of its numbers that is stored."""


class _MirroredRun:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.buffer: ReorderBuffer | None = None
        """None until it is known which messages we have."""
        self.queued: list[messages.Envelope] = []
        self.ready: list[commands.HostReport] = []
        self.storing = False
        self.stored = 0
        self.refused = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.refused or (self.buffer is not None and not (self.buffer.has_gap or self.storing or self.ready))


class Mirror:
    def __init__(
        self,
        tower_: session_service.SessionService,
        host_id: str,
        on_stored: OnStored,
        *,
        gap_timeout: float = GAP_TIMEOUT,
        usage: HostUsage | None = None,
        on_rejected: Callable[[str, str], None] = lambda run_id, problem: None,
    ) -> None:
        """`usage` is the host's usage of its quotas; `on_rejected` gets a run that is not accepted, and the reason."""
        self._tower = tower_
        self._host_id = host_id
        self._acknowledge = on_stored
        self._usage = usage or HostUsage(tower_, host_id, UNLIMITED)
        self._on_rejected = on_rejected
        self._gap_timeout = gap_timeout
        self._runs: dict[str, _MirroredRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unstored_count = 0
        self._closed = False
        self.on_room: Callable[[], None] = lambda: None
        """The mirror calls this when it can take more messages again."""

    @property
    def is_overloaded(self) -> bool:
        return self._unstored_count >= MAX_UNSTORED

    def add(self, envelopes: list[messages.Envelope]) -> None:
        """Adds the numbered messages of one read, in their order."""
        touched: dict[str, _MirroredRun] = {}
        for envelope in envelopes:
            assert envelope.run_id is not None and envelope.seq is not None, "only what is numbered comes here"
            run = self._get_run(envelope.run_id)
            if run is None or run.refused:
                continue
            self._unstored_count += 1
            if run.buffer is None:
                run.queued.append(envelope)
            else:
                self._admit(run, envelope)
                touched[envelope.run_id] = run
        for run_id, run in touched.items():
            self._store(run_id, run)

    def close(self) -> None:
        """The host has disconnected. A commit in progress completes; the host sends the rest again."""
        self._closed = True
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _get_run(self, run_id: str) -> _MirroredRun | None:
        run = self._runs.get(run_id)
        if run is None:
            try:
                session_id = wire_values.parse_run_id(run_id)
            except wire_values.InvalidRelayId:
                return None
            if len(self._runs) >= MAX_RUNS:
                self._forget_one()
            run = self._runs[run_id] = _MirroredRun(session_id)
            task = asyncio.get_running_loop().create_task(self._look_up(run_id, run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return run

    def _forget_one(self) -> None:
        idle = next((run_id for run_id, run in self._runs.items() if run.is_idle), None)
        if idle is not None:
            del self._runs[idle]

    async def _look_up(self, run_id: str, run: _MirroredRun) -> None:
        while True:
            try:
                session = await self._tower.get_session(run.session_id)
                known = session.relayed_seq
                run.refused = session.host != self._host_id
            except errors.SessionNotFound:
                known = 0
                if not await self._usage.reserve_session(run.session_id):
                    self._reject_run(run_id, run)
                    return
            except errors.CoreError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            break
        early, run.queued = run.queued, []
        if run.refused:
            log.warning("host %s told of %s, which is not its run", self._host_id, run.session_id)
            self._settle(len(early))
            return
        run.buffer, run.stored = ReorderBuffer(known), known
        for envelope in early:
            self._admit(run, envelope)
        self._store(run_id, run)

    def _reject_run(self, run_id: str, run: _MirroredRun) -> None:
        """Nothing of the run is stored or acknowledged: the host still has it, and sends it again after its next connection."""
        run.refused = True
        early, run.queued = run.queued, []
        self._settle(len(early))
        self._on_rejected(run_id, "this host has too many sessions here; delete some of them at the hub")

    def _admit(self, run: _MirroredRun, envelope: messages.Envelope) -> None:
        intake = run.buffer
        assert intake is not None and envelope.run_id is not None and envelope.seq is not None
        if envelope.seq <= intake.last_seq:
            # A duplicate: the host has missed our acknowledgement.
            self._settle(1)
            if envelope.seq <= run.stored:
                self._acknowledge(envelope.run_id, run.stored)
            return
        if envelope.seq in intake:
            self._settle(1)  # sent again while it is held back
            return
        self._queue_ready(run, intake.add(envelope))
        if not intake.has_gap and run.timer is not None:
            run.timer.cancel()
            run.timer = None
        if intake.has_gap and run.timer is None:
            self._acknowledge(envelope.run_id, run.stored)
            self._wait_for_gap(envelope.run_id, run)
        if intake.is_full:
            self._queue_ready(run, intake.skip_gap())

    def _queue_ready(self, run: _MirroredRun, envelopes: list[messages.Envelope]) -> None:
        now_ms = self._tower.now_ms()
        for envelope in envelopes:
            report = inbound.parse_report(self._host_id, envelope, now_ms)
            run.ready.append(commands.HostReport(report.seq, self._usage.limit_approvals(run.session_id, report.events)))

    def _wait_for_gap(self, run_id: str, run: _MirroredRun) -> None:
        run.timer = asyncio.get_running_loop().call_later(self._gap_timeout, self._on_gap_timeout, run_id, run)

    def _on_gap_timeout(self, run_id: str, run: _MirroredRun) -> None:
        run.timer = None
        assert run.buffer is not None, "only a known run has a gap"
        if not run.buffer.has_gap:
            return
        log.warning("what host %s told of %s has a hole after %d", self._host_id, run.session_id, run.buffer.last_seq)
        self._queue_ready(run, run.buffer.skip_gap())
        if run.buffer.has_gap:
            self._wait_for_gap(run_id, run)
        self._store(run_id, run)

    def _store(self, run_id: str, run: _MirroredRun) -> None:
        if run.storing or not run.ready:
            return
        batch, run.ready = tuple(run.ready), []
        run.storing = True
        command = commands.MirrorRun(
            session_id=run.session_id,
            host=self._host_id,
            run_id=wire_values.make_core_run_id(run.session_id),
            reports=batch,
            opening=inbound.make_opening_events(self._host_id),
        )
        self._tower.submit(command, partial(self._on_stored, run_id, run, batch))

    def _on_stored(
        self,
        run_id: str,
        run: _MirroredRun,
        batch: tuple[commands.HostReport, ...],
        outcome: session_service.SubmitOutcome | errors.CoreError,
    ) -> None:
        run.storing = False
        if isinstance(outcome, errors.NotSessionHost):
            log.warning("host %s told of %s, which is not its run", self._host_id, run.session_id)
            run.refused = True
            self._settle(len(batch) + len(run.ready) + (len(run.buffer) if run.buffer is not None else 0))
            run.ready = []
        elif isinstance(outcome, errors.CoreError):
            # The batch is neither stored nor acknowledged: it is retried while the host is connected.
            run.ready = [*batch, *run.ready]
            if not self._closed:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._store_again, run_id, run)
        else:
            run.stored = outcome["last_seq"]
            self._settle(len(batch))
            if not self._closed:
                self._acknowledge(run_id, run.stored)
            self._store(run_id, run)

    def _store_again(self, run_id: str, run: _MirroredRun) -> None:
        if not self._closed:
            self._store(run_id, run)

    def _settle(self, count: int) -> None:
        was_crowded = self.is_overloaded
        self._unstored_count -= count
        if was_crowded and not self.is_overloaded:
            self.on_room()
