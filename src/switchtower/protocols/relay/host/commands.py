"""Executes relay's commands on runs of this host: input, keys, size, stop, decisions. The caller has found the run already."""

import hashlib
from typing import assert_never

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import journal, session_service
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
