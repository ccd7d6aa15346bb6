"""What a session waits for: told by `tower sessions` and `tower show`, and asked by those who watch it at a terminal."""

import json
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.events import PushEventFactory
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, make_approval_request
from tests.cli.terminal import TerminalDriver

from switchtower.client import open_requests
from switchtower.client.open_requests import OpenRequest

DIALOG = {
    "code": "DIALOG_OPENED",
    "message": "Which branch?",
    "detail": json.dumps(
        {"dialogId": "dlg_1", "method": "select", "message": "One of two", "options": ["a", "b"], "expiresAt": 5}
    ),
}


@pytest.fixture
def asking_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    """A session whose run asks for a command, and ends when that is decided."""

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted_daemon.add_event("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted_daemon.add_completion()
        return {"accepted": True}

    scripted_daemon.capabilities[:] = [name for name in scripted_daemon.capabilities if name not in ("session_info", "terminals")]
    scripted_daemon.answers["submit_approval"] = decided
    scripted_daemon.state = "awaiting_approval"
    scripted_daemon.add_status("Run started", "test it")
    scripted_daemon.add_event("approval_required", make_approval_request(command="make test"))
    return scripted_daemon


def hide_inbox(daemon: ScriptedDaemon) -> None:
    if "inbox" in daemon.capabilities:
        daemon.capabilities.remove("inbox")


# Told


def test_sessions_says_what_is_asked_below_who_asks(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    hide_inbox(asking_daemon)

    first, second = tower_command("sessions").stdout.decode().splitlines()

    assert first.startswith(f"{SESSION}  awaiting_approval  ")
    assert second == "  ? approval Run a command: make test"
    assert asking_daemon.list_requests("resume_session") == [], "a look leaves no trace"


def test_sessions_asks_a_newer_daemon_for_all_approvals_at_once(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.capabilities.append("inbox")
    asking_daemon.pending = make_approval_request(command="make test")

    [session] = tower_command("sessions", "--json").json

    assert session["waiting"] == [
        {"kind": "approval", "id": "appr_1", "title": "Run a command", "summary": "make test", "expiresAt": 1}
    ]
    assert asking_daemon.list_requests("attach_session") == []


@pytest.mark.parametrize("has_inbox", [True, False])
def test_sessions_says_which_dialog_is_open(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, has_inbox: bool
) -> None:
    hide_inbox(scripted_daemon)
    if has_inbox:
        scripted_daemon.capabilities.append("inbox")
    scripted_daemon.state = "running"
    scripted_daemon.add_status("Run started", "go")
    scripted_daemon.add_event("warning", DIALOG)

    assert tower_command("sessions").stdout.decode().splitlines()[1:] == ["  ? dialog Which branch?: One of two"]
    [session] = tower_command("sessions", "--json").json
    assert [(one["kind"], one["id"], one["title"]) for one in session["waiting"]] == [("dialog", "dlg_1", "Which branch?")]


def test_a_session_that_waits_for_nothing_is_listed_as_before(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.add_event("approval_required", make_approval_request(command="make test"))  # of a run that is over

    assert tower_command("sessions").stdout.count(b"\n") == 1
    [session] = tower_command("sessions", "--json").json
    assert "waiting" not in session


def test_show_says_what_is_asked_and_how_long_it_waits(tower_command: TowerCommand) -> None:
    process = tower_command.start("run", "say: hi\nwrite a.txt: x", "--provider", "demo", "--json")
    process.communicate(timeout=60)  # without a terminal it is denied, and the session is there
    session_id = tower_command("sessions", "--json").json[0]["sessionId"]
    sent = tower_command("send", session_id, "write b.txt: x")
    assert sent.code == 0

    watching = tower_command.start("attach", session_id)
    for line in watching.stderr:
        if b"waiting for a decision" in line:
            break
    shown, told = tower_command("show", session_id).stdout.decode(), tower_command("show", session_id, "--json").json
    listed = tower_command("sessions").stdout.decode()
    tower_command("approve", session_id)
    watching.terminate()
    watching.communicate(timeout=60)

    assert "waits for:" in shown
    assert "approval Write a file: b.txt (1 bytes) (expires in " in shown
    assert [one["title"] for one in told["waiting"]] == ["Write a file"]
    assert "  ? approval Write a file: b.txt (1 bytes)" in listed
    assert "waiting" not in tower_command("show", session_id, "--json").json


# Found


def test_what_is_open_is_what_nobody_has_ended() -> None:
    told, found = PushEventFactory(), open_requests.OpenRequests()
    for event in (
        told.make_approval("appr_1"),
        told.make_approval("appr_2"),
        told.make_approval("appr_3"),
        told.make_decision("appr_1"),
        told.make_warning("APPROVAL_EXPIRED", "late", "appr_3"),
        told.make_event("warning", DIALOG),
    ):
        found.on_event(event)

    assert found.list_requests() == [
        OpenRequest("approval", "appr_2", "Run a command", "make test", 1),
        OpenRequest("dialog", "dlg_1", "Which branch?", "One of two", 5),
    ]

    found.on_event(told.complete())
    assert found.list_requests() == []


def test_a_summary_in_place_of_lost_events_says_what_is_open() -> None:
    found = open_requests.OpenRequests()
    pending = {"approvalId": "appr_9", "kind": "exec", "title": "T", "summary": "s", "details": {}, "options": [], "expiresAt": 1}
    snapshot = {
        "state": "awaiting_approval",
        "activeRunId": "run_1",
        "lastAssistantText": "",
        "pendingApproval": pending,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    found.on_event(PushEventFactory().make_event("session_snapshot", snapshot))

    assert [one.id for one in found.list_requests()] == ["appr_9"]


def test_what_is_asked_is_one_line_whatever_it_is_called() -> None:
    assert open_requests.format_request(OpenRequest("dialog", "d", "two\nlines", "and\tmore")) == "dialog two lines: and more"
    assert open_requests.format_request(OpenRequest("approval", "a", "title")) == "approval title"


def test_a_question_from_long_ago_in_a_run_is_found(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    hide_inbox(asking_daemon)
    for number in range(3 * open_requests.LATEST_EVENTS):
        asking_daemon.add_event("assistant_token", {"text": f"{number} "})

    assert "? approval Run a command: make test" in tower_command("sessions").stdout.decode()


# Asked


def get_submitted(daemon: ScriptedDaemon) -> dict[str, Any]:
    [payload] = daemon.list_requests("submit_approval")
    assert (payload.pop("sessionId"), payload.pop("runId"), payload.pop("approvalId")) == (SESSION, RUN, "appr_1")
    return payload


def test_attach_at_a_terminal_asks_what_is_open(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = TerminalDriver(tower_command, "attach", SESSION, NO_COLOR="1")
    terminal.wait_for("approve? [y/n/D] ")
    assert terminal.shown.count("? Run a command: make test") == 1

    terminal.type("y")
    terminal.wait_for("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == {"decision": "approve"}


def test_who_comes_back_after_the_question_is_asked_too(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = TerminalDriver(tower_command, "attach", SESSION, "--from", "2", NO_COLOR="1")
    terminal.wait_for("approve? [y/n/D] ")
    assert "? Run a command: make test" in terminal.shown

    terminal.type("n not now")
    terminal.wait_for("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == {"decision": "deny", "comment": "not now"}


def test_nothing_is_asked_about_what_was_decided_before(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    for _ in range(5_000):  # so that the decision is not read together with the question
        asking_daemon.add_event("thinking_token", {"text": "hm"})
    asking_daemon.add_event("approval_received", {"approvalId": "appr_1", "decision": "approve", "by": "web"})
    asking_daemon.add_completion()

    terminal = TerminalDriver(tower_command, "attach", SESSION, NO_COLOR="1")
    terminal.wait_for("= success")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert asking_daemon.list_requests("submit_approval") == []


def test_a_question_that_somebody_else_answers_is_taken_off(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = TerminalDriver(tower_command, "attach", SESSION, NO_COLOR="1")
    terminal.wait_for("approve? [y/n/D] ")

    asking_daemon.send_event("approval_received", {"approvalId": "appr_1", "decision": "approve", "by": "web"})
    asking_daemon.send_completion()
    terminal.wait_for("= success")
    terminal.type("y")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approved by web" in terminal.shown
    assert asking_daemon.list_requests("submit_approval") == []


@pytest.mark.parametrize("flag", ["--no-prompt", "--read-only"])
def test_who_wants_to_watch_only_is_asked_nothing(tower_command: TowerCommand, asking_daemon: ScriptedDaemon, flag: str) -> None:
    terminal = TerminalDriver(tower_command, "attach", SESSION, flag, NO_COLOR="1")
    terminal.wait_for("waiting for a decision")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert f"`tower approve {SESSION}`" in terminal.shown


def test_the_end_of_the_input_decides_nothing_for_who_only_watches(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    terminal = TerminalDriver(tower_command, "attach", SESSION, NO_COLOR="1")
    terminal.wait_for("approve? [y/n/D] ")

    terminal.press(b"\x04")
    terminal.wait_for("not decided here")
    terminal.interrupt()

    assert terminal.end() == 0
    assert asking_daemon.list_requests("submit_approval") == []


def test_a_transcript_into_a_file_leaves_the_question_at_the_terminal(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    with (tower_command.folder / "transcript").open("wb") as transcript:
        terminal = TerminalDriver(tower_command, "attach", SESSION, stdout=transcript, NO_COLOR="1")
        terminal.wait_for("approve? [y/n/D] ")
        assert "? Run a command: make test" in terminal.shown
        terminal.type("y")
        terminal.wait_for("approve? [y/n/D] y")
        asking_daemon.unwatched.clear()
        terminal.interrupt()
        assert terminal.end() == 0

    assert get_submitted(asking_daemon) == {"decision": "approve"}


@pytest.fixture
def sending_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    """A session that asks as soon as something is sent to it."""

    def sent(_: dict[str, Any]) -> dict[str, Any]:
        scripted_daemon.add_status("Run started", "test it")
        scripted_daemon.add_event("approval_required", make_approval_request(command="make test"))
        return {"runId": RUN, "accepted": True}

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted_daemon.add_event("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted_daemon.add_completion()
        return {"accepted": True}

    scripted_daemon.answers |= {"send_user_message": sent, "submit_approval": decided}
    return scripted_daemon


def test_send_and_wait_asks_at_the_terminal(tower_command: TowerCommand, sending_daemon: ScriptedDaemon) -> None:
    terminal = TerminalDriver(tower_command, "send", SESSION, "go", "--wait", NO_COLOR="1")
    terminal.wait_for("approve? [y/n/D] ")
    terminal.type("y")

    assert terminal.end() == 0
    assert get_submitted(sending_daemon) == {"decision": "approve"}


def test_send_and_wait_asks_nothing_where_it_is_told_not_to(tower_command: TowerCommand, sending_daemon: ScriptedDaemon) -> None:
    terminal = TerminalDriver(tower_command, "send", SESSION, "go", "--wait", "--no-prompt", NO_COLOR="1")
    terminal.wait_for("waiting for a decision")
    sending_daemon.send_completion()

    assert terminal.end() == 0
    assert "approve?" not in terminal.shown
    assert sending_daemon.list_requests("submit_approval") == []


def test_no_prompt_without_waiting_is_wrong_usage(tower_command: TowerCommand) -> None:
    ended = tower_command("send", "last", "hi", "--no-prompt")

    assert ended.code == 64
    assert "`--wait`" in ended.stderr


def test_the_inbox_exits_with_0_unless_a_script_asks_for_a_code(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.capabilities.append("inbox")
    assert tower_command("inbox", "--exit-code").code == 0

    asking_daemon.pending = make_approval_request(command="make test")

    assert tower_command("inbox").code == 0
    assert tower_command("inbox", "--exit-code").code == 1
    assert tower_command("inbox", "--exit-code", "--json").json[0]["approval"]["approvalId"] == "appr_1"
