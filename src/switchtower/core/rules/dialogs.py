"""The rules of dialogs: a dialog that an extension opens is open until the first answer, its expiry, or the end of its run.
Pure.
"""

from typing import Any, assert_never

from msgspec.structs import replace

from switchtower.core import commands, errors, events, ids
from switchtower.core.rules import Decision
from switchtower.core.session import Session

ANSWER_FIELDS = {"select": "value", "confirm": "confirmed", "input": "value", "editor": "value", "interview": "responses"}
"""The field of the response that has the answer, by method."""


def decide_dialog(
    session: Session,
    command: commands.OpenDialog | commands.AnswerDialog | commands.ExpireDialog,
    *,
    now_ms: int,
    mint: ids.Mint,
) -> Decision:
    run = session.run
    match command:
        case commands.OpenDialog():
            if run is None or run.id != command.run_id:
                raise errors.NoActiveRun(command.run_id)
            dialog = replace(command.dialog, id=mint("dlg"))
            return Decision([events.DialogOpened(dialog=dialog)], run.id, {"dialog_id": dialog.id})
        case commands.AnswerDialog():
            dialog_ = run.dialogs.get(command.dialog_id) if run else None
            if dialog_ is None or run is None or now_ms >= dialog_.expires_at_ms:
                raise errors.DialogNotFound(command.dialog_id)
            if command.response is None:
                return Decision([events.DialogClosed(dialog_id=dialog_.id, reason="dismissed")], run.id)
            answered = events.DialogAnswered(
                dialog_id=dialog_.id, response=_check_answer(dialog_, command.response), by=command.actor
            )
            return Decision([answered], run.id)
        case commands.ExpireDialog():
            if run is None or command.dialog_id not in run.dialogs:
                return Decision([])  # answered in the meantime
            return Decision([events.DialogClosed(dialog_id=command.dialog_id, reason="expired")], run.id)
        case _:
            assert_never(command)


def _check_answer(dialog: events.Dialog, response: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of a response that the dialog asked for. Refuses a response that lacks it or has an impossible value."""
    name = ANSWER_FIELDS[dialog.method]
    value = response.get(name)
    wanted: type = bool if name == "confirmed" else dict if name == "responses" else str
    if not isinstance(value, wanted):
        raise errors.InvalidCommand(f"the answer to this dialog needs `{name}`", hint=f"it is a `{dialog.method}`")
    if dialog.method == "select" and value not in dialog.options:
        raise errors.InvalidCommand("the answer is none of the options", hint=f"use one of {', '.join(dialog.options)}")
    return {name: value}
