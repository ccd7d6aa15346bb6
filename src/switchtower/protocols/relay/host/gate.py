"""Waits for decisions: a gated call requests an approval in its run, and continues with the first answer.

The gate subscribes to the session before the approval is requested: so it sees the answer whichever node owns the session, and
wherever the session moves.
"""

import asyncio
import hashlib
from enum import Enum, auto
from typing import Any

from switchtower.core import codec, commands, events
from switchtower.core.ports import journal, session_service
from switchtower.core.session import REMOTE_CALL
from switchtower.protocols import connection
from switchtower.protocols.relay import errors, wire_values

PAGE_SIZE = 500
_ENDS = (events.ApprovalDecided.kind, events.ApprovalExpired.kind, events.ApprovalWithdrawn.kind)


class _GateResult(Enum):
    APPROVED = auto()
    GAP = auto()
    """Some events after the request were removed before they were read."""


class _DecisionSubscriber:
    """Implements `session_service.Subscriber`: waits for the end of one approval."""

    is_ready = True

    def __init__(self, approval_id: str) -> None:
        self._approval_id = approval_id
        self.outcome: asyncio.Future[_GateResult | str] = asyncio.get_running_loop().create_future()
        """A text is a refusal."""

    def deliver(self, batch: session_service.Batch) -> None:
        for entry in batch.entries:
            if (end := _read_result(entry, self._approval_id)) is not None:
                self._settle(end)

    def on_gap(self, session_id: str) -> None:
        self._settle(_GateResult.GAP)

    def _settle(self, result: _GateResult | str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(result)


class Gate:
    def __init__(self, tower_: session_service.SessionService, timeout_ms: int) -> None:
        self._tower = tower_
        self._timeout_ms = timeout_ms
        self._pending: dict[tuple[str, str], _DecisionSubscriber] = {}
        """Per session and approval: two sessions may have approvals with the same id."""

    def close(self) -> None:
        for follower in self._pending.values():
            follower.outcome.cancel()

    async def wait_for_approval(
        self, session_id: str, run_id: str, request_id: str, *, tool: str, title: str, args: dict[str, Any], subject: str
    ) -> None:
        """Returns when the call was approved; otherwise raises `RelayError`."""
        try:
            approval_id = wire_values.parse_request_id(request_id)
        except wire_values.InvalidRelayId as problem:
            raise errors.RelayError(str(problem)) from None
        asked = (session_id, approval_id)
        if asked in self._pending:
            raise errors.RelayError(errors.IN_USE)
        follower = self._pending[asked] = _DecisionSubscriber(approval_id)
        try:
            attachment = await connection.attach(self._tower, session_id, session_service.HEAD_CURSOR, follower)
            attachment.subscription.start()
            try:
                await self._tower.ask(
                    commands.RequestApproval(
                        session_id=session_id,
                        run_id=run_id,
                        call_id=request_id,
                        kind=REMOTE_CALL,
                        title=title,
                        summary=title,
                        details={"tool": tool, "args": args},
                        fingerprint=hashlib.sha256(subject.encode(errors="surrogatepass")).hexdigest(),
                        expires_at_ms=self._tower.now_ms() + self._timeout_ms,
                        approval_id=approval_id,
                    )
                )
                told = await follower.outcome
            finally:
                attachment.subscription.close()
            while told is _GateResult.GAP:
                told = await self._resubscribe(session_id, asked)
        except asyncio.CancelledError:
            # The client has disconnected, and nothing would follow from a decision.
            gone = commands.WithdrawApproval(session_id=session_id, approval_id=approval_id, reason="whoever asked has gone")
            self._tower.submit(gone, lambda _: None)
            raise
        finally:
            self._pending.pop(asked, None)
        if isinstance(told, str):
            raise errors.RelayError(told)

    async def _resubscribe(self, session_id: str, key: tuple[str, str]) -> _GateResult | str:
        """Subscribes again from the session's current head. A decision is never removed from the journal: if it was made, it is
        found."""
        follower = self._pending[key] = _DecisionSubscriber(key[1])
        attachment = await connection.attach(self._tower, session_id, session_service.HEAD_CURSOR, follower)
        try:
            run = attachment.session.run
            if run is None or key[1] not in run.pending:
                return await self._find_decision(session_id, key[1])
            attachment.subscription.start()
            return await follower.outcome
        finally:
            attachment.subscription.close()

    async def _find_decision(self, session_id: str, approval_id: str) -> _GateResult | str:
        before = session_service.HEAD_CURSOR
        while entries := await self._tower.read_entries_before(session_id, before, PAGE_SIZE, streamed=False):
            for entry in reversed(entries):
                if (end := _read_result(entry, approval_id)) is not None:
                    return end
            before = entries[0].seq
        return errors.WITHDRAWN


def _read_result(entry: journal.Entry, approval_id: str) -> _GateResult | str | None:
    """Returns the result of the approval, if this entry ends it."""
    if entry.kind not in _ENDS:
        return None
    match codec.decode(entry.kind, entry.data):
        case events.ApprovalDecided(approval_id=decided, verdict=verdict) if decided == approval_id:
            return _GateResult.APPROVED if verdict is events.Verdict.APPROVE else errors.DENIED
        case events.ApprovalExpired(approval_id=expired) if expired == approval_id:
            return errors.EXPIRED
        case events.ApprovalWithdrawn(approval_id=withdrawn, reason=reason) if withdrawn == approval_id:
            return f"{errors.WITHDRAWN}: {reason}"
        case _:
            return None
