"""Commands that had begun when the process before this one ended: how they ended is found out when somebody asks."""

import asyncio
from collections.abc import Callable

from msgspec import UNSET, Raw

from switchtower.protocols.pi.order import contracts, lifecycle, ports, refusals
from switchtower.protocols.pi.order.jobs import Pending, Stage
from switchtower.protocols.pi.order.outcomes import Begun
from switchtower.protocols.pi.order.settling import Settler

Revived = Callable[[Pending, lifecycle.Outcome], None]


class Revivals:
    def __init__(self, settler: Settler, revived: Revived) -> None:
        self.resolve: ports.Resolve | None = None
        self._settler = settler
        self._revived = revived
        self._tasks: dict[asyncio.Task[None], Pending] = {}

    def start(self, namespace: str, begun: Begun) -> Pending:
        pending = Pending(
            command=begun.command,
            namespace=namespace,
            session_id=begun.session_id,
            fingerprint=begun.fingerprint,
            ids=list(begun.ids),
            keys=list(begun.keys),
            stage=Stage.RUNNING,
        )
        task = asyncio.ensure_future(self._find_out(pending, begun))
        self._tasks[task] = pending
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return pending

    async def _find_out(self, pending: Pending, begun: Begun) -> None:
        assert self.resolve is not None, "set before there is anything to revive"
        session_id = begun.session_id
        try:
            handled = await self.resolve(begun.command, begun.session_id, begun.facts)
            while handled.rest is not None:
                handled = await handled.rest
            session_id = contracts.subject(begun.command, session_id, handled.session_id)
            data = UNSET if handled.data is UNSET else Raw(lifecycle.encode(handled.data))
            outcome = lifecycle.Outcome(begun.command, True, data)
            if handled.settled:
                self._end(pending, self._settler.with_version(outcome, session_id))
                return
        except Exception as problem:
            outcome = lifecycle.Outcome(begun.command, False, error=refusals.of(problem, begun.command))
        pending.stage = Stage.SETTLING
        self._settler.settle(pending, session_id, outcome, lambda told: self._end(pending, told))

    def _end(self, pending: Pending, outcome: lifecycle.Outcome) -> None:
        pending.stage = Stage.FINISHED
        self._revived(pending, outcome)

    def stop(self) -> list[Pending]:
        """Those that were not found out in time."""
        left = list(self._tasks.values())
        for task in list(self._tasks):
            task.cancel()
        return left
