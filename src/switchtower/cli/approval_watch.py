"""The open approvals of a session that is watched: each is asked about once, and taken off when it is over.

Nothing is asked while history is still being read: what was open then may be decided by now.
"""

from typing import Protocol

from switchtower.cli import console, waiting
from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription
from switchtower.protocols.push import messages


class ApprovalPresenter(Protocol):
    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None: ...

    def on_event(self, event: PushEvent) -> None: ...


class ApprovalHint:
    """Where nobody can be asked: says who can."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None:
        how = f"`tower approve {self._session_id}` or `tower deny {self._session_id}`"
        console.print_line(f"waiting for a decision; hint: {how}", "yellow")

    def on_event(self, event: PushEvent) -> None:
        pass  # the view tells how it ended


class ApprovalWatch:
    def __init__(self, session: SessionSubscription, presenter: ApprovalPresenter) -> None:
        self._session = session
        self._presenter = presenter
        self._open = waiting.OpenRequests()
        self._asked: set[str] = set()

    def on_event(self, event: PushEvent) -> None:
        self._open.on_event(event)
        self._presenter.on_event(event)
        attached = self._session.attached
        if attached is not None and self._session.last_seen_seq >= attached.replay.toSeq:
            self._ask_open()

    def add_earlier(self, approval: waiting.WaitingApproval) -> None:
        """One from before what is watched."""
        self._open.approvals[approval.approval.approvalId] = approval
        self._ask_open()

    def _ask_open(self) -> None:
        for approval_id, (_, run_id, approval) in self._open.approvals.items():
            if approval_id not in self._asked:
                self._asked.add(approval_id)
                self._presenter.ask(approval, run_id)
