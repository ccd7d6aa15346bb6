"""Decodes dialogs from push events: a `DIALOG_OPENED` warning carries the dialog as JSON in its detail, and a status ends it.

This module does no I/O. An event in any other form is not a dialog and remains an ordinary warning or status.
"""

import msgspec
from msgspec import Struct

from switchtower.client.frames import EventPayload, PushEvent
from switchtower.protocols.push import messages

ANSWERED = "answered"
_CLOSED = "Dialog closed: "


class InterviewItem(Struct, frozen=True):
    """One question of an interview. A newer daemon may send types that this client does not know."""

    id: str
    type: str
    question: str
    options: tuple[str, ...] = ()
    required: bool = False


class PushDialog(Struct, frozen=True, rename="camel"):
    """A question to the user. `method` is `select`, `confirm`, `input`, `editor` or `interview`."""

    dialog_id: messages.DialogId
    method: str
    title: str = ""
    message: str = ""
    options: tuple[str, ...] = ()
    placeholder: str | None = None
    prefill: str | None = None
    questions: tuple[InterviewItem, ...] = ()
    expires_at: messages.Cursor = 0
    """The deadline in milliseconds on the daemon's clock."""


class DialogEnd(Struct, frozen=True):
    """The end of a dialog: `how` is `answered`, or the reason why it was closed without an answer."""

    dialog_id: str
    how: str


_decoder = msgspec.json.Decoder(PushDialog)


def decode_dialog_opened(payload: EventPayload | None) -> PushDialog | None:
    if not isinstance(payload, messages.Warn) or payload.code != "DIALOG_OPENED" or not payload.detail:
        return None
    try:
        return msgspec.structs.replace(_decoder.decode(payload.detail), title=payload.message)
    except (msgspec.MsgspecError, RecursionError):
        return None


def decode_dialog_end(payload: EventPayload | None) -> DialogEnd | None:
    if not isinstance(payload, messages.Status) or not payload.detail:
        return None
    if payload.phase == "Dialog answered":
        return DialogEnd(payload.detail, ANSWERED)
    if payload.phase.startswith(_CLOSED):
        return DialogEnd(payload.detail, payload.phase.removeprefix(_CLOSED))
    return None


class DialogTracker:
    """Tracks the dialogs that are open after the events so far, each with the seq at which it was opened."""

    def __init__(self) -> None:
        self.dialogs: dict[str, tuple[int, PushDialog]] = {}

    def on_event(self, event: PushEvent) -> None:
        if (dialog := decode_dialog_opened(event.payload)) is not None:
            self.dialogs[dialog.dialog_id] = (event.seq, dialog)
        elif (ending := decode_dialog_end(event.payload)) is not None:
            self.dialogs.pop(ending.dialog_id, None)
        elif isinstance(event.payload, messages.RunComplete):
            self.dialogs.clear()
