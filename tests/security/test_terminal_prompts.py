"""A typed answer reaches only its own question: attacks on the prompts of programs in terminals."""

import asyncio
import os
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.pty.stages import SESSION, PtyHarness, PtySubscriber
from tests.security import terminal_screens
from tests.security.terminal_screens import CORPUS, draw, draw_text, read_plain_rows, seek

from switchtower.core import errors, events
from switchtower.engines.pty import dialogs, prompts
from switchtower.engines.pty.terminal import PseudoTerminal

CASES: list[dict[str, Any]] = tomllib.loads((CORPUS / "terminal_prompts.toml").read_text())["case"]
DENIALS = {"y\n": "n\n", "yes\n": "no\n", "\n": "\x03"}
SCREENS = terminal_screens.load_expected()


@pytest.fixture
async def pty_harness(tmp_path: Path) -> AsyncIterator[PtyHarness]:
    opened = PtyHarness(tmp_path)
    await opened.open()
    yield opened
    await opened.runtime.stop()
    await opened.journal.close()


def list_cases(expect: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in CASES if case["expect"] == expect]


def skip_without(case: dict[str, Any]) -> None:
    for program in case.get("needs", ()):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def collect_questions(program: PtySubscriber) -> list[events.Approval]:
    return [requested.approval for requested in program.list_events(events.ApprovalRequested)]


# Programs that ask, and text that looks like a question


@pytest.mark.parametrize("case", list_cases("approval"))
async def test_a_program_that_asks_gets_the_answer_that_was_decided(pty_harness: PtyHarness, case: dict[str, Any]) -> None:
    skip_without(case)
    program = await pty_harness.run(case["run"])
    approval = await program.wait_for_question()
    types = case.get("types", "y\n")
    assert (approval.details["approve_text"], approval.details["deny_text"]) == (types, case.get("denies", DENIALS.get(types)))
    await program.decide(approval.id)
    await program.end()
    assert case.get("then", "got y") in program.output
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == [types]
    assert len(collect_questions(program)) == 1


@pytest.mark.parametrize("case", list_cases("input"))
async def test_a_program_that_asks_for_something_else_is_reported_to_wait(pty_harness: PtyHarness, case: dict[str, Any]) -> None:
    skip_without(case)
    program = await pty_harness.run(case["run"])
    shown = await program.wait_for_event(events.PromptShown)
    assert (shown.approval_id, shown.reason) == (None, case.get("reason", "prompt"))
    await program.cancel(force=True)
    await program.end()
    assert collect_questions(program) == []


@pytest.mark.parametrize("case", list_cases("quiet"))
async def test_text_that_looks_like_a_question_raises_none(pty_harness: PtyHarness, case: dict[str, Any]) -> None:
    skip_without(case)
    program = await pty_harness.run(case["run"])
    await program.end()
    assert "end" in program.output
    assert collect_questions(program) == []
    assert program.list_events(events.PromptShown) == []


def test_the_corpus_has_as_many_cases_as_were_seen() -> None:
    count = {expect: len(list_cases(expect)) for expect in ("approval", "input", "quiet")}
    assert count["approval"] + count["input"] >= 70
    assert count["quiet"] >= 37


async def test_a_log_line_is_not_asked_about_and_answers_nothing_later(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run(
        "echo 'INFO asked user: Continue? [y/N]'; sleep 0.7; read -p 'Delete everything? [y/N] ' x; echo got $x"
    )
    approval = await program.wait_for_question()
    assert approval.title == "Delete everything? [y/N]"
    await program.decide(approval.id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert "got n" in program.output
    assert len(collect_questions(program)) == 1


# Single keys

ASKS_TWICE = """
import os, termios, time, tty
before = termios.tcgetattr(0)
for question in ("Continue? [Y/n] ", "Delete everything? [Y/n] "):
    os.write(1, question.encode())
    tty.setraw(0)
    key = os.read(0, 1)
    termios.tcsetattr(0, termios.TCSANOW, before)
    os.write(1, {b"y": b"yes", b"n": b"no"}.get(key, b"by default: yes") + b"\\r\\n")
"""
"""As the `confirm` of several libraries does: the first key is the answer, and Enter stands for the default."""


@pytest.mark.parametrize(("verdict", "answer"), [(events.Verdict.APPROVE, "yes"), (events.Verdict.DENY_CONTINUE, "no")])
async def test_the_enter_behind_an_answer_does_not_answer_the_next_question(
    pty_harness: PtyHarness, verdict: events.Verdict, answer: str
) -> None:
    program = await pty_harness.run([sys.executable, "-c", ASKS_TWICE])
    await program.decide((await program.wait_for_question()).id, verdict)
    second = await program.wait_for_question(2)
    await program.wait_for_event(events.TerminalTyped)
    assert second.title == "Delete everything? [Y/n]"
    await program.decide(second.id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == [answer[0], "n"]
    assert program.output.split() == ["Continue?", "[Y/n]", answer, "Delete", "everything?", "[Y/n]", "no"]


async def test_a_line_editor_that_takes_keys_gets_its_enter(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("read -e -p 'Continue? [y/N] ' x; echo got $x; read -e -p 'Delete? [y/N] ' x; echo got $x")
    await program.decide((await program.wait_for_question()).id)
    await program.decide((await program.wait_for_question(2)).id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == ["y\n", "n\n"]
    assert "got y" in program.output
    assert "got n" in program.output


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
async def test_zsh_is_answered_by_a_key_and_gets_no_empty_line(pty_harness: PtyHarness) -> None:
    folder = pty_harness.folder / "files"
    folder.mkdir()
    (folder / "a").touch()
    (folder / "b").touch()
    program = await pty_harness.run(["env", "PS1=prompt> ", "zsh", "-f", "-i"])
    await program.wait_for_text("prompt> ")
    await program.send_keys("cd files && rm *\r")
    approval = await program.wait_for_question()
    assert approval.title.endswith("[yn]?")
    await program.decide(approval.id)
    await program.wait_for_text("[yn]? \x07y\r\n")
    await program.send_keys("exit\r")
    await program.end()
    assert list(folder.iterdir()) == []
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == ["y"]


# What was typed for a prompt that has gone

WAITS_FOR_SOMETHING_ELSE = """
import select, sys
sys.stdout.write("Proceed? (y/n) ")
sys.stdout.flush()
go = open("go")
select.select([go], [], [])
print()
print("got", input("Delete everything? [y/N] "))
"""
"""It looks like a program that asks, and waits for a pipe. Whether the terminal is among what it waits for cannot be seen."""


async def test_an_answer_that_is_not_read_is_taken_back_and_does_not_answer_the_next_question(pty_harness: PtyHarness) -> None:
    os.mkfifo(pty_harness.folder / "go")
    # Both ways, so that the program does not wait for the pipe to be opened, and sees no end of it.
    pipe = os.open(pty_harness.folder / "go", os.O_RDWR)
    try:
        program = await pty_harness.run([sys.executable, "-c", WAITS_FOR_SOMETHING_ELSE])
        false = await program.wait_for_question()
        await program.decide(false.id)
        warning = await program.wait_for_event(events.WarningRaised)
        assert (warning.code, warning.detail) == ("NOT_READ", false.id)
        os.write(pipe, b"go\n")
        await program.wait_until(lambda: any(asked.title == "Delete everything? [y/N]" for asked in collect_questions(program)))
        await program.decide(collect_questions(program)[-1].id, events.Verdict.DENY_CONTINUE)
        await program.end()
    finally:
        os.close(pipe)
    assert "got n" in program.output
    assert "got y" not in program.output


async def test_approving_a_prompt_that_no_one_reads_any_more_types_nothing(pty_harness: PtyHarness) -> None:
    """The line is still on the screen, and the program has gone on without a word."""
    os.mkfifo(pty_harness.folder / "go")
    pipe = os.open(pty_harness.folder / "go", os.O_RDWR)
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(InterruptedError()))\n"
        "print('Proceed? (y/n)')\n"
        "try: os.read(0, 99)\n"
        "except InterruptedError: pass\n"
        "open('gone', 'w').close()\n"
        "os.read(os.open('go', os.O_RDONLY), 99)\n"
        "print('got', input('Delete everything? [y/N] '))\n"
    )
    try:
        program = await pty_harness.run([sys.executable, "-c", code])
        approval = await program.wait_for_question()
        pid = (await program.wait_for_event(events.ToolCalled)).args["pid"]
        os.kill(pid, 10)
        async with asyncio.timeout(60):
            while not (pty_harness.folder / "gone").exists():
                await asyncio.sleep(0.01)
        await program.decide(approval.id)
        warning = await program.wait_for_event(events.WarningRaised)
        assert (warning.code, warning.detail) == ("NOT_TYPED", approval.id)
        assert program.list_events(events.TerminalTyped) == []
        os.write(pipe, b"go\n")
        await program.decide((await program.wait_for_question(2)).id, events.Verdict.DENY_CONTINUE)
        await program.end()
    finally:
        os.close(pipe)
    assert "got n" in program.output


async def test_what_is_flushed_is_the_input_and_not_the_output() -> None:
    terminal = PseudoTerminal(cols=80, rows=24)
    try:
        os.write(terminal.theirs, b"shown")
        terminal.write(b"typed\n")
        async with asyncio.timeout(60):
            while terminal.count_unread() < len(b"typed\n"):
                await asyncio.sleep(0.001)
        terminal.flush_input()
        assert terminal.count_unread() == 0
        assert terminal.read_available().startswith(b"shown")
    finally:
        terminal.close()


async def test_an_answer_is_not_typed_behind_input_that_still_waits(pty_harness: PtyHarness) -> None:
    """What was typed ahead will be read as the answer, and the decision would answer the next question."""
    code = (
        "import os, select, sys\n"
        "os.system('stty -echo')\n"
        "sys.stdout.write('Proceed? (y/n) '); sys.stdout.flush()\n"
        "select.select([open('go')], [], [])\n"
        "print(); print('first', input()); print('second', input('Delete everything? [y/N] '))\n"
    )
    os.mkfifo(pty_harness.folder / "go")
    pipe = os.open(pty_harness.folder / "go", os.O_RDWR)
    try:
        program = await pty_harness.run([sys.executable, "-c", code])
        await program.wait_for_question()
        await program.type("n\r")
        again = await program.wait_for_question(2)
        await program.decide(again.id)
        warning = await program.wait_for_event(events.WarningRaised)
        assert (warning.code, warning.detail) == ("NOT_TYPED", again.id)
        os.write(pipe, b"go\n")
        await program.wait_for_text("first n")
        await program.wait_until(lambda: collect_questions(program)[-1].title == "Delete everything? [y/N]")
        await program.decide(collect_questions(program)[-1].id, events.Verdict.DENY_CONTINUE)
        await program.end()
    finally:
        os.close(pipe)
    assert "second n" in program.output


# Recorded screens of real programs


@pytest.mark.parametrize("recorded", SCREENS, ids=lambda recorded: recorded["screen"])
def test_a_recorded_screen_shows_what_was_noted(recorded: dict[str, Any]) -> None:
    found = seek(draw(recorded["screen"]), recorded["tool"])
    expected = recorded["prompt"]
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert {
        "rule": found.rule,
        "reason": found.reason,
        "prompt": found.prompt,
        "approve": found.approve_text,
        "deny": found.deny_text,
        "flaw": found.flaw,
        "details": found.details,
        "options": list(found.options),
    } == expected


def test_every_recorded_screen_has_its_answer() -> None:
    files = {str(file.relative_to(terminal_screens.SCREENS)) for file in terminal_screens.SCREENS.glob("*/*.txt")}
    assert files == {recorded["screen"] for recorded in SCREENS}


@pytest.mark.parametrize("recorded", SCREENS, ids=lambda recorded: recorded["screen"])
def test_no_other_tool_s_rules_approve_a_recorded_screen(recorded: dict[str, Any]) -> None:
    """Whatever is drawn, only the rules of the tool itself, or of one with the same dialog, say what to type."""
    relatives = {"opencode": "kilo", "kilo": "opencode", "copilot": "claude", "claude": "copilot", "gemini": "iflow"}
    dialog = recorded["prompt"] is not None and recorded["prompt"]["rule"] != "yes-no-letters"
    for tool in terminal_screens.RULES.by_tool:
        if tool in (recorded["tool"], relatives.get(recorded["tool"]), "generic"):
            continue
        found = seek(draw(recorded["screen"]), tool)
        assert not dialog or found is None or found.approve_text is None or found.flaw, (tool, found)


COMPOSERS = {
    "claude": ("claude-code-2.1.197/quoted-by-model-fence.80x24.txt", 4),
    "codex": ("codex-0.166.0/welcome.80x24.txt", 4),
    "gemini": ("gemini-cli-0.61.0/after-approve.80x24.txt", 8),
    "opencode": ("opencode-1.18.33/after-approve.80x24.txt", 6),
    "kilo": ("kilo-7.7.9/after-esc-enter.80x24.txt", 6),
    "cline": ("cline-3.0.65/after-y.80x24.txt", 6),
    "kimi": ("kimi-cli-1.47.0/after-digit-1.80x24.txt", 4),
    "vibe": ("mistral-vibe-3.0.2/after-digit-1.80x24.txt", 5),
    "copilot": ("copilot-1.0.102/after-esc.80x24.txt", 5),
    "qwen": ("qwen-code-0.15.10/after-digit-1.80x24.txt", 5),
}
"""Of each tool, a screen on which it waits for the user's next message, and how many rows of it belong to that."""


@pytest.mark.parametrize("indent", [0, 2])
@pytest.mark.parametrize(
    "recorded",
    [each for each in SCREENS if each["prompt"] and each["tool"] in COMPOSERS and ".80x24" in each["screen"]],
    ids=lambda recorded: recorded["screen"],
)
def test_a_dialog_that_is_quoted_whole_above_the_composer_raises_no_approval(recorded: dict[str, Any], indent: int) -> None:
    """A model repeats a dialog to the last character, footer and all."""
    name, rows = COMPOSERS[recorded["tool"]]
    quoted = [" " * indent + row for row in read_plain_rows(recorded["screen"])]
    composer = read_plain_rows(name)[-rows:]
    screen = draw_text("\r\n".join([*quoted, "", *composer][-24:]))
    found = seek(screen, recorded["tool"])
    assert found is None or found.approve_text is None, found


# A dialog is shown whole or cannot be approved

DIVIDER = "─" * 80
CLAUDE_OPTIONS = " Do you want to proceed?\r\n ❯ 1. Yes\r\n   2. No\r\n\r\n Esc to cancel · Tab to amend"


def make_claude_screen(command: list[str], *, before: str = "") -> str:
    rows = "".join(f"   {row}\r\n" for row in command)
    return f"{before}{DIVIDER}\r\n Bash command\r\n\r\n{rows}   Runs it\r\n\r\n{CLAUDE_OPTIONS}"


def make_codex_screen(command: list[str]) -> str:
    rows = "".join(f"  {row}\r\n" for row in command)
    return (
        f"  Would you like to run the following command?\r\n\r\n{rows}\r\n\r\n› 1. Yes, proceed (y)\r\n"
        "  2. No, and tell Codex what to do differently (esc)\r\n\r\n  Press enter to confirm or esc to cancel"
    )


def test_a_long_command_is_read_from_its_first_line_after_that_has_scrolled_off() -> None:
    command = [f"line {number}" for number in range(60)]
    found = seek(draw_text("earlier output\r\n" * 5 + make_claude_screen(command)), "claude")
    assert found is not None
    assert found.flaw == ""
    assert [row.strip() for row in found.details.split("\n")] == ["Bash command", "", *command, "Runs it"]


def test_two_long_commands_with_the_same_end_are_two_questions() -> None:
    one, two = (
        seek(draw_text(make_claude_screen([first, *(f"line {number}" for number in range(60))])), "claude")
        for first in ("ls", "rm -rf ~")
    )
    assert one is not None
    assert two is not None
    assert not one.is_same_request(two)


@pytest.mark.parametrize(
    "begins_another_picture",
    ["\x1b[H", "\x1b[2J\x1b[H", "\x1b[3J", "\x1b[24A", "\x1bc"],
    ids=["home", "clear", "clear history", "cursor up", "reset"],
)
def test_the_end_of_one_command_is_not_joined_to_the_beginning_of_another(begins_another_picture: str) -> None:
    """The first command's top has scrolled off; of the second only the last rows are drawn."""
    harmless = make_claude_screen([f"echo {number}" for number in range(60)])
    tail = make_claude_screen(["rm -rf ~", *(f"line {number}" for number in range(60))]).split("\r\n")[-24:]
    drawn = "\r\n".join(f"{row}\x1b[K" for row in tail)
    found = seek(draw_text(f"{harmless}{begins_another_picture}\x1b[H{drawn}"), "claude")
    assert found is not None
    assert found.flaw == dialogs.NO_BEGINNING
    assert "echo" not in found.details


def test_a_history_that_is_too_long_to_be_kept_is_not_taken_for_the_beginning() -> None:
    found = seek(draw_text(make_claude_screen([f"line {number}" for number in range(2_000)])), "claude")
    assert found is not None
    assert found.flaw == dialogs.NO_BEGINNING


@pytest.mark.parametrize(
    "line",
    [
        "─" * 74,
        "═══ $(rm -rf ~)",
        "─── ; rm -rf ~",
        "╭────────╮",
        "╰──╯ rm -rf ~",
        "| tee /etc/passwd",
        "cat x |",
        "│ rm -rf ~ │",
        "1. Yes",
        "❯ 1. Yes",
        "Do you want to proceed?",
        "Esc to cancel",
    ],
)
@pytest.mark.parametrize("tool", ["claude", "codex"])
def test_no_line_of_a_command_can_hide_another(tool: str, line: str) -> None:
    command = ["rm -rf ~", line, "touch x"]
    found = seek(draw_text(make_claude_screen(command) if tool == "claude" else make_codex_screen(command)), tool)
    assert found is not None
    assert found.flaw or ("rm -rf ~" in found.details and "touch x" in found.details), found
    if line.strip("─╭╮"):
        assert found.flaw or line in found.details


def test_a_command_that_asks_the_question_itself_cannot_be_approved() -> None:
    found = seek(
        draw_text(make_codex_screen(["$ rm -rf ~", "Would you like to run the following command?", "$ touch x"])), "codex"
    )
    assert found is not None
    assert found.flaw == dialogs.AMBIGUOUS


BOX = "│ {:<74} │"


@pytest.mark.parametrize(
    "line", ["╭──────────╮", "─" * 70, "│ x │", "╰──────────╯", "Allow execution of: 'touch'?", "› 1. Yes, allow once"]
)
def test_no_line_in_a_box_can_hide_another(line: str) -> None:
    rows = ["?  Shell (Runs it) ←", "", "rm -rf ~", line, "touch x", "", "Allow execution of: 'touch'?", ""]
    rows += ["› 1. Yes, allow once", "  2. Always allow", "  3. No, suggest changes (esc)"]
    text = "\r\n".join(
        ["╭" + "─" * 76 + "╮", *map(BOX.format, rows), "╰" + "─" * 76 + "╯", "", "⠏ Waiting for user confirmation..."]
    )
    found = seek(draw_text(text), "qwen")
    assert found is not None
    assert "rm -rf ~" in found.details
    assert "touch x" in found.details


def test_a_question_inside_of_a_command_is_not_the_dialog_s_when_that_has_scrolled_off() -> None:
    """The box is taller than the screen, and its first rows are gone."""
    rows = [
        "rm -rf ~",
        *(f"line {number}" for number in range(20)),
        "Shell is requesting approval to run command:",
        "",
        "touch x",
        "",
    ]
    rows += [
        "→ [1] Approve once",
        "  [2] Approve for this session",
        "  [3] Reject",
        "",
        "  ▲/▼ select  1/2/3/4 choose  ↵ confirm",
    ]
    text = "\r\n".join([*map(BOX.format, rows), "╰" + "─" * 76 + "╯", "─" * 80, "agent (fake-1)", "context: 0.0%"])
    screen = draw_text(text)
    found = seek(screen, "kimi")
    assert found is not None
    assert found.flaw
    without_history = prompts.find_prompt(screen.render_lines(), screen.cursor, "kimi", terminal_screens.RULES, columns=80)
    assert without_history is not None
    assert without_history.flaw


def test_a_diff_of_which_lines_are_missing_cannot_be_approved() -> None:
    rows = read_plain_rows("codex-0.166.0/write-prompt.80x24.txt")
    assert (found := seek(draw_text("\r\n".join(rows)), "codex")) is not None
    assert found.flaw == ""
    without = [row for row in rows if "+world" not in row]
    assert (found := seek(draw_text("\r\n".join(without)), "codex")) is not None
    assert found.flaw == dialogs.CUT


def test_a_dialog_that_is_not_drawn_to_its_end_cannot_be_approved() -> None:
    rows = terminal_screens.read_rows("opencode-1.18.33/shell-prompt.80x24.txt")
    question = max(number for number, row in enumerate(rows) if "Permission required" in row)
    rows = [row for number, row in enumerate(rows) if number < question or "$ touch" not in row]
    found = seek(draw_text("\r\n".join(rows)), "opencode")
    assert found is not None
    assert found.flaw == dialogs.NOT_SHOWN


# The selected choice


def make_opencode_screen(*, selected: int | None) -> str:
    choices = [
        f"\x1b[48;2;245;167;66m{name}\x1b[48;2;30;30;30m" if number == selected else name
        for number, name in enumerate(("Allow once", "Allow always", "Reject"))
    ]
    rows = [
        "△ Permission required",
        "  # Shell command",
        "",
        "$ touch x",
        "",
        "",
        " " + "   ".join(choices) + "  ctrl+f fullscreen",
    ]
    return "\r\n\x1b[48;2;30;30;30m" + "\r\n".join(f"  ┃  {row}" for row in rows)


@pytest.mark.parametrize("tool", ["opencode", "kilo"])
@pytest.mark.parametrize("selected", [0, 1, 2, None])
def test_only_the_selected_choice_is_taken_by_enter(tool: str, selected: int | None) -> None:
    found = seek(draw_text(make_opencode_screen(selected=selected)), tool)
    assert found is not None
    assert found.approve_text == "\r"
    assert found.flaw == ("" if selected == 0 else dialogs.NOT_SELECTED)


# Through the runtime

DIALOG = """
import os, sys, termios, tty
tty.setraw(0)
sys.stdout.write({text!r})
sys.stdout.flush()
while True:
    key = os.read(0, 99)
    if key in {ends!r}:
        break
sys.stdout.write("\\x1b[2J\\x1b[Hgot " + repr(key))
sys.stdout.flush()
"""


def make_dialog_screen(text: str, *, ends: tuple[bytes, ...] = (b"1", b"\x1b")) -> list[str]:
    return [sys.executable, "-c", DIALOG.format(text=text, ends=ends)]


async def test_a_dialog_that_is_not_shown_in_full_can_be_denied_and_not_approved(pty_harness: PtyHarness) -> None:
    rows = [f"line {number}" for number in range(30)]
    text = "\r\n".join(make_claude_screen(rows).split("\r\n")[-22:])
    program = await pty_harness.run(make_dialog_screen(text), tool="claude")
    approval = await program.wait_for_question()
    assert approval.options == ("deny",)
    assert approval.details["cannot_approve"] == dialogs.NO_BEGINNING
    assert approval.details["approve_text"] == ""
    with pytest.raises(errors.NotApprovable) as refused:
        await program.decide(approval.id)
    assert f"tower attach {SESSION}" in str(refused.value)
    assert program.list_events(events.TerminalTyped) == []
    await program.decide(approval.id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert r"got b'\x1b'" in program.output


async def test_a_long_command_is_shown_whole_in_its_approval(pty_harness: PtyHarness) -> None:
    rows = [f"line {number}" for number in range(30)]
    program = await pty_harness.run(make_dialog_screen(make_claude_screen(rows)), tool="claude", cols=80, rows=24)
    approval = await program.wait_for_question()
    assert approval.options == ("approve", "deny")
    shown = approval.details["args"]["screen"]
    assert all(row in shown for row in rows)
    await program.decide(approval.id)
    await program.end()
    assert "got b'1'" in program.output


async def test_a_dialog_in_a_terminal_that_collects_lines_is_only_text(pty_harness: PtyHarness) -> None:
    (pty_harness.folder / "text").write_text(make_claude_screen(["touch x"]).replace("\r\n", "\n"))
    program = await pty_harness.run("cat text; sleep 0.7; echo end", tool="claude", cols=80, rows=24)
    await program.end()
    assert collect_questions(program) == []


async def test_a_spinner_does_not_hide_a_dialog(pty_harness: PtyHarness) -> None:
    spin = (
        "import threading, time\n"
        "def spin():\n"
        "    while True:\n"
        "        for mark in '|/-+':\n"
        "            os.write(1, b'\\x1b7\\x1b[1;1H' + mark.encode() + b'\\x1b8'); time.sleep(0.03)\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
    )
    argv = make_dialog_screen("\r\n" + make_claude_screen(["touch x"]))
    argv[2] = argv[2].replace("while True:\n    key", spin + "while True:\n    key", 1)
    program = await pty_harness.run(argv, tool="claude", cols=80, rows=24)
    await program.decide((await program.wait_for_question()).id)
    await program.end()
    assert "got b'1'" in program.output
    assert len(collect_questions(program)) == 1


async def test_an_answered_dialog_that_stays_on_the_screen_is_not_asked_again(pty_harness: PtyHarness) -> None:
    """As Gemini's dialog about the folder does while the program restarts, with a row more on the screen."""
    text = make_claude_screen(["touch x"])
    code = (
        "import os, sys, time, tty\n"
        "tty.setraw(0)\n"
        f"dialog = {text!r}\n"
        "def draw(text):\n"
        "    os.write(1, text.encode())\n"
        "draw('\\x1b[2J\\x1b[H' + dialog)\n"
        "os.read(0, 99)\n"
        "draw('\\x1b[2J\\x1b[Hrestarting\\r\\n' + dialog)\n"
        "time.sleep(0.5)\n"
        "draw('\\x1b[2J\\x1b[Hrestarting once more\\r\\n\\r\\n' + dialog)\n"
        "time.sleep(0.5)\n"
        "draw('\\x1b[2J\\x1b[Hworking')\n"
        "time.sleep(0.5)\n"
        "draw('\\x1b[2J\\x1b[H' + dialog)\n"
        "print('got', os.read(0, 99))\n"
    )
    program = await pty_harness.run([sys.executable, "-c", code], tool="claude", cols=80, rows=24)
    first = await program.wait_for_question()
    await program.decide(first.id)
    second = await program.wait_for_question(2)
    assert "working" in program.output, "the same question is asked again only after it has been off the screen"
    await program.decide(second.id)
    await program.end()
    assert len(collect_questions(program)) == 2
    assert "got b'1'" in program.output


async def test_a_denied_dialog_is_not_asked_again_before_the_program_ends(pty_harness: PtyHarness) -> None:
    # Esc changes nothing on the screen.
    program = await pty_harness.run(
        make_dialog_screen(make_claude_screen(["touch x"]), ends=(b"x",)), tool="claude", cols=80, rows=24
    )
    approval = await program.wait_for_question()
    await program.decide(approval.id, events.Verdict.DENY_STOP)
    completed = await program.end()
    assert completed.outcome is events.Outcome.DENIED
    assert len(collect_questions(program)) == 1


async def test_an_arrow_key_at_the_terminal_makes_enter_refused(pty_harness: PtyHarness) -> None:
    once, always = make_opencode_screen(selected=0), make_opencode_screen(selected=1)
    code = (
        "import os, tty\n"
        "tty.setraw(0)\n"
        f"os.write(1, {once!r}.encode())\n"
        "os.read(0, 99)\n"
        f"os.write(1, ('\\x1b[2J\\x1b[H' + {always!r}).encode())\n"
        "print('got', os.read(0, 99))\n"
    )
    program = await pty_harness.run([sys.executable, "-c", code], tool="opencode", cols=80, rows=24)
    first = await program.wait_for_question()
    assert first.options == ("approve", "deny")
    await program.send_keys("\x1b[C")
    second = await program.wait_for_question(2)
    assert second.options == ("deny",)
    with pytest.raises(errors.NotApprovable):
        await program.decide(second.id)
    await program.decide(second.id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert r"got b'\x1b'" in program.output
