"""Watches one run to its end: shows its events and answers its approvals with the decider it is given."""

from collections.abc import Callable
from contextlib import aclosing

from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages

ApprovalDecider = Callable[[messages.ApprovalRequired], messages.ApprovalDecision | None]
"""None leaves the decision to somebody else."""


class RunFollower:
    def __init__(
        self,
        client: DaemonClient,
        session: SessionSubscription,
        run_id: str,
        *,
        show: Callable[[PushEvent], None],
        decide: ApprovalDecider,
    ) -> None:
        self._client = client
        self._session = session
        self._run_id = run_id
        self._show = show
        self._decide = decide
        self._asked: set[str] = set()

    async def follow_to_end(self) -> messages.RunComplete:
        after_gap = False
        async with aclosing(self._session.stream_events()) as events:
            async for event in events:
                self._show(event)
                match event.payload:
                    case messages.RunComplete(self._run_id):
                        return event.payload
                    case messages.ApprovalRequired() if event.run_id == self._run_id:
                        await self._answer_approval(event.payload)
                    case messages.Warn("EVENT_GAP"):
                        after_gap = True
                    case messages.SessionSnapshot() if after_gap:
                        after_gap = False
                        await self._catch_up(event.payload)
        raise AssertionError("events end only with an exception")

    async def _catch_up(self, snapshot: messages.SessionSnapshot) -> None:
        if snapshot.activeRunId != self._run_id:
            raise errors.ClientError(
                f"run {self._run_id} ended while its events could not be read, so its outcome is not known here",
                hint=f"see `tower attach {self._session.session_id} --no-follow`",
            )
        if snapshot.pendingApproval is not None:
            await self._answer_approval(snapshot.pendingApproval)

    async def _answer_approval(self, approval: messages.ApprovalRequired) -> None:
        if approval.approvalId in self._asked:
            return
        self._asked.add(approval.approvalId)
        decision = self._decide(approval)
        if decision is None:
            return
        try:
            await self._client.decide_approval(self._session.session_id, self._run_id, approval.approvalId, decision)
        except errors.RequestFailed as problem:
            # push, Concurrency Rules: somebody else was first. The events say what they decided.
            if problem.code not in ("APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND"):
                raise
