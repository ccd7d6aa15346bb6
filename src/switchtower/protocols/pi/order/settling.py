"""How an ended command becomes durable: one settlement at a time for each session, so that the version that an answer tells
is the version that its receipt holds. Decides no outcome."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec import UNSET

from switchtower.protocols.pi.order import contracts, lifecycle, ports, receipts, refusals
from switchtower.protocols.pi.order.jobs import PendingCommand
from switchtower.protocols.pi.order.limits import DispatchLimits

log = logging.getLogger(__name__)

Settled = Callable[[lifecycle.CommandOutcome], None]


class OutcomeSettler:
    def __init__(self, ledger: ports.OutcomeLedger, limits: DispatchLimits, now_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._limits = limits
        self._now_ms = now_ms
        self._last: dict[str, asyncio.Task[lifecycle.CommandOutcome]] = {}

    def settle(self, pending: PendingCommand, session_id: str | None, outcome: lifecycle.CommandOutcome, then: Settled) -> None:
        """Calls `then` with the outcome as it is to be told: at once when there is nothing to store."""
        command = pending.command
        if session_id is None or command not in contracts.MUTATING or not self._must_store(pending, session_id, outcome):
            then(self.apply_version(outcome, session_id))
            return
        task = asyncio.ensure_future(self._settle(self._last.get(session_id), pending, session_id, outcome))
        self._last[session_id] = task

        def settled(done: asyncio.Task[lifecycle.CommandOutcome]) -> None:
            if self._last.get(session_id) is done:
                del self._last[session_id]
            if not done.cancelled():
                then(done.result())

        task.add_done_callback(settled)

    async def store(self, pending: PendingCommand, outcome: lifecycle.CommandOutcome) -> bool:
        """Stores a failure as the outcome of a command that is given up. Whether that was done."""
        session_id = pending.session_id
        if session_id is None or pending.command not in contracts.MUTATING or self._ledger.get_version(session_id) is None:
            return False
        stored = receipts.make_end_receipts(pending, outcome, self._limits, self._now_ms())
        try:
            await self._ledger.settle(ports.Settlement(session_id, pending.command, False, stored))
        except Exception as problem:
            log.warning("the outcome of `%s` could not be stored", pending.command, exc_info=problem)
            return False
        return True

    def _must_store(self, pending: PendingCommand, session_id: str, outcome: lifecycle.CommandOutcome) -> bool:
        if pending.command in contracts.SERVER:
            wanted = outcome.success and pending.fingerprint is not None
        else:
            wanted = outcome.success or pending.fingerprint is not None
        return wanted and self._ledger.get_version(session_id) is not None

    async def _settle(
        self,
        before: asyncio.Task[lifecycle.CommandOutcome] | None,
        pending: PendingCommand,
        session_id: str,
        outcome: lifecycle.CommandOutcome,
    ) -> lifecycle.CommandOutcome:
        if before is not None:
            await asyncio.wait([before])
        advances = outcome.success and pending.command in contracts.ADVANCING
        outcome = self.apply_version(outcome, session_id, ahead=1 if advances else 0)
        stored = receipts.make_end_receipts(pending, outcome, self._limits, self._now_ms())
        try:
            version = await self._ledger.settle(ports.Settlement(session_id, pending.command, advances, stored))
        except Exception as problem:
            error = refusals.describe_failure(problem, pending.command)
            return lifecycle.CommandOutcome(outcome.command, False, error=error) if outcome.success else outcome
        if advances and version is not None and version != outcome.sessionVersion:
            return msgspec.structs.replace(outcome, sessionVersion=version)
        return outcome

    def apply_version(
        self, outcome: lifecycle.CommandOutcome, session_id: str | None, *, ahead: int = 0
    ) -> lifecycle.CommandOutcome:
        """Interop, Envelope: told with every success that is about one session; a failure tells none."""
        if not outcome.success or session_id is None or outcome.command not in contracts.VERSIONED:
            return outcome
        version = 0 if outcome.command == "create_session" else self._ledger.get_version(session_id)
        if version is None:
            return outcome
        return lifecycle.CommandOutcome(outcome.command, True, outcome.data, UNSET, version + ahead)

    @property
    def is_idle(self) -> bool:
        return not self._last

    async def wait_until_drained(self) -> None:
        while self._last:
            await asyncio.wait(list(self._last.values()))
