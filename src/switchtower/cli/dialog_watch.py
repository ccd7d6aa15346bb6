"""The open dialogs of a session that is watched: each is asked once, and taken off when it is over.

Nothing is asked while history is still being read: what was open then may be over by now.
"""

from typing import Protocol

from switchtower.cli import console, dialog_lines, dialog_prompt
from switchtower.cli.asker import Asker
from switchtower.cli.questions import spelled
from switchtower.client import dialogs
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.client.session import Session


class Asks(Protocol):
    def ask(self, dialog: dialogs.Dialog) -> None: ...

    def take_off(self, dialog_id: str) -> None: ...


class AtTerminal:
    """`is_shown`: the view shows dialogs to the same person."""

    def __init__(self, asker: Asker, client: Client, session_id: str, *, is_shown: bool = True) -> None:
        self._asker = asker
        self._client = client
        self._session_id = session_id
        self._is_shown = is_shown

    def ask(self, dialog: dialogs.Dialog) -> None:
        self._asker.ask(dialog_prompt.DialogQuestion(self._client, self._session_id, dialog, is_shown=self._is_shown))

    def take_off(self, dialog_id: str) -> None:
        self._asker.take_off(dialog_id)


class ByOthers:
    """Where nobody can be asked: says how it is answered from elsewhere."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id

    def ask(self, dialog: dialogs.Dialog) -> None:
        for line in dialog_lines.form(dialog):
            console.say(line, "yellow")
        how = dialog_lines.how_to_answer(dialog, self._session_id)
        left = dialog_prompt.time_left(dialog)
        console.say(f"waiting for an answer to “{spelled(dialog.title)}”, {left}; hint: {how}", "yellow")

    def take_off(self, dialog_id: str) -> None:
        pass  # the view tells how it ended


class DialogWatch:
    def __init__(self, session: Session, asks: Asks) -> None:
        self._session = session
        self._asks = asks
        self._open = dialogs.Open()
        self._asked: set[str] = set()

    def saw(self, event: Event) -> None:
        self._open.saw(event)
        for dialog_id in self._asked - self._open.dialogs.keys():
            self._asked.discard(dialog_id)
            self._asks.take_off(dialog_id)
        attached = self._session.attached
        if attached is None or self._session.last_seen_seq < attached.replay.toSeq:
            return
        for _, dialog in self._open.dialogs.values():
            self._ask(dialog)

    def found(self, seq: int, dialog: dialogs.Dialog) -> None:
        """One from before what is watched."""
        self._open.dialogs[dialog.dialog_id] = (seq, dialog)
        self._ask(dialog)

    def _ask(self, dialog: dialogs.Dialog) -> None:
        if dialog.dialog_id not in self._asked:
            self._asked.add(dialog.dialog_id)
            self._asks.ask(dialog)
