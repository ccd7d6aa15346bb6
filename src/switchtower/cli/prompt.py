"""Asks the person at the terminal about an approval, and stops asking when somebody else has decided it."""

import asyncio
import os
import termios
from contextlib import suppress
from typing import NamedTuple

from switchtower.cli import console, questions
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import messages

NO = "The person at the terminal said no"
"""The comment of a denial after which the run goes on. Push ends a run that is denied without one."""


class Decision(NamedTuple):
    decision: messages.ApprovalDecision
    comment: str | None = None
    scope: messages.ApprovalScope = "once"


DENY_AND_STOP = Decision("deny")


def is_possible() -> bool:
    return os.isatty(0) and os.isatty(2)


def read(answer: str, *, may_be_always: bool) -> Decision | None:
    """What an answer means; None when it means nothing. An empty one is the safest: nothing happens, and the run ends."""
    word, _, rest = answer.strip().partition(" ")
    match word.lower():
        case "y" | "yes" if not rest:
            return Decision("approve")
        case "a" | "always" if may_be_always and not rest:
            return Decision("approve", scope="session")
        case "n" | "no":
            return Decision("deny", comment=rest.strip() or NO)
        case "" | "d" | "deny" if not rest:
            return DENY_AND_STOP
    return None


class Prompt:
    def __init__(self, client: Client, session_id: str, run_id: str) -> None:
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._asking: asyncio.Task[None] | None = None
        self._approval_id: str | None = None

    def ask(self, approval: messages.ApprovalRequired) -> None:
        self.dismiss()
        self._approval_id = approval.approvalId
        self._asking = asyncio.get_running_loop().create_task(self._ask(approval))

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.ApprovalReceived(approval_id) if approval_id == self._approval_id:
                self.dismiss()
            case messages.RunComplete():
                self.dismiss()

    def dismiss(self) -> None:
        """Stops asking. An answer that was given is on its way and stays so."""
        if self._asking is not None and self._approval_id is not None:
            self._asking.cancel()
        self._approval_id = None

    async def close(self) -> None:
        self.dismiss()
        if self._asking is not None:
            await asyncio.wait({self._asking})

    async def _ask(self, approval: messages.ApprovalRequired) -> None:
        rule = questions.always(approval)
        decision = await _decision_from_terminal(rule)
        self._approval_id = None
        try:
            await self._client.decide(
                self._session_id,
                self._run_id,
                approval.approvalId,
                decision.decision,
                comment=decision.comment,
                scope=decision.scope,
            )
        except errors.ClientError as problem:
            console.fail(str(problem))
        else:
            if decision.scope == "session":
                console.say(f"  from now on in this session: {rule}", "yellow")


async def _decision_from_terminal(rule: str | None) -> Decision:
    always = f" · a always for this session: {rule}" if rule is not None else ""
    console.say(f"  y yes, once{always} · n no, but go on (say why: n WHY) · d or Enter deny and stop", "dim")
    # What was typed before the question was there is no answer to it.
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)
    while True:
        console.piece("  approve? [y/a/n/D] " if rule is not None else "  approve? [y/n/D] ")
        line = await _line_from_terminal()
        console.line_was_ended()
        if (decision := read(line, may_be_always=rule is not None)) is not None:
            return decision


async def _line_from_terminal() -> str:
    """A terminal hands over whole lines; its end counts as an empty one."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not arrived.done():
            arrived.set_result(os.read(0, 4_096))

    loop.add_reader(0, read)
    try:
        return (await arrived).decode(errors="replace")
    finally:
        loop.remove_reader(0)
