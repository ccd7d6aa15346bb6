"""The open approvals of a session that is watched: each is asked about once, and taken off when it is over.

Nothing is asked while history is still being read: what was open then may be decided by now.
"""

from typing import Protocol

from switchtower.cli import console, waiting
from switchtower.client.frames import Event
from switchtower.client.session import Session
from switchtower.protocols.push import messages


class Asks(Protocol):
    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None: ...

    def saw(self, event: Event) -> None: ...


class ByOthers:
    """Where nobody can be asked: says who can."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, approval: messages.ApprovalRequired, run_id: str) -> None:
        how = f"`tower approve {self._session_id}` or `tower deny {self._session_id}`"
        console.say(f"waiting for a decision; hint: {how}", "yellow")

    def saw(self, event: Event) -> None:
        pass  # the view tells how it ended


class ApprovalWatch:
    def __init__(self, session: Session, asks: Asks) -> None:
        self._session = session
        self._asks = asks
        self._open = waiting.Open()
        self._asked: set[str] = set()

    def saw(self, event: Event) -> None:
        self._open.saw(event)
        self._asks.saw(event)
        attached = self._session.attached
        if attached is not None and self._session.last_seen_seq >= attached.replay.toSeq:
            self._ask_all()

    def found(self, asked: waiting.Asked) -> None:
        """One from before what is watched."""
        self._open.approvals[asked.approval.approvalId] = asked
        self._ask_all()

    def _ask_all(self) -> None:
        for approval_id, (_, run_id, approval) in self._open.approvals.items():
            if approval_id not in self._asked:
                self._asked.add(approval_id)
                self._asks.ask(approval, run_id)
