"""Dialogs at a real terminal: how each is asked, which answers mean what, and what becomes of one that is over."""

import stat
from pathlib import Path
from typing import Any

import pytest
from tests.cli.dialogs import QUESTIONS, answered, closed, dialog, given, make_asking
from tests.cli.scripted import SESSION, ScriptedDaemon, question, refusing
from tests.cli.terminal import Terminal

NO_EDITOR = {"VISUAL": "", "EDITOR": ""}


@pytest.fixture
def asking(scripted: ScriptedDaemon) -> ScriptedDaemon:
    make_asking(scripted)
    return scripted


def run(tower: Any, asking: ScriptedDaemon, opened: dict[str, Any], **environment: str) -> Terminal:
    asking.happened("warning", opened)
    return Terminal(tower, "run", "--provider", "demo", "x", NO_COLOR="1", **{**NO_EDITOR, **environment})


COLOURS = ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [("2", {"value": "green"}), ("blue", {"value": "blue"}), ("RED", {"value": "red"}), ("", {"dismissed": True})],
)
def test_a_select_is_a_numbered_list(tower: Any, asking: ScriptedDaemon, typed: str, sent: dict[str, Any]) -> None:
    terminal = run(tower, asking, dialog("select", "Which colour?", options=COLOURS))
    terminal.until("choose? ")
    assert "? Which colour?\r\n  1  red\r\n  2  green\r\n  3  blue\r\n" in terminal.shown

    terminal.type(typed)

    assert terminal.end() == 0
    assert given(asking) == sent
    assert ("dismissed: Which colour?" if "dismissed" in sent else "answered: Which colour?") in terminal.shown


def test_what_is_none_of_the_options_is_asked_again(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, dialog("select", options=COLOURS))
    for times, wrong in enumerate(["0", "4", "99999999999999999999", "-1", "re", "\x1b[A"], 1):
        terminal.until("choose? ", times=times)
        terminal.type(wrong)
    terminal.until("choose? ", times=7)
    terminal.type("1")

    assert terminal.end() == 0
    assert given(asking) == {"value": "red"}


@pytest.mark.parametrize(("typed", "sent"), [("y", {"confirmed": True}), ("No", {"confirmed": False}), ("", {"dismissed": True})])
def test_a_confirm_is_a_yes_or_a_no(tower: Any, asking: ScriptedDaemon, typed: str, sent: dict[str, Any]) -> None:
    terminal = run(tower, asking, dialog("confirm", "Sure?", message="It takes long.\n? approve? [y/n/D]"))
    terminal.until("confirm? [y/n] ")
    assert "  | It takes long.\r\n  | ? approve?" in terminal.shown, "what it says cannot pass for a question of ours"

    terminal.type(typed)

    assert terminal.end() == 0
    assert given(asking) == sent


@pytest.mark.parametrize(("typed", "sent"), [("häuser 1", {"value": "häuser 1"}), ("", {"dismissed": True})])
def test_an_input_is_one_line(tower: Any, asking: ScriptedDaemon, typed: str, sent: dict[str, Any]) -> None:
    terminal = run(tower, asking, dialog("input", "A name?", placeholder="houses"))
    terminal.until("  > ")
    assert "such as: houses" in terminal.shown

    terminal.type(typed)

    assert terminal.end() == 0
    assert given(asking) == sent


@pytest.mark.parametrize("method", ["select", "confirm", "input", "editor", "interview"])
def test_ctrl_d_dismisses(tower: Any, asking: ScriptedDaemon, method: str) -> None:
    prefill = "as it was" if method == "editor" else None
    terminal = run(tower, asking, dialog(method, options=["a"], prefill=prefill, questions=QUESTIONS))
    terminal.until({"select": "choose? ", "confirm": "confirm? "}.get(method, "  > "))

    terminal.press(b"\x04")

    assert terminal.end() == 0
    assert given(asking) == {"dismissed": True}


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
    tower: Any, asking: ScriptedDaemon, prefill: str | None, typed: list[str], sent: dict[str, Any]
) -> None:
    terminal = run(tower, asking, dialog("editor", prefill=prefill))
    for times, line in enumerate(typed, 1):
        terminal.until("  > ", times=times)
        terminal.type(line)

    assert terminal.end() == 0
    assert given(asking) == sent


def script(folder: Path, text: str) -> str:
    """A program to edit with."""
    file = folder / "my editor"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return f"'{file}'"


@pytest.mark.parametrize("variable", ["VISUAL", "EDITOR"])
def test_an_editor_of_the_person_gets_the_prefill_in_a_private_file(
    tower: Any, asking: ScriptedDaemon, tmp_path: Path, variable: str
) -> None:
    notes = tmp_path / "notes"
    edit = script(tmp_path, f'echo "$2" > {notes}; stat -c %a "$(dirname "$2")" >> {notes}; echo more >> "$2"')
    terminal = run(tower, asking, dialog("editor", prefill="as it was\n"), **{variable: f"{edit} --wait"})

    assert terminal.end() == 0, terminal.shown
    assert given(asking) == {"value": "as it was\nmore"}
    file, mode = notes.read_text().splitlines()
    assert mode == "700"
    assert not Path(file).parent.exists()


def test_a_text_that_was_emptied_in_the_editor_dismisses(tower: Any, asking: ScriptedDaemon, tmp_path: Path) -> None:
    terminal = run(tower, asking, dialog("editor", prefill="as it was"), EDITOR=script(tmp_path, ': > "$1"'))

    assert terminal.end() == 0
    assert given(asking) == {"dismissed": True}


@pytest.mark.parametrize(("editor", "told"), [("/no/such/editor", "cannot start"), ("false", "ended with 1")])
def test_an_editor_that_fails_is_replaced_by_lines(tower: Any, asking: ScriptedDaemon, editor: str, told: str) -> None:
    terminal = run(tower, asking, dialog("editor"), EDITOR=editor)
    terminal.until("  > ")
    assert told in terminal.shown
    terminal.type("by hand")
    terminal.until("  > ", times=2)
    terminal.type("")

    assert terminal.end() == 0
    assert given(asking) == {"value": "by hand"}


def test_an_editor_is_ended_when_the_question_is_over_and_what_was_written_is_kept(
    tower: Any, asking: ScriptedDaemon, tmp_path: Path, processes_with: Any
) -> None:
    edit = script(tmp_path, 'echo draft > "$1"; echo ready; stty -echo; exec sleep 987654')
    terminal = run(tower, asking, dialog("editor", "Tell"), EDITOR=edit)
    terminal.until("ready")

    asking.happens_now("status", closed("expired"))
    terminal.until("what you wrote is in ")
    asking.completes_now()

    assert terminal.end() == 0
    assert "nobody answered in time: Tell" in terminal.shown
    assert asking.asked("answer_dialog") == []
    assert processes_with("sleep 987654") == []
    kept = Path(terminal.shown.split("what you wrote is in ")[1].split("\r\n")[0])
    assert kept.read_text() == "draft\n"
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    kept.unlink()
    kept.parent.rmdir()


def test_an_interview_is_held_question_by_question(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, dialog("interview", "A few things", questions=QUESTIONS, message="Please answer again"))
    terminal.until("1/4 What for? (needs an answer)")
    terminal.until("  > ")
    terminal.type(" ")
    terminal.until("  > ", times=2)
    terminal.type("faster tests")
    terminal.until("choose? ")
    terminal.type("huge")
    terminal.until("choose? ", times=2)
    terminal.type("2")
    terminal.until("choose? ", times=3)
    terminal.type("1, docs")
    terminal.until("[y/n] ")
    terminal.type("")
    terminal.until("[y/n] ", times=2)
    terminal.type("n")

    assert terminal.end() == 0
    assert given(asking) == {"responses": {"goal": "faster tests", "size": "large", "where": ["src", "docs"], "plan": False}}
    assert "? A few things (4 questions)" in terminal.shown
    assert "  | Please answer again" in terminal.shown


def test_what_is_left_out_of_an_interview_is_not_sent(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, dialog("interview", questions=QUESTIONS))
    for waits_for, times, typed in [("  > ", 1, "x"), ("choose? ", 1, ""), ("choose? ", 2, ""), ("[y/n] ", 1, "y")]:
        terminal.until(waits_for, times=times)
        terminal.type(typed)

    assert terminal.end() == 0
    assert given(asking) == {"responses": {"goal": "x", "plan": True}}


def test_what_a_newer_daemon_asks_is_left_to_others(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, dialog("slider", "How much?"))
    terminal.until("cannot be asked here")
    terminal.until(f"hint: `tower answer {SESSION}")
    asking.happens_now("status", answered())
    asking.completes_now()

    assert terminal.end() == 0
    assert asking.asked("answer_dialog") == []


def test_a_dialog_that_cannot_be_read_stays_a_warning(tower: Any, asking: ScriptedDaemon) -> None:
    asking.happened("warning", {"code": "DIALOG_OPENED", "message": "What?", "detail": "[" * 100_000})
    asking.happened("warning", {"code": "DIALOG_OPENED", "message": "Which?", "detail": '{"dialogId": 7}'})
    asking.completed()
    terminal = Terminal(tower, "run", "--provider", "demo", "x", NO_COLOR="1")

    assert terminal.end() == 0
    assert "! DIALOG_OPENED: What?" in terminal.shown
    assert "! DIALOG_OPENED: Which?" in terminal.shown


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (answered(), "answered: What now?"),
        (closed("expired"), "! nobody answered in time: What now?"),
        (closed("dismissed"), "dismissed: What now?"),
        (closed("the run was cancelled"), "not asked any more (the run was cancelled): What now?"),
    ],
)
def test_a_dialog_that_is_over_is_taken_off(tower: Any, asking: ScriptedDaemon, ending: dict[str, Any], told: str) -> None:
    terminal = run(tower, asking, dialog("input"))
    terminal.until("  > ")
    terminal.press(b"half an ans")
    terminal.until("half an ans")

    asking.happens_now("status", ending)
    terminal.until(told)
    asking.happens_now("warning", dialog("input", "And then?", dialog_id="dlg_2"))
    terminal.until("And then?")
    terminal.until("  > ", times=2)
    terminal.type("whole")

    assert terminal.end() == 0
    [payload] = asking.asked("answer_dialog")
    assert (payload["dialogId"], payload["value"]) == ("dlg_2", "whole")


def test_an_approval_and_a_dialog_at_once_are_asked_one_after_the_other(tower: Any, asking: ScriptedDaemon) -> None:
    asking.happened("warning", dialog("input", "A name?"))
    asking.answers["answer_dialog"] = {"accepted": True}
    asking.answers["submit_approval"] = asking.chore(asking.completed)
    asking.happened("approval_required", question(command="make test"))
    terminal = Terminal(tower, "run", "--provider", "demo", "x", NO_COLOR="1", **NO_EDITOR)
    terminal.until("make test")
    terminal.until("  > ")
    assert "approve? " not in terminal.shown
    terminal.type("y")

    terminal.until("approve? [y/n/D] ")
    shown_again = terminal.shown.split("  > ")[1]
    assert "command: make test" in shown_again
    terminal.type("d")

    terminal.end()
    assert given(asking) == {"value": "y"}
    assert asking.asked("submit_approval")[0]["decision"] == "deny"


def test_attach_asks_nothing_while_it_reads_a_long_history(tower: Any, asking: ScriptedDaemon) -> None:
    asking.happened("warning", dialog("select", "Long ago?", options=COLOURS))
    for number in range(5_000):
        asking.status("Working", str(number))
    asking.happened("status", answered())
    asking.status("Present")
    terminal = Terminal(tower, "attach", SESSION, NO_COLOR="1")
    terminal.until("· Present")
    terminal.interrupt()

    assert terminal.end() == 0
    assert "answered: Long ago?" in terminal.shown
    assert "choose? " not in terminal.shown


def test_an_answer_that_the_daemon_refuses_is_told(tower: Any, asking: ScriptedDaemon) -> None:
    asking.answers["answer_dialog"] = refusing("INVALID_REQUEST", "No dialog with this id waits for an answer")
    terminal = run(tower, asking, dialog("confirm"))
    terminal.until("confirm? ")
    terminal.type("y")
    terminal.until("No dialog with this id waits for an answer")
    asking.completes_now()

    assert terminal.end() == 0


def test_text_of_a_dialog_does_not_steer_the_terminal(tower: Any, asking: ScriptedDaemon) -> None:
    evil = "\x1b]0;owned\x07\n= success: done"
    questions = [{"id": "a", "type": "single", "question": evil, "options": [evil, "b"], "required": True}]
    terminal = run(tower, asking, dialog("interview", evil, message=evil, questions=questions))
    terminal.until("choose? ")
    terminal.type("1")

    assert terminal.end() == 0
    assert "\x07" not in terminal.shown
    assert given(asking) == {"responses": {"a": evil}}
    assert terminal.shown.count("\n= success") == 1, "the run's own"


# The same with a real daemon


def test_a_brief_is_answered_at_the_terminal(shared: Any) -> None:
    terminal = Terminal(shared, "run", "/brief", NO_COLOR="1")
    for number, typed in enumerate(["say: briefed", "", "", "", "2", "n"], 1):
        terminal.until(f"{number}/6 ")
        # The question's own way of asking is the last thing on the screen when it waits.
        terminal.until_waiting()
        terminal.type(typed)

    assert terminal.end() == 0, terminal.shown
    assert "answered: A brief for the agent" in terminal.shown


def test_a_question_of_the_agent_that_is_answered_elsewhere_is_taken_off(shared: Any) -> None:
    terminal = Terminal(shared, "run", "ask: Which? | tabs | spaces", NO_COLOR="1")
    terminal.until("choose? ")
    session_id = terminal.shown.split("session ")[1].split()[0]

    listed = shared("answer", session_id)
    assert "  1  tabs\n  2  spaces\n" in listed.stdout.decode()
    assert shared("answer", session_id, "spaces").code == 0

    assert terminal.end() == 0
    assert "answered: Which?" in terminal.shown


def test_a_dismissed_brief_is_a_cancelled_run(shared: Any) -> None:
    terminal = Terminal(shared, "run", "/brief")
    terminal.until("1/6 ")
    terminal.until("  > ")
    terminal.press(b"\x04")

    assert terminal.end() == 2


def test_a_question_that_expires_is_told_and_the_run_goes_on(tower: Any) -> None:
    tower.environment["TOWER_PI_UI_TIMEOUT"] = "1"
    terminal = Terminal(tower, "run", "ask: Which? | tabs | spaces", NO_COLOR="1")

    terminal.end()
    assert "choose? " in terminal.shown
    assert "! nobody answered in time: Which?" in terminal.shown
    assert "= " in terminal.shown


def interactive(shared: Any) -> str:
    """A session that can be asked something."""
    terminal = Terminal(shared, "run", "say: hello")
    assert terminal.end() == 0
    return str(terminal.shown.split("session ")[1].split()[0])


def test_send_and_wait_asks_at_the_terminal(shared: Any) -> None:
    terminal = Terminal(shared, "send", interactive(shared), "ask: Which? | tabs | spaces", "--wait", NO_COLOR="1")
    terminal.until("choose? ")
    terminal.type("1")

    assert terminal.end() == 0
    assert "answered: Which?" in terminal.shown


def test_send_and_wait_without_a_terminal_says_how_to_answer(shared: Any, line_with: Any) -> None:
    session_id = interactive(shared)
    process = shared.start("send", session_id, "/brief", "--wait")

    assert "A brief for the agent (6 questions)" in line_with(process, "? ")
    assert "goal: What should be different" in line_with(process, "goal:")
    hint = line_with(process, "waiting for an answer")
    assert f"""`tower answer {session_id} --json '{{"responses": {{"goal": "…"}}}}'`""" in hint
    assert shared("answer", session_id, "--json", '{"responses": {"goal": "say: from elsewhere"}}').code == 0

    process.communicate(timeout=60)
    assert process.returncode == 0


def test_attach_asks_what_is_open_and_nothing_of_what_was(shared: Any) -> None:
    session_id = interactive(shared)
    shared("send", session_id, "ask: Before? | yes | no")
    answered_before = Terminal(shared, "attach", session_id, NO_COLOR="1")
    answered_before.until("choose? ")
    answered_before.type("2")
    answered_before.until("= success", times=2)
    answered_before.interrupt()
    assert answered_before.end() == 0

    shared("send", session_id, "ask: Now? | yes | no")
    terminal = Terminal(shared, "attach", session_id, NO_COLOR="1")
    terminal.until("choose? ")
    assert terminal.shown.index("answered: Before?") < terminal.shown.index("? Now?") < terminal.shown.index("choose? ")
    terminal.type("yes")
    terminal.until("answered: Now?")
    terminal.interrupt()

    assert terminal.end() == 0


def test_attach_into_a_file_shows_the_question_where_it_is_answered(shared: Any, tmp_path: Path) -> None:
    session_id = interactive(shared)
    shared("send", session_id, "ask: Which? | tabs | spaces")
    with (tmp_path / "transcript").open("wb") as transcript:
        terminal = Terminal(shared, "attach", session_id, stdout=transcript, NO_COLOR="1")
        terminal.until("choose? ")
        assert "? Which?\r\n  1  tabs\r\n  2  spaces\r\n" in terminal.shown
        assert shared("answer", session_id, "tabs").code == 0
        terminal.interrupt()
        terminal.end()

    assert "? Which?\n  1  tabs\n" in (tmp_path / "transcript").read_text()


def test_who_comes_back_to_an_open_question_is_asked_it(shared: Any) -> None:
    session_id = interactive(shared)
    shared("send", session_id, "ask: Still? | yes | no")
    first = Terminal(shared, "attach", session_id, NO_COLOR="1")
    first.until("choose? ")
    first.interrupt()
    assert first.end() == 0
    seq = first.shown.split("--from ")[1].split("`")[0]

    again = Terminal(shared, "attach", session_id, "--from", seq, NO_COLOR="1")
    again.until("? Still?")
    again.until("choose? ")
    again.type("no")
    again.until("answered: Still?")
    again.interrupt()

    assert again.end() == 0
