"""Relay's commands on runs that live here: input, keys, size, stop, decisions. Whoever asks has found the run already."""

import hashlib
from typing import assert_never

from switchtower.core import commands, events, journal, tower
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, names

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})
_CTRL_C = "\x03"
_VERDICTS = {
    "approve": events.Verdict.APPROVE,
    "approve_for_session": events.Verdict.APPROVE,
    "deny": events.Verdict.DENY_CONTINUE,
    "abort": events.Verdict.DENY_STOP,
}


class RunCommands:
    def __init__(self, tower_: tower.Tower) -> None:
        self._tower = tower_

    async def obey(self, type_: str, card: journal.Card, asked: messages.RunCommand, actor: events.Actor) -> None:
        match asked:
            case messages.SendInput():
                await self.send_input(card, asked, actor)
            case messages.SendStdin():
                await self.send_stdin(card, asked, actor)
            case messages.Resize():
                await self.resize(card, asked, actor)
            case messages.Stop():
                await self.stop(card, asked.signal, actor)
            case messages.Decide():
                await self.decide(card, asked, actor, approve=type_ == messages.APPROVE)
            case _:
                assert_never(asked)

    async def send_input(self, card: journal.Card, asked: messages.SendInput, actor: events.Actor) -> None:
        if card.tool:
            await self._ask(
                commands.TypeInput(
                    session_id=card.session_id,
                    actor=actor,
                    idempotency_key=f"input:{asked.input_id}",
                    input_id=asked.input_id,
                    text=asked.text,
                    sha256=hashlib.sha256(asked.text.encode(errors="surrogatepass")).hexdigest(),
                )
            )
            return
        text = asked.text.strip("\r\n")
        if card.pending_approval_id is not None and text.lower() in _YES | _NO:
            # Clients that know no approvals type what they were told to: `approve_text` or `deny_text`.
            verdict = events.Verdict.APPROVE if text.lower() in _YES else events.Verdict.DENY_CONTINUE
            await self._ask(
                commands.DecideApproval(
                    session_id=card.session_id, actor=actor, approval_id=card.pending_approval_id, verdict=verdict
                )
            )
            return
        if not text:
            raise errors.Refused("an empty message says nothing")
        await self._ask(
            commands.QueueMessage(
                session_id=card.session_id,
                actor=actor,
                idempotency_key=f"input:{asked.input_id}",
                text=text,
                delivery=events.Delivery.FOLLOW_UP if asked.delivery == "follow_up" else events.Delivery.STEER,
            )
        )

    async def send_stdin(self, card: journal.Card, asked: messages.SendStdin, actor: events.Actor) -> None:
        text = asked.text or asked.data or ""
        if text:
            await self._ask(commands.TypeKeys(session_id=card.session_id, actor=actor, text=text))

    async def resize(self, card: journal.Card, asked: messages.Resize, actor: events.Actor) -> None:
        await self._ask(commands.ResizeTerminal(session_id=card.session_id, actor=actor, cols=asked.cols, rows=asked.rows))

    async def stop(self, card: journal.Card, signal: messages.Signal | None, actor: events.Actor) -> messages.Signal:
        """The signal that was meant. `int` interrupts: Ctrl-C at a terminal, the end of the run for an agent."""
        if signal == "int" and card.tool:
            await self._ask(commands.TypeKeys(session_id=card.session_id, actor=actor, text=_CTRL_C))
            return signal
        await self._ask(commands.CancelRun(session_id=card.session_id, actor=actor, force=signal == "kill"))
        return signal or "term"

    async def decide(self, card: journal.Card, asked: messages.Decide, actor: events.Actor, *, approve: bool) -> None:
        verdict = _VERDICTS.get(asked.decision or ("approve" if approve else "deny"))
        if verdict is None or (verdict is events.Verdict.APPROVE) is not approve:
            raise errors.Refused("unknown decision")
        try:
            approval_id = names.approval_of(asked.request_id)
        except names.BadId as problem:
            raise errors.Refused(str(problem)) from None
        await self._ask(
            commands.DecideApproval(
                session_id=card.session_id,
                actor=actor,
                approval_id=approval_id,
                verdict=verdict,
                comment=asked.reason,
                always=asked.decision == "approve_for_session",
            )
        )

    async def _ask(self, command: commands.AnyCommand) -> None:
        try:
            await self._tower.ask(command)
        except core_errors.CoreError as refusal:
            raise errors.Refused(errors.of(refusal)) from refusal
