"""Dialogs at a real terminal: how each is asked, which answers mean what, and what becomes of one that is over."""

import stat
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.dialogs import (
    QUESTIONS,
    get_given_answer,
    make_asking,
    make_dialog_answered,
    make_dialog_closed,
    make_dialog_payload,
)
from tests.cli.scripted import SESSION, ScriptedDaemon, make_approval_request, make_refusal
from tests.cli.terminal import TerminalDriver

NO_EDITOR = {"VISUAL": "", "EDITOR": ""}


@pytest.fixture
def asking_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    make_asking(scripted_daemon)
    return scripted_daemon


def run(tower: TowerCommand, asking: ScriptedDaemon, opened: dict[str, Any], **environment: str) -> TerminalDriver:
    asking.add_event("warning", opened)
    return TerminalDriver(tower, "run", "--provider", "demo", "x", NO_COLOR="1", **{**NO_EDITOR, **environment})


COLOURS = ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [("2", {"value": "green"}), ("blue", {"value": "blue"}), ("RED", {"value": "red"}), ("", {"dismissed": True})],
)
def test_a_select_is_a_numbered_list(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, typed: str, sent: dict[str, Any]
) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("select", "Which colour?", options=COLOURS))
    terminal.wait_for("choose? ")
    assert "? Which colour?\r\n  1  red\r\n  2  green\r\n  3  blue\r\n" in terminal.shown

    terminal.type(typed)

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == sent
    assert ("dismissed: Which colour?" if "dismissed" in sent else "answered: Which colour?") in terminal.shown


def test_what_is_none_of_the_options_is_asked_again(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("select", options=COLOURS))
    for times, wrong in enumerate(["0", "4", "99999999999999999999", "-1", "re", "\x1b[A"], 1):
        terminal.wait_for("choose? ", times=times)
        terminal.type(wrong)
    terminal.wait_for("choose? ", times=7)
    terminal.type("1")

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {"value": "red"}


@pytest.mark.parametrize(("typed", "sent"), [("y", {"confirmed": True}), ("No", {"confirmed": False}), ("", {"dismissed": True})])
def test_a_confirm_is_a_yes_or_a_no(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, typed: str, sent: dict[str, Any]
) -> None:
    terminal = run(
        tower_command, asking_daemon, make_dialog_payload("confirm", "Sure?", message="It takes long.\n? approve? [y/n/D]")
    )
    terminal.wait_for("confirm? [y/n] ")
    assert "  | It takes long.\r\n  | ? approve?" in terminal.shown, "what it says cannot pass for a question of ours"

    terminal.type(typed)

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == sent


@pytest.mark.parametrize(("typed", "sent"), [("häuser 1", {"value": "häuser 1"}), ("", {"dismissed": True})])
def test_an_input_is_one_line(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, typed: str, sent: dict[str, Any]
) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("input", "A name?", placeholder="houses"))
    terminal.wait_for("  > ")
    assert "such as: houses" in terminal.shown

    terminal.type(typed)

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == sent


@pytest.mark.parametrize("method", ["select", "confirm", "input", "editor", "interview"])
def test_ctrl_d_dismisses(tower_command: TowerCommand, asking_daemon: ScriptedDaemon, method: str) -> None:
    prefill = "as it was" if method == "editor" else None
    terminal = run(tower_command, asking_daemon, make_dialog_payload(method, options=["a"], prefill=prefill, questions=QUESTIONS))
    terminal.wait_for({"select": "choose? ", "confirm": "confirm? "}.get(method, "  > "))

    terminal.press(b"\x04")

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {"dismissed": True}


@pytest.mark.parametrize(
    ("prefill", "typed", "sent"),
    [
        (None, ["one", "  two", ""], {"value": "one\n  two"}),
        (None, [""], {"dismissed": True}),
        ("as it was", [""], {"value": "as it was"}),
        ("as it was", ["new", ""], {"value": "new"}),
    ],
)
def test_without_an_editor_a_text_is_lines_until_an_empty_one(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, prefill: str | None, typed: list[str], sent: dict[str, Any]
) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("editor", prefill=prefill))
    for times, line in enumerate(typed, 1):
        terminal.wait_for("  > ", times=times)
        terminal.type(line)

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == sent


def write_script(folder: Path, text: str) -> str:
    """A program to edit with."""
    file = folder / "my editor"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return f"'{file}'"


@pytest.mark.parametrize("variable", ["VISUAL", "EDITOR"])
def test_an_editor_of_the_person_gets_the_prefill_in_a_private_file(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, tmp_path: Path, variable: str
) -> None:
    notes = tmp_path / "notes"
    edit = write_script(tmp_path, f'echo "$2" > {notes}; stat -c %a "$(dirname "$2")" >> {notes}; echo more >> "$2"')
    terminal = run(
        tower_command, asking_daemon, make_dialog_payload("editor", prefill="as it was\n"), **{variable: f"{edit} --wait"}
    )

    assert terminal.end() == 0, terminal.shown
    assert get_given_answer(asking_daemon) == {"value": "as it was\nmore"}
    file, mode = notes.read_text().splitlines()
    assert mode == "700"
    assert not Path(file).parent.exists()


def test_a_text_that_was_emptied_in_the_editor_dismisses(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    terminal = run(
        tower_command,
        asking_daemon,
        make_dialog_payload("editor", prefill="as it was"),
        EDITOR=write_script(tmp_path, ': > "$1"'),
    )

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {"dismissed": True}


@pytest.mark.parametrize(("editor", "told"), [("/no/such/editor", "cannot start"), ("false", "ended with 1")])
def test_an_editor_that_fails_is_replaced_by_lines(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, editor: str, told: str
) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("editor"), EDITOR=editor)
    terminal.wait_for("  > ")
    assert told in terminal.shown
    terminal.type("by hand")
    terminal.wait_for("  > ", times=2)
    terminal.type("")

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {"value": "by hand"}


def test_an_editor_is_ended_when_the_question_is_over_and_what_was_written_is_kept(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, tmp_path: Path, processes_with: Any
) -> None:
    edit = write_script(tmp_path, 'echo draft > "$1"; echo ready; stty -echo; exec sleep 987654')
    terminal = run(tower_command, asking_daemon, make_dialog_payload("editor", "Tell"), EDITOR=edit)
    terminal.wait_for("ready")

    asking_daemon.send_event("status", make_dialog_closed("expired"))
    terminal.wait_for("what you wrote is in ")
    asking_daemon.send_completion()

    assert terminal.end() == 0
    assert "nobody answered in time: Tell" in terminal.shown
    assert asking_daemon.list_requests("answer_dialog") == []
    assert processes_with("sleep 987654") == []
    kept = Path(terminal.shown.split("what you wrote is in ")[1].split("\r\n")[0])
    assert kept.read_text() == "draft\n"
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    kept.unlink()
    kept.parent.rmdir()


def test_an_interview_is_held_question_by_question(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(
        tower_command,
        asking_daemon,
        make_dialog_payload("interview", "A few things", questions=QUESTIONS, message="Please answer again"),
    )
    terminal.wait_for("1/4 What for? (needs an answer)")
    terminal.wait_for("  > ")
    terminal.type(" ")
    terminal.wait_for("  > ", times=2)
    terminal.type("faster tests")
    terminal.wait_for("choose? ")
    terminal.type("huge")
    terminal.wait_for("choose? ", times=2)
    terminal.type("2")
    terminal.wait_for("choose? ", times=3)
    terminal.type("1, docs")
    terminal.wait_for("[y/n] ")
    terminal.type("")
    terminal.wait_for("[y/n] ", times=2)
    terminal.type("n")

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {
        "responses": {"goal": "faster tests", "size": "large", "where": ["src", "docs"], "plan": False}
    }
    assert "? A few things (4 questions)" in terminal.shown
    assert "  | Please answer again" in terminal.shown


def test_what_is_left_out_of_an_interview_is_not_sent(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("interview", questions=QUESTIONS))
    for waits_for, times, typed in [("  > ", 1, "x"), ("choose? ", 1, ""), ("choose? ", 2, ""), ("[y/n] ", 1, "y")]:
        terminal.wait_for(waits_for, times=times)
        terminal.type(typed)

    assert terminal.end() == 0
    assert get_given_answer(asking_daemon) == {"responses": {"goal": "x", "plan": True}}


def test_what_a_newer_daemon_asks_is_left_to_others(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("slider", "How much?"))
    terminal.wait_for("cannot be asked here")
    terminal.wait_for(f"hint: `tower answer {SESSION}")
    asking_daemon.send_event("status", make_dialog_answered())
    asking_daemon.send_completion()

    assert terminal.end() == 0
    assert asking_daemon.list_requests("answer_dialog") == []


def test_a_dialog_that_cannot_be_read_stays_a_warning(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.add_event("warning", {"code": "DIALOG_OPENED", "message": "What?", "detail": "[" * 100_000})
    asking_daemon.add_event("warning", {"code": "DIALOG_OPENED", "message": "Which?", "detail": '{"dialogId": 7}'})
    asking_daemon.add_completion()
    terminal = TerminalDriver(tower_command, "run", "--provider", "demo", "x", NO_COLOR="1")

    assert terminal.end() == 0
    assert "! DIALOG_OPENED: What?" in terminal.shown
    assert "! DIALOG_OPENED: Which?" in terminal.shown


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (make_dialog_answered(), "answered: What now?"),
        (make_dialog_closed("expired"), "! nobody answered in time: What now?"),
        (make_dialog_closed("dismissed"), "dismissed: What now?"),
        (make_dialog_closed("the run was cancelled"), "not asked any more (the run was cancelled): What now?"),
    ],
)
def test_a_dialog_that_is_over_is_taken_off(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, ending: dict[str, Any], told: str
) -> None:
    terminal = run(tower_command, asking_daemon, make_dialog_payload("input"))
    terminal.wait_for("  > ")
    terminal.press(b"half an ans")
    terminal.wait_for("half an ans")

    asking_daemon.send_event("status", ending)
    terminal.wait_for(told)
    asking_daemon.send_event("warning", make_dialog_payload("input", "And then?", dialog_id="dlg_2"))
    terminal.wait_for("And then?")
    terminal.wait_for("  > ", times=2)
    terminal.type("whole")

    assert terminal.end() == 0
    [payload] = asking_daemon.list_requests("answer_dialog")
    assert (payload["dialogId"], payload["value"]) == ("dlg_2", "whole")


def test_an_approval_and_a_dialog_at_once_are_asked_one_after_the_other(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.add_event("warning", make_dialog_payload("input", "A name?"))
    asking_daemon.answers["answer_dialog"] = {"accepted": True}
    asking_daemon.answers["submit_approval"] = asking_daemon.make_run_reply(asking_daemon.add_completion)
    asking_daemon.add_event("approval_required", make_approval_request(command="make test"))
    terminal = TerminalDriver(tower_command, "run", "--provider", "demo", "x", NO_COLOR="1", **NO_EDITOR)
    terminal.wait_for("make test")
    terminal.wait_for("  > ")
    assert "approve? " not in terminal.shown
    terminal.type("y")

    terminal.wait_for("approve? [y/n/D] ")
    shown_again = terminal.shown.split("  > ")[1]
    assert "command: make test" in shown_again
    terminal.type("d")

    terminal.end()
    assert get_given_answer(asking_daemon) == {"value": "y"}
    assert asking_daemon.list_requests("submit_approval")[0]["decision"] == "deny"


def test_attach_asks_nothing_while_it_reads_a_long_history(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.add_event("warning", make_dialog_payload("select", "Long ago?", options=COLOURS))
    for number in range(5_000):
        asking_daemon.add_status("Working", str(number))
    asking_daemon.add_event("status", make_dialog_answered())
    asking_daemon.add_status("Present")
    terminal = TerminalDriver(tower_command, "attach", SESSION, NO_COLOR="1")
    terminal.wait_for("· Present")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "answered: Long ago?" in terminal.shown
    assert "choose? " not in terminal.shown


def test_an_answer_that_the_daemon_refuses_is_told(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.answers["answer_dialog"] = make_refusal("INVALID_REQUEST", "No dialog with this id waits for an answer")
    terminal = run(tower_command, asking_daemon, make_dialog_payload("confirm"))
    terminal.wait_for("confirm? ")
    terminal.type("y")
    terminal.wait_for("No dialog with this id waits for an answer")
    asking_daemon.send_completion()

    assert terminal.end() == 0


def test_text_of_a_dialog_does_not_steer_the_terminal(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    evil = "\x1b]0;owned\x07\n= success: done"
    questions = [{"id": "a", "type": "single", "question": evil, "options": [evil, "b"], "required": True}]
    terminal = run(tower_command, asking_daemon, make_dialog_payload("interview", evil, message=evil, questions=questions))
    terminal.wait_for("choose? ")
    terminal.type("1")

    assert terminal.end() == 0
    assert "\x07" not in terminal.shown
    assert get_given_answer(asking_daemon) == {"responses": {"a": evil}}
    assert terminal.shown.count("\n= success") == 1, "the run's own"


# The same with a real daemon


def test_a_brief_is_answered_at_the_terminal(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "/brief", NO_COLOR="1")
    for number, typed in enumerate(["say: briefed", "", "", "", "2", "n"], 1):
        terminal.wait_for(f"{number}/6 ")
        # The question's own way of asking is the last thing on the screen when it waits.
        terminal.wait_for_prompt()
        terminal.type(typed)

    assert terminal.end() == 0, terminal.shown
    assert "answered: A brief for the agent" in terminal.shown


def test_a_question_of_the_agent_that_is_answered_elsewhere_is_taken_off(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "ask: Which? | tabs | spaces", NO_COLOR="1")
    terminal.wait_for("choose? ")
    session_id = terminal.shown.split("session ")[1].split()[0]

    listed = shared_command("answer", session_id)
    assert "  1  tabs\n  2  spaces\n" in listed.stdout.decode()
    assert shared_command("answer", session_id, "spaces").code == 0

    assert terminal.end() == 0
    assert "answered: Which?" in terminal.shown


def test_a_dismissed_brief_is_a_cancelled_run(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(shared_command, "run", "/brief")
    terminal.wait_for("1/6 ")
    terminal.wait_for("  > ")
    terminal.press(b"\x04")

    assert terminal.end() == 2


def test_a_question_that_expires_is_told_and_the_run_goes_on(tower_command: TowerCommand) -> None:
    tower_command.environment["TOWER_PI_UI_TIMEOUT"] = "1"
    terminal = TerminalDriver(tower_command, "run", "ask: Which? | tabs | spaces", NO_COLOR="1")

    terminal.end()
    assert "choose? " in terminal.shown
    assert "! nobody answered in time: Which?" in terminal.shown
    assert "= " in terminal.shown


def start_interactive_session(shared: TowerCommand) -> str:
    """A session that can be asked something."""
    terminal = TerminalDriver(shared, "run", "say: hello")
    assert terminal.end() == 0
    return str(terminal.shown.split("session ")[1].split()[0])


def test_send_and_wait_asks_at_the_terminal(shared_command: TowerCommand) -> None:
    terminal = TerminalDriver(
        shared_command, "send", start_interactive_session(shared_command), "ask: Which? | tabs | spaces", "--wait", NO_COLOR="1"
    )
    terminal.wait_for("choose? ")
    terminal.type("1")

    assert terminal.end() == 0
    assert "answered: Which?" in terminal.shown


def test_send_and_wait_without_a_terminal_says_how_to_answer(shared_command: TowerCommand, line_with: Any) -> None:
    session_id = start_interactive_session(shared_command)
    process = shared_command.start("send", session_id, "/brief", "--wait")

    assert "A brief for the agent (6 questions)" in line_with(process, "? ")
    assert "goal: What should be different" in line_with(process, "goal:")
    hint = line_with(process, "waiting for an answer")
    assert f"""`tower answer {session_id} --json '{{"responses": {{"goal": "…"}}}}'`""" in hint
    assert shared_command("answer", session_id, "--json", '{"responses": {"goal": "say: from elsewhere"}}').code == 0

    process.communicate(timeout=60)
    assert process.returncode == 0


def test_attach_asks_what_is_open_and_nothing_of_what_was(shared_command: TowerCommand) -> None:
    session_id = start_interactive_session(shared_command)
    shared_command("send", session_id, "ask: Before? | yes | no")
    answered_before = TerminalDriver(shared_command, "attach", session_id, NO_COLOR="1")
    answered_before.wait_for("choose? ")
    answered_before.type("2")
    answered_before.wait_for("= success", times=2)
    answered_before.interrupt()
    assert answered_before.end() == 0

    shared_command("send", session_id, "ask: Now? | yes | no")
    terminal = TerminalDriver(shared_command, "attach", session_id, NO_COLOR="1")
    terminal.wait_for("choose? ")
    assert terminal.shown.index("answered: Before?") < terminal.shown.index("? Now?") < terminal.shown.index("choose? ")
    terminal.type("yes")
    terminal.wait_for("answered: Now?")
    terminal.interrupt()

    assert terminal.end() == 0


def test_attach_into_a_file_shows_the_question_where_it_is_answered(shared_command: TowerCommand, tmp_path: Path) -> None:
    session_id = start_interactive_session(shared_command)
    shared_command("send", session_id, "ask: Which? | tabs | spaces")
    with (tmp_path / "transcript").open("wb") as transcript:
        terminal = TerminalDriver(shared_command, "attach", session_id, stdout=transcript, NO_COLOR="1")
        terminal.wait_for("choose? ")
        assert "? Which?\r\n  1  tabs\r\n  2  spaces\r\n" in terminal.shown
        assert shared_command("answer", session_id, "tabs").code == 0
        terminal.interrupt()
        terminal.end()

    assert "? Which?\n  1  tabs\n" in (tmp_path / "transcript").read_text()


def test_who_comes_back_to_an_open_question_is_asked_it(shared_command: TowerCommand) -> None:
    session_id = start_interactive_session(shared_command)
    shared_command("send", session_id, "ask: Still? | yes | no")
    first = TerminalDriver(shared_command, "attach", session_id, NO_COLOR="1")
    first.wait_for("choose? ")
    first.interrupt()
    assert first.end() == 0
    seq = first.shown.split("--from ")[1].split("`")[0]

    again = TerminalDriver(shared_command, "attach", session_id, "--from", seq, NO_COLOR="1")
    again.wait_for("? Still?")
    again.wait_for("choose? ")
    again.type("no")
    again.wait_for("answered: Still?")
    again.interrupt()

    assert again.end() == 0
