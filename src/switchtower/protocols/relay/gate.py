"""Waiting for a decision: a gated call is asked about in its run, and goes on with the first answer."""

import asyncio
import hashlib
from typing import Any

from switchtower.core import commands, events, tower
from switchtower.core.session import ERRAND, Session
from switchtower.protocols.relay import errors, names


class Gate:
    def __init__(self, tower_: tower.Tower, timeout_ms: int) -> None:
        self._tower = tower_
        self._timeout_ms = timeout_ms
        self._waiting: dict[tuple[str, str], asyncio.Future[str | None]] = {}
        """By session and approval: two sessions may be asked under one id."""
        self._unwatch = tower_.watch(self._saw)

    def close(self) -> None:
        self._unwatch()
        for answer in self._waiting.values():
            answer.cancel()

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
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[asked] = answer
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
            refused = await answer
        except asyncio.CancelledError:
            # Whoever asked has gone, and nothing would come of a decision.
            gone = commands.WithdrawApproval(session_id=session_id, approval_id=approval_id, reason="whoever asked has gone")
            self._tower.submit(gone, lambda _: None)
            raise
        finally:
            self._waiting.pop(asked, None)
        if refused is not None:
            raise errors.Refused(refused)

    def _saw(self, session: Session, event: events.AnyEvent) -> None:
        match event:
            case events.ApprovalDecided():
                self._settle(session, event.approval_id, None if event.verdict is events.Verdict.APPROVE else errors.DENIED)
            case events.ApprovalExpired():
                self._settle(session, event.approval_id, errors.EXPIRED)
            case events.ApprovalWithdrawn():
                self._settle(session, event.approval_id, f"{errors.WITHDRAWN}: {event.reason}")
            case _:
                pass

    def _settle(self, session: Session, approval_id: str, refusal: str | None) -> None:
        answer = self._waiting.get((session.id, approval_id))
        if answer is not None and not answer.done():
            answer.set_result(refusal)
