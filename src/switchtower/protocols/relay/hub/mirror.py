"""One host's words on their way into the journal: batched by run, committed in order, acknowledged after the commit.

Nothing is acknowledged that is not stored, so whatever goes wrong here the host still has it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from switchtower.core import commands, errors, tower
from switchtower.protocols.relay import messages, names, reports
from switchtower.protocols.relay.hub.intake import RunIntake
from switchtower.protocols.relay.hub.quotas import UNLIMITED, HostUsage

log = logging.getLogger(__name__)

GAP_PATIENCE = 3.0
"""How long a missing message is waited for."""
RETRY = 0.5
MOST_WAITING = 5_000
"""Messages that are not stored yet: beyond that the host is not read from."""
MOST_RUNS = 10_000
"""Of one host at a time, as far as we keep books on them."""

Ack = Callable[[str, int], None]
"""Told the run and the last of its numbers that is stored."""


class _Run:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.intake: RunIntake | None = None
        """None until it is known what we have."""
        self.early: list[messages.Envelope] = []
        self.ready: list[commands.Report] = []
        self.storing = False
        self.stored = 0
        self.refused = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.refused or (self.intake is not None and not (self.intake.is_waiting or self.storing or self.ready))


class Mirror:
    def __init__(
        self,
        tower_: tower.Tower,
        host_id: str,
        ack: Ack,
        *,
        gap_patience: float = GAP_PATIENCE,
        usage: HostUsage | None = None,
        refuse: Callable[[str, str], None] = lambda run_id, problem: None,
    ) -> None:
        """`usage` is what the host has used of its quotas; `refuse` gets the run that is not taken, and the reason."""
        self._tower = tower_
        self._host_id = host_id
        self._ack = ack
        self._usage = usage or HostUsage(tower_, host_id, UNLIMITED)
        self._refuse = refuse
        self._gap_patience = gap_patience
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closed = False
        self.relieved: Callable[[], None] = lambda: None
        """Called when there is room again."""

    @property
    def is_crowded(self) -> bool:
        return self._waiting >= MOST_WAITING

    def take(self, envelopes: list[messages.Envelope]) -> None:
        """Numbered messages of one read, in their order."""
        touched: dict[str, _Run] = {}
        for envelope in envelopes:
            assert envelope.run_id is not None and envelope.seq is not None, "only what is numbered comes here"
            run = self._run(envelope.run_id)
            if run is None or run.refused:
                continue
            self._waiting += 1
            if run.intake is None:
                run.early.append(envelope)
            else:
                self._admit(run, envelope)
                touched[envelope.run_id] = run
        for run_id, run in touched.items():
            self._store(run_id, run)

    def close(self) -> None:
        """The host has gone. What is being stored is stored; the rest it will tell again."""
        self._closed = True
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _run(self, run_id: str) -> _Run | None:
        run = self._runs.get(run_id)
        if run is None:
            try:
                session_id = names.session_of(run_id)
            except names.BadId:
                return None
            if len(self._runs) >= MOST_RUNS:
                self._forget_one()
            run = self._runs[run_id] = _Run(session_id)
            task = asyncio.get_running_loop().create_task(self._look_up(run_id, run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return run

    def _forget_one(self) -> None:
        idle = next((run_id for run_id, run in self._runs.items() if run.is_idle), None)
        if idle is not None:
            del self._runs[idle]

    async def _look_up(self, run_id: str, run: _Run) -> None:
        while True:
            try:
                session = await self._tower.session(run.session_id)
                known = session.relayed_seq
                run.refused = session.host != self._host_id
            except errors.SessionNotFound:
                known = 0
                if not await self._usage.may_begin(run.session_id):
                    self._turn_away(run_id, run)
                    return
            except errors.CoreError:
                await asyncio.sleep(RETRY)
                continue
            break
        early, run.early = run.early, []
        if run.refused:
            log.warning("host %s told of %s, which is not its run", self._host_id, run.session_id)
            self._settle(len(early))
            return
        run.intake, run.stored = RunIntake(known), known
        for envelope in early:
            self._admit(run, envelope)
        self._store(run_id, run)

    def _turn_away(self, run_id: str, run: _Run) -> None:
        """Nothing of it is stored or acknowledged: the host still has it, and tells it again after its next connection."""
        run.refused = True
        early, run.early = run.early, []
        self._settle(len(early))
        self._refuse(run_id, "this host has too many sessions here; delete some of them at the hub")

    def _admit(self, run: _Run, envelope: messages.Envelope) -> None:
        intake = run.intake
        assert intake is not None and envelope.run_id is not None and envelope.seq is not None
        if envelope.seq <= intake.taken:
            # Told before: the host has missed our acknowledgement.
            self._settle(1)
            if envelope.seq <= run.stored:
                self._ack(envelope.run_id, run.stored)
            return
        if envelope.seq in intake:
            self._settle(1)  # told again while it waits
            return
        self._ready(run, intake.add(envelope))
        if not intake.is_waiting and run.timer is not None:
            run.timer.cancel()
            run.timer = None
        if intake.is_waiting and run.timer is None:
            self._ack(envelope.run_id, run.stored)
            self._wait_for_gap(envelope.run_id, run)
        if intake.is_full:
            self._ready(run, intake.give_up_waiting())

    def _ready(self, run: _Run, envelopes: list[messages.Envelope]) -> None:
        now_ms = self._tower.now_ms()
        for envelope in envelopes:
            report = reports.report(self._host_id, envelope, now_ms)
            run.ready.append(commands.Report(report.seq, self._usage.bound(run.session_id, report.events)))

    def _wait_for_gap(self, run_id: str, run: _Run) -> None:
        run.timer = asyncio.get_running_loop().call_later(self._gap_patience, self._gap_is_final, run_id, run)

    def _gap_is_final(self, run_id: str, run: _Run) -> None:
        run.timer = None
        assert run.intake is not None, "only a known run has a gap"
        if not run.intake.is_waiting:
            return
        log.warning("what host %s told of %s has a hole after %d", self._host_id, run.session_id, run.intake.taken)
        self._ready(run, run.intake.give_up_waiting())
        if run.intake.is_waiting:
            self._wait_for_gap(run_id, run)
        self._store(run_id, run)

    def _store(self, run_id: str, run: _Run) -> None:
        if run.storing or not run.ready:
            return
        batch, run.ready = tuple(run.ready), []
        run.storing = True
        command = commands.MirrorRun(
            session_id=run.session_id,
            host=self._host_id,
            run_id=names.core_run_of(run.session_id),
            reports=batch,
            opening=reports.opening(self._host_id),
        )
        self._tower.submit(command, partial(self._stored, run_id, run, batch))

    def _stored(
        self, run_id: str, run: _Run, batch: tuple[commands.Report, ...], outcome: tower.Outcome | errors.CoreError
    ) -> None:
        run.storing = False
        if isinstance(outcome, errors.NotItsHost):
            log.warning("host %s told of %s, which is not its run", self._host_id, run.session_id)
            run.refused = True
            self._settle(len(batch) + len(run.ready) + (len(run.intake) if run.intake is not None else 0))
            run.ready = []
        elif isinstance(outcome, errors.CoreError):
            # Not stored, and not acknowledged: tried again while the host is there.
            run.ready = [*batch, *run.ready]
            if not self._closed:
                asyncio.get_running_loop().call_later(RETRY, self._store_again, run_id, run)
        else:
            run.stored = outcome["last_seq"]
            self._settle(len(batch))
            if not self._closed:
                self._ack(run_id, run.stored)
            self._store(run_id, run)

    def _store_again(self, run_id: str, run: _Run) -> None:
        if not self._closed:
            self._store(run_id, run)

    def _settle(self, count: int) -> None:
        was_crowded = self.is_crowded
        self._waiting -= count
        if was_crowded and not self.is_crowded:
            self.relieved()
