"""Dialogs in the words of push: read from its events, found among them, and answered."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import SESSION, ScriptedConnection, ScriptedPushServer

from switchtower import config
from switchtower.client import errors, frames
from switchtower.client.client import DaemonClient
from switchtower.client.frames import DialogEnd, InterviewItem, PushDialog, PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import messages

TOLD: dict[str, Any] = {
    "dialogId": "dlg_1",
    "method": "interview",
    "message": "again",
    "options": [],
    "placeholder": None,
    "prefill": None,
    "questions": [{"id": "goal", "type": "text", "question": "What for?", "required": True, "newer": 1}],
    "expiresAt": 99,
    "newer": {},
}


def make_warning(detail: str, code: str = "DIALOG_OPENED") -> messages.Warn:
    return messages.Warn(code, "A brief", detail)


def make_status(phase: str, detail: str = "dlg_1") -> messages.Status:
    return messages.Status("orchestrator", phase, detail)


def test_a_dialog_is_read_with_its_title_and_what_a_newer_daemon_adds_is_ignored() -> None:
    expected = PushDialog(
        "dlg_1",
        "interview",
        title="A brief",
        message="again",
        questions=(InterviewItem("goal", "text", "What for?", required=True),),
        expires_at=99,
    )

    assert frames.decode_dialog_opened(make_warning(json.dumps(TOLD))) == expected


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(st.text() | st.dictionaries(st.sampled_from([*TOLD]), json_values).map(json.dumps))
def test_whatever_the_detail_is_it_is_a_dialog_or_none(detail: str) -> None:
    dialog = frames.decode_dialog_opened(make_warning(detail))

    assert dialog is None or dialog.dialog_id.startswith("dlg_")


@pytest.mark.parametrize("changed", [{"dialogId": "appr_1"}, {"options": [1]}, {"questions": ["x"]}, {"expiresAt": "soon"}])
def test_a_dialog_of_wrong_types_is_none(changed: dict[str, Any]) -> None:
    assert frames.decode_dialog_opened(make_warning(json.dumps({**TOLD, **changed}))) is None
    assert frames.decode_dialog_opened(make_warning(json.dumps(TOLD), code="OTHER")) is None


def test_the_end_of_a_dialog_is_told_with_its_reason() -> None:
    assert frames.decode_dialog_end(make_status("Dialog answered")) == DialogEnd("dlg_1", "answered")
    assert frames.decode_dialog_end(make_status("Dialog closed: expired")) == DialogEnd("dlg_1", "expired")
    assert frames.decode_dialog_end(make_status("Thinking")) is None


def test_what_is_open_is_what_was_opened_and_is_not_over() -> None:
    def saw(*payloads: Any) -> list[str]:
        open_now = frames.DialogTracker()
        for seq, payload in enumerate(payloads, 1):
            open_now.on_event(PushEvent(SESSION, "run_1", seq, 1, "x", payload, b""))
        return [f"{dialog_id}@{seq}" for dialog_id, (seq, _) in open_now.dialogs.items()]

    one, two = (make_warning(json.dumps({**TOLD, "dialogId": dialog_id})) for dialog_id in ("dlg_1", "dlg_2"))
    over = messages.RunComplete("run_1", "success", "", messages.Acceptance(0, 0, []), messages.Headless(0))

    assert saw(one, two) == ["dlg_1@1", "dlg_2@2"]
    assert saw(one, make_status("Dialog closed: dismissed"), two) == ["dlg_2@3"]
    assert saw(make_status("Dialog answered")) == []
    assert saw(one, two, over) == []


@pytest.mark.parametrize(
    ("given_", "sent"),
    [
        ({"value": ""}, {"value": ""}),
        ({"confirmed": False}, {"confirmed": False}),
        ({"responses": {"plan": False, "where": []}}, {"responses": {"plan": False, "where": []}}),
        ({"dismissed": True}, {"dismissed": True}),
    ],
)
async def test_an_answer_is_sent_as_it_is(
    settings: config.Settings, daemon: ScriptedPushServer, given_: dict[str, Any], sent: dict[str, Any]
) -> None:
    asked: list[dict[str, Any]] = []

    async def script(wire: ScriptedConnection) -> None:
        await wire.send_greeting("dialogs")
        request = await wire.request()
        asked.append(request)
        await wire.answer(request, {"accepted": True})

    await daemon.serve(script)
    async with asyncio.timeout(60), await DaemonClient.connect(settings, start=False) as client:
        await client.answer_dialog(SESSION, "dlg_1", **given_)

    assert asked[0]["type"] == "answer_dialog"
    assert asked[0]["payload"] == {"sessionId": SESSION, "dialogId": "dlg_1", **sent}


async def test_a_daemon_without_dialogs_is_not_asked(settings: config.Settings, daemon: ScriptedPushServer) -> None:
    async def script(wire: ScriptedConnection) -> None:
        await wire.send_greeting()
        await wire.wait_closed()

    await daemon.serve(script)
    async with asyncio.timeout(60), await DaemonClient.connect(settings, start=False) as client:
        assert await client.list_open_dialogs(SESSION) == []
        with pytest.raises(errors.DaemonTooOld, match="dialogs"):
            await client.answer_dialog(SESSION, "dlg_1", value="x")


async def test_open_dialogs_are_looked_for_back_to_another_run_and_no_further(
    settings: config.Settings, daemon: ScriptedPushServer, event: Callable[..., dict[str, Any]]
) -> None:
    cursors: list[int] = []

    async def head(wire: ScriptedConnection) -> None:
        await wire.answer_attach(from_seq=1, to_seq=1_000)

    async def replay(wire: ScriptedConnection) -> None:
        cursors.append((await wire.answer_attach(from_seq=501, to_seq=1_000))["lastSeenSeq"])
        opened = {"code": "DIALOG_OPENED", "message": "A brief", "detail": json.dumps(TOLD)}
        before = event(501, runId="run_before")
        await wire.send(before, event(502, "warning", opened), *(event(seq) for seq in range(503, 1_000)))
        await wire.send(event(1_000, "something_newer"))
        await wire.wait_closed()

    await daemon.serve(head, replay)
    async with asyncio.timeout(60):
        found = await SessionSubscription(settings, SESSION).find_open_dialogs()

    assert [(seq, dialog.title) for seq, dialog in found.values()] == [(502, "A brief")]
    assert cursors == [500]
