"""The open dialogs of a session that is watched: each is asked once, and taken off when it is over.

Nothing is asked while history is still being read: what was open then may be over by now.
"""

from typing import Protocol

from switchtower.cli import console, dialog_lines, dialog_prompt
from switchtower.cli.asker import QuestionQueue
from switchtower.cli.questions import format_detail_value
from switchtower.client import dialogs
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.session import SessionSubscription


class DialogPresenter(Protocol):
    def ask(self, dialog: dialogs.PushDialog) -> None: ...

    def withdraw(self, dialog_id: str) -> None: ...


class TerminalDialogPresenter:
    """`is_shown`: the view shows dialogs to the same person."""

    def __init__(self, asker: QuestionQueue, client: DaemonClient, session_id: str, *, is_shown: bool = True) -> None:
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._is_shown = is_shown

    def ask(self, dialog: dialogs.PushDialog) -> None:
        self._asker.enqueue(dialog_prompt.DialogQuestion(self._client, self._session_id, dialog, is_shown=self._is_shown))

    def withdraw(self, dialog_id: str) -> None:
        self._asker.withdraw(dialog_id)


class DialogHint:
    """Where nobody can be asked: says how it is answered from elsewhere."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, dialog: dialogs.PushDialog) -> None:
        for line in dialog_lines.format_interview(dialog):
            console.print_line(line, "yellow")
        how = dialog_lines.format_answer_command(dialog, self._session_id)
        left = dialog_prompt.format_time_left(dialog)
        console.print_line(f"waiting for an answer to “{format_detail_value(dialog.title)}”, {left}; hint: {how}", "yellow")

    def withdraw(self, dialog_id: str) -> None:
        pass  # the view tells how it ended


class DialogWatch:
    def __init__(self, session: SessionSubscription, presenter: DialogPresenter) -> None:
        self._session = session
        self._presenter = presenter
        self._open = dialogs.DialogTracker()
        self._asked: set[str] = set()

    def on_event(self, event: PushEvent) -> None:
        self._open.on_event(event)
        for dialog_id in self._asked - self._open.dialogs.keys():
            self._asked.discard(dialog_id)
            self._presenter.withdraw(dialog_id)
        attached = self._session.attached
        if attached is None or self._session.last_seen_seq < attached.replay.toSeq:
            return
        for _, dialog in self._open.dialogs.values():
            self._ask_once(dialog)

    def add_earlier(self, seq: int, dialog: dialogs.PushDialog) -> None:
        """One from before what is watched."""
        self._open.dialogs[dialog.dialog_id] = (seq, dialog)
        self._ask_once(dialog)

    def _ask_once(self, dialog: dialogs.PushDialog) -> None:
        if dialog.dialog_id not in self._asked:
            self._asked.add(dialog.dialog_id)
            self._presenter.ask(dialog)
