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
    stop: bool | None = None


DENY_AND_STOP = Decision("deny", stop=True)


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
    """`is_shown`: the view shows approvals to the same person. `ours`: the run is this command's, so nobody there any more is a
    no; whoever only watches leaves the decision to others then."""

    def __init__(
        self,
        asker: Asker,
        client: Client,
        session_id: str,
        run_id: str | None = None,
        *,
        is_shown: bool = True,
        ours: bool = True,
    ) -> None:
        """`run_id` is whose approvals they are where nobody says it with each."""
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._is_shown = is_shown
        self._ours = ours

    def ask(self, approval: messages.ApprovalRequired, run_id: str | None = None) -> None:
        whose = run_id or self._run_id
        assert whose is not None, "an approval is a run's"
        question = _Question(self._client, self._session_id, whose, approval, is_shown=self._is_shown, ours=self._ours)
        self._asker.ask(question)

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.ApprovalReceived(approval_id):
                self._asker.take_off(approval_id)
            case messages.Warn("APPROVAL_WITHDRAWN" | "APPROVAL_EXPIRED", detail=str(approval_id)):
                self._asker.take_off(approval_id)
            case messages.RunComplete():
                self._asker.take_off_all()


class _Question:
    def __init__(
        self,
        client: Client,
        session_id: str,
        run_id: str,
        approval: messages.ApprovalRequired,
        *,
        is_shown: bool,
        ours: bool,
    ) -> None:
        self.id = approval.approvalId
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._approval = approval
        self._is_shown = is_shown
        self._at_the_end = DENY_AND_STOP if ours else None
        self._decision = self._at_the_end

    async def put(self, *, again: bool) -> None:
        if again or not self._is_shown:
            for text, colour in questions.lines(self._approval):
                console.say(text, colour)
        self._decision = await _decision_from_terminal(questions.always(self._approval), at_the_end=self._at_the_end)

    async def send(self) -> None:
        if self._decision is None:
            how = f"`tower approve {self._session_id}` or `tower deny {self._session_id}`"
            console.say(f"not decided here; hint: {how}", "yellow")
            return
        decision, comment, scope, stop = self._decision
        try:
            await self._client.decide(self._session_id, self._run_id, self.id, decision, comment=comment, scope=scope, stop=stop)
        except errors.ClientError as problem:
            console.fail(str(problem))
        else:
            if scope == "session":
                console.say(f"  from now on in this session: {questions.always(self._approval)}", "yellow")


async def _decision_from_terminal(rule: str | None, *, at_the_end: Decision | None) -> Decision | None:
    """`at_the_end` is what it means when nobody is there any more."""
    always = f" · a always for this session: {rule}" if rule is not None else ""
    console.say(f"  y yes, once{always} · n no, but go on (say why: n WHY) · d or Enter deny and stop", "dim")
    keyboard.forget_typed()
    while True:
        line = await keyboard.line("  approve? [y/a/n/D] " if rule is not None else "  approve? [y/n/D] ")
        if line is None:
            return at_the_end
        if (decision := read(line, may_be_always=rule is not None)) is not None:
            return decision
