"""Asks the person at the terminal about an approval, and stops asking when somebody else has decided it."""

from typing import NamedTuple

from switchtower.cli import console, keyboard, questions
from switchtower.cli.asker import Asker
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
    def __init__(self, asker: Asker, client: Client, session_id: str, run_id: str) -> None:
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._run_id = run_id

    def ask(self, approval: messages.ApprovalRequired) -> None:
        self._asker.ask(_Question(self._client, self._session_id, self._run_id, approval))

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.ApprovalReceived(approval_id):
                self._asker.take_off(approval_id)
            case messages.Warn("APPROVAL_WITHDRAWN" | "APPROVAL_EXPIRED", detail=str(approval_id)):
                self._asker.take_off(approval_id)
            case messages.RunComplete():
                self._asker.take_off_all()


class _Question:
    def __init__(self, client: Client, session_id: str, run_id: str, approval: messages.ApprovalRequired) -> None:
        self.id = approval.approvalId
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._approval = approval
        self._decision = DENY_AND_STOP

    async def put(self, *, again: bool) -> None:
        if again:
            for text, colour in questions.lines(self._approval):
                console.say(text, colour)
        self._decision = await _decision_from_terminal(questions.always(self._approval))

    async def send(self) -> None:
        decision, comment, scope = self._decision
        try:
            await self._client.decide(self._session_id, self._run_id, self.id, decision, comment=comment, scope=scope)
        except errors.ClientError as problem:
            console.fail(str(problem))
        else:
            if scope == "session":
                console.say(f"  from now on in this session: {questions.always(self._approval)}", "yellow")


async def _decision_from_terminal(rule: str | None) -> Decision:
    always = f" · a always for this session: {rule}" if rule is not None else ""
    console.say(f"  y yes, once{always} · n no, but go on (say why: n WHY) · d or Enter deny and stop", "dim")
    keyboard.forget_typed()
    while True:
        line = await keyboard.line("  approve? [y/a/n/D] " if rule is not None else "  approve? [y/n/D] ")
        if (decision := read(line or "", may_be_always=rule is not None)) is not None:
            return decision
