"""Waits for decisions: a gated call requests an approval in its run, and continues with the first answer.

The gate subscribes to the session before the approval is requested: so it sees the answer whichever node owns the session, and
wherever the session moves.

Executes relay's commands on runs of this host: input, keys, size, stop, decisions. The caller has found the run already."""

import asyncio
import hashlib
from enum import Enum, auto
from typing import Any, assert_never

from switchtower.core import codec, commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import journal, session_service
from switchtower.core.session import REMOTE_CALL
from switchtower.protocols import connection
from switchtower.protocols.relay import errors, messages, wire_values

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})
_CTRL_C = "\x03"
_VERDICTS = {
    "approve": events.Verdict.APPROVE,
    "approve_for_session": events.Verdict.APPROVE,
    "deny": events.Verdict.DENY_CONTINUE,
    "abort": events.Verdict.DENY_STOP,
}


class RunCommands:
    def __init__(self, tower_: session_service.SessionService) -> None:
        self._tower = tower_

    async def execute(self, type_: str, card: journal.Card, request: messages.RunCommand, actor: events.Actor) -> None:
        match request:
            case messages.SendInput():
                await self.send_input(card, request, actor)
            case messages.SendStdin():
                await self.send_stdin(card, request, actor)
            case messages.Resize():
                await self.resize(card, request, actor)
            case messages.Stop():
                await self.stop(card, request.signal, actor)
            case messages.Decide():
                await self.decide(card, request, actor, approve=type_ == messages.APPROVE)
            case _:
                assert_never(request)

    async def send_input(self, card: journal.Card, request: messages.SendInput, actor: events.Actor) -> None:
        if card.tool:
            await self._submit(
                commands.TypeInput(
                    session_id=card.session_id,
                    actor=actor,
                    idempotency_key=f"input:{request.input_id}",
                    input_id=request.input_id,
                    text=request.text,
                    sha256=hashlib.sha256(request.text.encode(errors="surrogatepass")).hexdigest(),
                )
            )
            return
        text = request.text.strip("\r\n")
        if card.pending_approval_id is not None and text.lower() in _YES | _NO:
            # Clients without support for approvals type the text that they were sent: `approve_text` or `deny_text`.
            verdict = events.Verdict.APPROVE if text.lower() in _YES else events.Verdict.DENY_CONTINUE
            await self._submit(
                commands.DecideApproval(
                    session_id=card.session_id, actor=actor, approval_id=card.pending_approval_id, verdict=verdict
                )
            )
            return
        if not text:
            raise errors.RelayError("an empty message says nothing")
        await self._submit(
            commands.QueueMessage(
                session_id=card.session_id,
                actor=actor,
                idempotency_key=f"input:{request.input_id}",
                text=text,
                delivery=events.Delivery.FOLLOW_UP if request.delivery == "follow_up" else events.Delivery.STEER,
            )
        )

    async def send_stdin(self, card: journal.Card, request: messages.SendStdin, actor: events.Actor) -> None:
        text = request.text or request.data or ""
        if text:
            await self._submit(commands.TypeKeys(session_id=card.session_id, actor=actor, text=text))

    async def resize(self, card: journal.Card, request: messages.Resize, actor: events.Actor) -> None:
        await self._submit(commands.ResizeTerminal(session_id=card.session_id, actor=actor, cols=request.cols, rows=request.rows))

    async def stop(self, card: journal.Card, signal: messages.Signal | None, actor: events.Actor) -> messages.Signal:
        """Returns the effective signal. `int` interrupts: Ctrl-C at a terminal, the end of the run for an agent."""
        if signal == "int" and card.tool:
            await self._submit(commands.TypeKeys(session_id=card.session_id, actor=actor, text=_CTRL_C))
            return signal
        await self._submit(commands.CancelRun(session_id=card.session_id, actor=actor, force=signal == "kill"))
        return signal or "term"

    async def decide(self, card: journal.Card, request: messages.Decide, actor: events.Actor, *, approve: bool) -> None:
        verdict = _VERDICTS.get(request.decision or ("approve" if approve else "deny"))
        if verdict is None or (verdict is events.Verdict.APPROVE) is not approve:
            raise errors.RelayError("unknown decision")
        try:
            approval_id = wire_values.parse_request_id(request.request_id)
        except wire_values.InvalidRelayId as problem:
            raise errors.RelayError(str(problem)) from None
        await self._submit(
            commands.DecideApproval(
                session_id=card.session_id,
                actor=actor,
                approval_id=approval_id,
                verdict=verdict,
                comment=request.reason,
                always=request.decision == "approve_for_session",
            )
        )

    async def _submit(self, command: commands.AnyCommand) -> None:
        try:
            await self._tower.ask(command)
        except core_errors.CoreError as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from refusal


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
