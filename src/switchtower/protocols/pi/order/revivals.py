"""Commands that had begun when the process before this one ended: how they ended is found out when somebody asks."""

import asyncio
from collections.abc import Callable

from msgspec import UNSET, Raw

from switchtower.protocols.pi.order import contracts, lifecycle, ports, refusals
from switchtower.protocols.pi.order.jobs import PendingCommand, CommandStage
from switchtower.protocols.pi.order.outcomes import InterruptedCommand
from switchtower.protocols.pi.order.settling import OutcomeSettler

Revived = Callable[[PendingCommand, lifecycle.CommandOutcome], None]


class InterruptedCommands:
    def __init__(self, settler: OutcomeSettler, revived: Revived) -> None:
        self.resolve: ports.Resolve | None = None
        self._settler = settler
        self._revived = revived
        self._tasks: dict[asyncio.Task[None], PendingCommand] = {}

    def start(self, namespace: str, interrupted: InterruptedCommand) -> PendingCommand:
        pending = PendingCommand(
            command=interrupted.command,
            namespace=namespace,
            session_id=interrupted.session_id,
            fingerprint=interrupted.fingerprint,
            ids=list(interrupted.ids),
            keys=list(interrupted.keys),
            stage=CommandStage.RUNNING,
        )
        task = asyncio.ensure_future(self._resolve(pending, interrupted))
        self._tasks[task] = pending
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return pending

    async def _resolve(self, pending: PendingCommand, interrupted: InterruptedCommand) -> None:
        assert self.resolve is not None, "set before there is anything to revive"
        session_id = interrupted.session_id
        try:
            handled = await self.resolve(interrupted.command, interrupted.session_id, interrupted.facts)
            while handled.rest is not None:
                handled = await handled.rest
            session_id = contracts.get_versioned_session(interrupted.command, session_id, handled.session_id)
            data = UNSET if handled.data is UNSET else Raw(lifecycle.encode(handled.data))
            outcome = lifecycle.CommandOutcome(interrupted.command, True, data)
            if handled.settled:
                self._end(pending, self._settler.apply_version(outcome, session_id))
                return
        except Exception as problem:
            outcome = lifecycle.CommandOutcome(
                interrupted.command, False, error=refusals.describe_failure(problem, interrupted.command)
            )
        pending.stage = CommandStage.SETTLING
        self._settler.settle(pending, session_id, outcome, lambda told: self._end(pending, told))

    def _end(self, pending: PendingCommand, outcome: lifecycle.CommandOutcome) -> None:
        pending.stage = CommandStage.FINISHED
        self._revived(pending, outcome)

    def stop(self) -> list[PendingCommand]:
        """Those that were not found out in time."""
        left = list(self._tasks.values())
        for task in list(self._tasks):
            task.cancel()
        return left
