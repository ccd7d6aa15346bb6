"""Dialogs as a scripted daemon tells of them."""

import json
import time
from typing import Any

from tests.cli.scripted import RUN, SESSION, ScriptedDaemon

DIALOG = "dlg_1"
QUESTIONS: list[dict[str, Any]] = [
    {"id": "goal", "type": "text", "question": "What for?", "required": True},
    {"id": "size", "type": "single", "question": "How large?", "options": ["small", "large"]},
    {"id": "where", "type": "multi", "question": "Where?", "options": ["src", "tests", "docs"]},
    {"id": "plan", "type": "boolean", "question": "A plan first?", "required": True},
]


def make_dialog_payload(method: str, title: str = "What now?", *, dialog_id: str = DIALOG, **fields: Any) -> dict[str, Any]:
    """The payload of its warning."""
    told = {
        "dialogId": dialog_id,
        "method": method,
        "message": "",
        "options": [],
        "placeholder": None,
        "prefill": None,
        "questions": [],
        "expiresAt": int(time.time() * 1000) + 60_000,
        **fields,
    }
    return {"code": "DIALOG_OPENED", "message": title, "detail": json.dumps(told)}


def make_dialog_answered(dialog_id: str = DIALOG) -> dict[str, Any]:
    return {"source": "orchestrator", "phase": "Dialog answered", "detail": dialog_id}


def make_dialog_closed(reason: str, dialog_id: str = DIALOG) -> dict[str, Any]:
    return {"source": "orchestrator", "phase": f"Dialog closed: {reason}", "detail": dialog_id}


def make_asking(scripted: ScriptedDaemon) -> None:
    """Its run ends when a dialog was answered or dismissed."""

    def over(payload: dict[str, Any]) -> dict[str, Any]:
        dialog_id = payload["dialogId"]
        scripted.add_event(
            "status", make_dialog_closed("dismissed", dialog_id) if payload.get("dismissed") else make_dialog_answered(dialog_id)
        )
        scripted.add_completion()
        return {"accepted": True}

    scripted.state = "running"
    scripted.answers |= {
        "start_session": {"sessionId": SESSION, "state": "idle", "attachToken": "att_1"},
        "send_user_message": lambda _: {"runId": RUN, "accepted": True},
        "answer_dialog": over,
    }
    scripted.capabilities.remove("session_info")


def get_given_answer(scripted: ScriptedDaemon) -> dict[str, Any]:
    """The one answer that came."""
    [payload] = scripted.list_requests("answer_dialog")
    assert payload.pop("sessionId") == SESSION
    assert payload.pop("dialogId") == DIALOG
    return payload
