"""What a session waits for: told by `tower sessions` and `tower show`, and asked by those who watch it at a terminal."""

import json
from typing import Any

import pytest
from tests.cli.events import Told
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, question
from tests.cli.terminal import Terminal

from switchtower.cli import waiting
from switchtower.cli.waiting import Waiting

DIALOG = {
    "code": "DIALOG_OPENED",
    "message": "Which branch?",
    "detail": json.dumps(
        {"dialogId": "dlg_1", "method": "select", "message": "One of two", "options": ["a", "b"], "expiresAt": 5}
    ),
}


@pytest.fixture
def asking(scripted: ScriptedDaemon) -> ScriptedDaemon:
    """A session whose run asks for a command, and ends when that is decided."""

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted.happened("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted.completed()
        return {"accepted": True}

    scripted.capabilities[:] = [name for name in scripted.capabilities if name not in ("session_info", "terminals")]
    scripted.answers["submit_approval"] = decided
    scripted.state = "awaiting_approval"
    scripted.status("Run started", "test it")
    scripted.happened("approval_required", question(command="make test"))
    return scripted


def without_inbox(daemon: ScriptedDaemon) -> None:
    if "inbox" in daemon.capabilities:
        daemon.capabilities.remove("inbox")


# Told


def test_sessions_says_what_is_asked_below_who_asks(tower: Any, asking: ScriptedDaemon) -> None:
    without_inbox(asking)

    first, second = tower("sessions").stdout.decode().splitlines()

    assert first.startswith(f"{SESSION}  awaiting_approval  ")
    assert second == "  ? approval Run a command: make test"
    assert asking.asked("resume_session") == [], "a look leaves no trace"


def test_sessions_asks_a_newer_daemon_for_all_approvals_at_once(tower: Any, asking: ScriptedDaemon) -> None:
    asking.capabilities.append("inbox")
    asking.pending = question(command="make test")

    [session] = tower("sessions", "--json").json

    assert session["waiting"] == [
        {"kind": "approval", "id": "appr_1", "title": "Run a command", "summary": "make test", "expiresAt": 1}
    ]
    assert asking.asked("attach_session") == []


@pytest.mark.parametrize("has_inbox", [True, False])
def test_sessions_says_which_dialog_is_open(tower: Any, scripted: ScriptedDaemon, has_inbox: bool) -> None:
    without_inbox(scripted)
    if has_inbox:
        scripted.capabilities.append("inbox")
    scripted.state = "running"
    scripted.status("Run started", "go")
    scripted.happened("warning", DIALOG)

    assert tower("sessions").stdout.decode().splitlines()[1:] == ["  ? dialog Which branch?: One of two"]
    [session] = tower("sessions", "--json").json
    assert [(one["kind"], one["id"], one["title"]) for one in session["waiting"]] == [("dialog", "dlg_1", "Which branch?")]


def test_a_session_that_waits_for_nothing_is_listed_as_before(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.happened("approval_required", question(command="make test"))  # of a run that is over

    assert tower("sessions").stdout.count(b"\n") == 1
    [session] = tower("sessions", "--json").json
    assert "waiting" not in session


def test_show_says_what_is_asked_and_how_long_it_waits(tower: Any) -> None:
    process = tower.start("run", "say: hi\nwrite a.txt: x", "--provider", "demo", "--json")
    process.communicate(timeout=60)  # without a terminal it is denied, and the session is there
    session_id = tower("sessions", "--json").json[0]["sessionId"]
    sent = tower("send", session_id, "write b.txt: x")
    assert sent.code == 0

    watching = tower.start("attach", session_id)
    for line in watching.stderr:
        if b"waiting for a decision" in line:
            break
    shown, told = tower("show", session_id).stdout.decode(), tower("show", session_id, "--json").json
    listed = tower("sessions").stdout.decode()
    tower("approve", session_id)
    watching.terminate()
    watching.communicate(timeout=60)

    assert "waits for:" in shown
    assert "approval Write a file: b.txt (1 bytes) (expires in " in shown
    assert [one["title"] for one in told["waiting"]] == ["Write a file"]
    assert "  ? approval Write a file: b.txt (1 bytes)" in listed
    assert "waiting" not in tower("show", session_id, "--json").json


# Found


def test_what_is_open_is_what_nobody_has_ended() -> None:
    told, found = Told(), waiting.Open()
    for event in (
        told.asked("appr_1"),
        told.asked("appr_2"),
        told.asked("appr_3"),
        told.decided("appr_1"),
        told.warning("APPROVAL_EXPIRED", "late", "appr_3"),
        told.event("warning", DIALOG),
    ):
        found.saw(event)

    assert found.listed() == [
        Waiting("approval", "appr_2", "Run a command", "make test", 1),
        Waiting("dialog", "dlg_1", "Which branch?", "One of two", 5),
    ]

    found.saw(told.complete())
    assert found.listed() == []


def test_a_summary_in_place_of_lost_events_says_what_is_open() -> None:
    found = waiting.Open()
    pending = {"approvalId": "appr_9", "kind": "exec", "title": "T", "summary": "s", "details": {}, "options": [], "expiresAt": 1}
    snapshot = {
        "state": "awaiting_approval",
        "activeRunId": "run_1",
        "lastAssistantText": "",
        "pendingApproval": pending,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    found.saw(Told().event("session_snapshot", snapshot))

    assert [one.id for one in found.listed()] == ["appr_9"]


def test_what_is_asked_is_one_line_whatever_it_is_called() -> None:
    assert waiting.spelled(Waiting("dialog", "d", "two\nlines", "and\tmore")) == "dialog two lines: and more"
    assert waiting.spelled(Waiting("approval", "a", "title")) == "approval title"


def test_a_question_from_long_ago_in_a_run_is_found(tower: Any, asking: ScriptedDaemon) -> None:
    without_inbox(asking)
    for number in range(3 * waiting.LATEST):
        asking.happened("assistant_token", {"text": f"{number} "})

    assert "? approval Run a command: make test" in tower("sessions").stdout.decode()


# Asked


def submitted(daemon: ScriptedDaemon) -> dict[str, Any]:
    [payload] = daemon.asked("submit_approval")
    assert (payload.pop("sessionId"), payload.pop("runId"), payload.pop("approvalId")) == (SESSION, RUN, "appr_1")
    return payload


def test_attach_at_a_terminal_asks_what_is_open(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "attach", SESSION, NO_COLOR="1")
    terminal.until("approve? [y/n/D] ")
    assert terminal.shown.count("? Run a command: make test") == 1

    terminal.type("y")
    terminal.until("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert submitted(asking) == {"decision": "approve"}


def test_who_comes_back_after_the_question_is_asked_too(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "attach", SESSION, "--from", "2", NO_COLOR="1")
    terminal.until("approve? [y/n/D] ")
    assert "? Run a command: make test" in terminal.shown

    terminal.type("n not now")
    terminal.until("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert submitted(asking) == {"decision": "deny", "comment": "not now"}


def test_nothing_is_asked_about_what_was_decided_before(tower: Any, asking: ScriptedDaemon) -> None:
    for _ in range(5_000):  # so that the decision is not read together with the question
        asking.happened("thinking_token", {"text": "hm"})
    asking.happened("approval_received", {"approvalId": "appr_1", "decision": "approve", "by": "web"})
    asking.completed()

    terminal = Terminal(tower, "attach", SESSION, NO_COLOR="1")
    terminal.until("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert asking.asked("submit_approval") == []


def test_a_question_that_somebody_else_answers_is_taken_off(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "attach", SESSION, NO_COLOR="1")
    terminal.until("approve? [y/n/D] ")

    asking.happens_now("approval_received", {"approvalId": "appr_1", "decision": "approve", "by": "web"})
    asking.completes_now()
    terminal.until("= success")
    terminal.type("y")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approved by web" in terminal.shown
    assert asking.asked("submit_approval") == []


@pytest.mark.parametrize("flag", ["--no-prompt", "--read-only"])
def test_who_wants_to_watch_only_is_asked_nothing(tower: Any, asking: ScriptedDaemon, flag: str) -> None:
    terminal = Terminal(tower, "attach", SESSION, flag, NO_COLOR="1")
    terminal.until("waiting for a decision")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert f"`tower approve {SESSION}`" in terminal.shown


def test_the_end_of_the_input_decides_nothing_for_who_only_watches(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "attach", SESSION, NO_COLOR="1")
    terminal.until("approve? [y/n/D] ")

    terminal.press(b"\x04")
    terminal.until("not decided here")
    terminal.interrupt()

    assert terminal.end() == 0
    assert asking.asked("submit_approval") == []


def test_a_transcript_into_a_file_leaves_the_question_at_the_terminal(tower: Any, asking: ScriptedDaemon) -> None:
    with (tower.folder / "transcript").open("wb") as transcript:
        terminal = Terminal(tower, "attach", SESSION, stdout=transcript, NO_COLOR="1")
        terminal.until("approve? [y/n/D] ")
        assert "? Run a command: make test" in terminal.shown
        terminal.type("y")
        terminal.until("approve? [y/n/D] y")
        asking.unwatched.clear()
        terminal.interrupt()
        assert terminal.end() == 0

    assert submitted(asking) == {"decision": "approve"}


@pytest.fixture
def sending(scripted: ScriptedDaemon) -> ScriptedDaemon:
    """A session that asks as soon as something is sent to it."""

    def sent(_: dict[str, Any]) -> dict[str, Any]:
        scripted.status("Run started", "test it")
        scripted.happened("approval_required", question(command="make test"))
        return {"runId": RUN, "accepted": True}

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted.happened("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted.completed()
        return {"accepted": True}

    scripted.answers |= {"send_user_message": sent, "submit_approval": decided}
    return scripted


def test_send_and_wait_asks_at_the_terminal(tower: Any, sending: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "send", SESSION, "go", "--wait", NO_COLOR="1")
    terminal.until("approve? [y/n/D] ")
    terminal.type("y")

    assert terminal.end() == 0
    assert submitted(sending) == {"decision": "approve"}


def test_send_and_wait_asks_nothing_where_it_is_told_not_to(tower: Any, sending: ScriptedDaemon) -> None:
    terminal = Terminal(tower, "send", SESSION, "go", "--wait", "--no-prompt", NO_COLOR="1")
    terminal.until("waiting for a decision")
    sending.completes_now()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert sending.asked("submit_approval") == []


def test_no_prompt_without_waiting_is_wrong_usage(tower: Any) -> None:
    ended = tower("send", "last", "hi", "--no-prompt")

    assert ended.code == 64
    assert "`--wait`" in ended.stderr


def test_the_inbox_exits_with_0_unless_a_script_asks_for_a_code(tower: Any, asking: ScriptedDaemon) -> None:
    asking.capabilities.append("inbox")
    assert tower("inbox", "--exit-code").code == 0

    asking.pending = question(command="make test")

    assert tower("inbox").code == 0
    assert tower("inbox", "--exit-code").code == 1
    assert tower("inbox", "--exit-code", "--json").json[0]["approval"]["approvalId"] == "appr_1"
