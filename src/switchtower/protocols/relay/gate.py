"""Waiting for a decision: a gated call is asked about in its run, and goes on with the first answer.

Who waits follows the one session, from before the question is asked: wherever its home is, and wherever it moves.
"""

import asyncio
import hashlib
from enum import Enum, auto
from typing import Any

from switchtower.core import codec, commands, events, journal, tower
from switchtower.core.session import ERRAND
from switchtower.protocols.relay import attaching, errors, names

PAGE = 500
_ENDS = (events.ApprovalDecided.kind, events.ApprovalExpired.kind, events.ApprovalWithdrawn.kind)


class _Told(Enum):
    APPROVED = auto()
    HOLE = auto()
    """Some of what came after the question was removed before it was read."""


class _Follower:
    """Implements `tower.Outlet`: waits for the end of one question."""

    ready = True

    def __init__(self, approval_id: str) -> None:
        self._approval_id = approval_id
        self.outcome: asyncio.Future[_Told | str] = asyncio.get_running_loop().create_future()
        """A text is a refusal."""

    def deliver(self, batch: tower.Batch) -> None:
        for entry in batch.entries:
            if (end := _end(entry, self._approval_id)) is not None:
                self._settle(end)

    def fell_behind(self, session_id: str) -> None:
        self._settle(_Told.HOLE)

    def _settle(self, told: _Told | str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(told)


class Gate:
    def __init__(self, tower_: tower.Tower, timeout_ms: int) -> None:
        self._tower = tower_
        self._timeout_ms = timeout_ms
        self._waiting: dict[tuple[str, str], _Follower] = {}
        """By session and approval: two sessions may be asked under one id."""

    def close(self) -> None:
        for follower in self._waiting.values():
            follower.outcome.cancel()

    async def pass_through(
        self, session_id: str, run_id: str, request_id: str, *, tool: str, title: str, args: dict[str, Any], subject: str
    ) -> None:
        """Returns when it was approved; otherwise raises `Refused`."""
        try:
            approval_id = names.approval_of(request_id)
        except names.BadId as problem:
            raise errors.Refused(str(problem)) from None
        asked = (session_id, approval_id)
        if asked in self._waiting:
            raise errors.Refused(errors.IN_USE)
        follower = self._waiting[asked] = _Follower(approval_id)
        try:
            attachment = await attaching.attached(self._tower, session_id, tower.FROM_THE_HEAD, follower)
            attachment.subscription.start()
            try:
                await self._tower.ask(
                    commands.RequestApproval(
                        session_id=session_id,
                        run_id=run_id,
                        call_id=request_id,
                        kind=ERRAND,
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
            while told is _Told.HOLE:
                told = await self._after_a_hole(session_id, asked)
        except asyncio.CancelledError:
            # Whoever asked has gone, and nothing would come of a decision.
            gone = commands.WithdrawApproval(session_id=session_id, approval_id=approval_id, reason="whoever asked has gone")
            self._tower.submit(gone, lambda _: None)
            raise
        finally:
            self._waiting.pop(asked, None)
        if isinstance(told, str):
            raise errors.Refused(told)

    async def _after_a_hole(self, session_id: str, asked: tuple[str, str]) -> _Told | str:
        """Follows anew from where the session stands. A decision is never removed: it is looked for if it has been made."""
        follower = self._waiting[asked] = _Follower(asked[1])
        attachment = await attaching.attached(self._tower, session_id, tower.FROM_THE_HEAD, follower)
        try:
            run = attachment.session.run
            if run is None or asked[1] not in run.pending:
                return await self._looked_up(session_id, asked[1])
            attachment.subscription.start()
            return await follower.outcome
        finally:
            attachment.subscription.close()

    async def _looked_up(self, session_id: str, approval_id: str) -> _Told | str:
        before = tower.FROM_THE_HEAD
        while entries := await self._tower.entries_before(session_id, before, PAGE, streamed=False):
            for entry in reversed(entries):
                if (end := _end(entry, approval_id)) is not None:
                    return end
            before = entries[0].seq
        return errors.WITHDRAWN


def _end(entry: journal.Entry, approval_id: str) -> _Told | str | None:
    """What became of the question, if this is its end."""
    if entry.kind not in _ENDS:
        return None
    match codec.decode(entry.kind, entry.data):
        case events.ApprovalDecided(approval_id=decided, verdict=verdict) if decided == approval_id:
            return _Told.APPROVED if verdict is events.Verdict.APPROVE else errors.DENIED
        case events.ApprovalExpired(approval_id=expired) if expired == approval_id:
            return errors.EXPIRED
        case events.ApprovalWithdrawn(approval_id=withdrawn, reason=reason) if withdrawn == approval_id:
            return f"{errors.WITHDRAWN}: {reason}"
        case _:
            return None
