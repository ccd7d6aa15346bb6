"""Prompts the user at the terminal for approvals of a watched session: each one once, until it is decided here or elsewhere.

Nothing is asked while history is still being read, because an approval that was open then may be decided by now.
"""

from typing import NamedTuple, Protocol

from switchtower.cli import console
from switchtower.cli.terminal import user_input
from switchtower.cli.terminal.user_input import QuestionQueue
from switchtower.client import errors, open_requests
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.presentation import approval_text
from switchtower.protocols.push import messages

DENIAL_COMMENT = "The person at the terminal said no"
"""The comment of a denial after which the run continues. push ends a run that is denied without a comment."""


class TerminalDecision(NamedTuple):
    decision: messages.ApprovalDecision
    comment: str | None = None
    scope: messages.ApprovalScope = "once"
    stop: bool | None = None


DENY_AND_STOP = TerminalDecision("deny", stop=True)


def parse_approval_answer(answer: str, *, may_be_always: bool) -> TerminalDecision | None:
    """Parses an answer; None when it is not valid. Empty input is the safest choice: the action is denied and the run ends."""
    word, _, rest = answer.strip().partition(" ")
    match word.lower():
        case "y" | "yes" if not rest:
            return TerminalDecision("approve")
        case "a" | "always" if may_be_always and not rest:
            return TerminalDecision("approve", scope="session")
        case "n" | "no":
            return TerminalDecision("deny", comment=rest.strip() or DENIAL_COMMENT)
        case "" | "d" | "deny" if not rest:
            return DENY_AND_STOP
    return None


class ApprovalPrompt:
    """`is_shown` means that the view already shows approvals to the same user. `is_own_run` means that this command started the
    run, so the end of input is a denial; a command that only watches leaves the decision to others."""

    def __init__(
        self,
        asker: QuestionQueue,
        client: DaemonClient,
        session_id: str,
        run_id: str | None = None,
        *,
        is_shown: bool = True,
        is_own_run: bool = True,
    ) -> None:
        """`run_id` is the run of approvals that are added without one."""
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._is_shown = is_shown
        self._is_own_run = is_own_run

    def ask(self, approval: messages.ApprovalRequired, run_id: str | None = None) -> None:
        whose = run_id or self._run_id
        assert whose is not None, "an approval is a run's"
        question = _ApprovalQuestion(
            self._client, self._session_id, whose, approval, is_shown=self._is_shown, is_own_run=self._is_own_run
        )
        self._asker.enqueue(question)

    def on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.ApprovalReceived(approval_id):
                self._asker.withdraw(approval_id)
            case messages.Warn("APPROVAL_WITHDRAWN" | "APPROVAL_EXPIRED", detail=str(approval_id)):
                self._asker.withdraw(approval_id)
            case messages.RunComplete():
                self._asker.withdraw_all()


class _ApprovalQuestion:
    def __init__(
        self,
        client: DaemonClient,
        session_id: str,
        run_id: str,
        approval: messages.ApprovalRequired,
        *,
        is_shown: bool,
        is_own_run: bool,
    ) -> None:
        self.id = approval.approvalId
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._approval = approval
        self._is_shown = is_shown
        self._choice_at_end = DENY_AND_STOP if is_own_run else None
        self._decision = self._choice_at_end

    async def ask(self, *, again: bool) -> None:
        if again or not self._is_shown:
            for text, colour in approval_text.format_approval(self._approval):
                console.print_line(text, colour)
        self._decision = await _ask_for_decision(
            approval_text.format_always_rule(self._approval), choice_at_end=self._choice_at_end
        )

    async def send_answer(self) -> None:
        if self._decision is None:
            how = f"`tower approve {self._session_id}` or `tower deny {self._session_id}`"
            console.print_line(f"not decided here; hint: {how}", "yellow")
            return
        decision, comment, scope, stop = self._decision
        try:
            await self._client.decide_approval(
                self._session_id, self._run_id, self.id, decision, comment=comment, scope=scope, stop=stop
            )
        except errors.ClientError as problem:
            console.print_error(str(problem))
        else:
            if scope == "session":
                console.print_line(f"  from now on in this session: {approval_text.format_always_rule(self._approval)}", "yellow")


async def _ask_for_decision(rule: str | None, *, choice_at_end: TerminalDecision | None) -> TerminalDecision | None:
    """Asks until the answer is valid. `choice_at_end` is the decision when the terminal's input ends."""
    always = f" · a always for this session: {rule}" if rule is not None else ""
    console.print_line(f"  y yes, once{always} · n no, but go on (say why: n WHY) · d or Enter deny and stop", "dim")
    user_input.discard_typeahead()
    while True:
        line = await user_input.read_line("  approve? [y/a/n/D] " if rule is not None else "  approve? [y/n/D] ")
        if line is None:
            return choice_at_end
        if (decision := parse_approval_answer(line, may_be_always=rule is not None)) is not None:
            return decision


class ApprovalPresenter(Protocol):
    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None: ...

    def on_event(self, event: PushEvent) -> None: ...


class ApprovalHint:
    """Prints the commands that decide an approval, when no user can be prompted."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None:
        how = f"`tower approve {self._session_id}` or `tower deny {self._session_id}`"
        console.print_line(f"waiting for a decision; hint: {how}", "yellow")

    def on_event(self, event: PushEvent) -> None:
        pass  # the view shows how it ended


class ApprovalWatch:
    def __init__(self, session: SessionSubscription, presenter: ApprovalPresenter) -> None:
        self._session = session
        self._presenter = presenter
        self._open = open_requests.OpenRequests()
        self._asked: set[str] = set()

    def on_event(self, event: PushEvent) -> None:
        self._open.on_event(event)
        self._presenter.on_event(event)
        attached = self._session.attached
        if attached is not None and self._session.last_seen_seq >= attached.replay.toSeq:
            self._ask_open()

    def add_earlier(self, approval: open_requests.WaitingApproval) -> None:
        """Adds an approval from before the watched events."""
        self._open.approvals[approval.approval.approvalId] = approval
        self._ask_open()

    def _ask_open(self) -> None:
        for approval_id, (_, run_id, approval) in self._open.approvals.items():
            if approval_id not in self._asked:
                self._asked.add(approval_id)
                self._presenter.ask(approval, run_id)
