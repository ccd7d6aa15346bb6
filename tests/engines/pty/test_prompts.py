"""Prompts: what recorded screens show is seen, whatever the chunks; what only looks like a prompt is not; news comes once."""

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.security import terminal_screens

from switchtower.engines.pty import prompts, rules, screen, screen_rows

SCREENS = Path(__file__).parent / "screens"
NAMES = sorted(file.stem for file in SCREENS.glob("*.ansi"))
RULES = rules.load_rules()
TOOLS = ["codex", "claude", "gemini", "iflow", "opencode"]


def find_prompt(
    terminal: screen.TerminalScreen, tool: str = "generic", ruleset: rules.PromptRules = RULES
) -> prompts.ScreenPrompt | None:
    return prompts.find_prompt(
        terminal.render_lines(),
        terminal.cursor,
        tool,
        ruleset,
        columns=terminal.cols,
        history=terminal.list_history(),
        scrolled=terminal.scrolled,
        background=terminal.find_background,
    )


def find_prompt_on(
    text: str, tool: str = "generic", *, cols: int = 80, ruleset: rules.PromptRules = RULES
) -> prompts.ScreenPrompt | None:
    terminal = screen.TerminalScreen(cols, 24)
    terminal.feed(text)
    terminal.update()
    return find_prompt(terminal, tool, ruleset)


def to_recorded_form(found: prompts.ScreenPrompt | None) -> dict[str, Any] | None:
    if found is None:
        return None
    fields = ("rule", "prompt", "reason", "approve_text", "deny_text", "details")
    return {**{field: getattr(found, field) for field in fields}, "options": list(found.options)}


# Recorded screens


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_screen_shows_what_was_noted(name: str):
    expected = json.loads((SCREENS / f"{name}.json").read_text())
    output = (SCREENS / f"{name}.ansi").read_bytes()
    assert to_recorded_form(find_prompt_on(output.decode(), expected["tool"])) == expected["prompt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_screen_shows_the_same_when_it_comes_byte_by_byte(name: str):
    expected = json.loads((SCREENS / f"{name}.json").read_text())
    terminal = screen.TerminalScreen(80, 24)
    decoder = codecs.getincrementaldecoder("utf-8")()
    for byte in (SCREENS / f"{name}.ansi").read_bytes():
        terminal.feed(decoder.decode(bytes([byte])))
        terminal.update()
    assert to_recorded_form(find_prompt(terminal, expected["tool"])) == expected["prompt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_screen_shows_the_same_after_a_repaint(name: str):
    expected = json.loads((SCREENS / f"{name}.json").read_text())
    terminal = screen.TerminalScreen(80, 24)
    terminal.feed((SCREENS / f"{name}.ansi").read_bytes().decode())
    terminal.update()
    assert to_recorded_form(find_prompt_on(terminal.render_repaint(), expected["tool"])) == expected["prompt"]


def test_there_are_enough_screens_of_each_kind():
    count = {kind: sum(name.startswith(f"{kind}-") for name in NAMES) for kind in (*TOOLS, "generic", "none")}
    assert all(count[tool] >= 3 for tool in TOOLS)
    assert count["generic"] >= 12
    assert count["none"] >= 10
    assert {file.stem for file in SCREENS.glob("*.json")} == set(NAMES)


# The words every program uses


@pytest.mark.parametrize(
    "question",
    [
        "proceed?",
        "Continue?",
        "Do you want to continue?",
        "Are you sure?",
        "Are you sure you want to delete it?",
        "Please confirm:",
        "Confirm?",
        "Overwrite file? (y/n)",
        "Overwrite file? [y/N]",
        "Overwrite file? [Y/n]",
        "Overwrite file? (Y/n) ›",
        "Delete (yes/no)?",
        "Reload? [y/n/a]",
        "Allow access to the network?",
        "Permission to write here?",
        "Approve this plan?",
    ],
)
@pytest.mark.parametrize("ending", ["", " ", "\r\n"])
def test_a_generic_question_asks_for_permission(question: str, ending: str):
    question = question.removesuffix(" ›")
    found = find_prompt_on(f"Some output.\r\n\x1b[1;33m{question}\x1b[0m{ending}")
    assert found is not None
    assert found.reason == "permission"
    assert found.prompt == question
    assert found.approve_text in ("y\n", "yes\n")
    assert found.deny_text in ("n\n", "no\n")


@pytest.mark.parametrize(
    "text",
    [
        "Press any key to continue...",
        "Press Enter to continue",
        "Press [ENTER] to continue or Ctrl-c to cancel.",
        "Press RETURN/ENTER to continue or any other key to abort:",
        "Hit enter to proceed",
        "-- Press enter to exit --",
    ],
)
def test_waiting_for_a_key_is_answered_by_enter_and_refused_by_an_interrupt(text: str):
    found = find_prompt_on(text)
    assert found is not None
    assert (found.approve_text, found.deny_text) == ("\n", "\x03")


@pytest.mark.parametrize("text", ["Password: ", "Enter passphrase for key 'x': ", "ada@host's password: ", "GitHub token: "])
def test_a_secret_is_asked_for_without_any_text_to_write(text: str):
    found = find_prompt_on(text)
    assert found is not None
    assert (found.reason, found.rule, found.approve_text, found.deny_text) == ("prompt", "password", None, None)


@pytest.mark.parametrize(
    "text",
    [
        "$ ",
        "# ",
        "ada@host:~/src$ ",
        "(venv) ada@host:~$ continue?",
        "sh-5.2# rm -i x # are you sure?",
        "host% proceed?",
        "➜  src git:(main) ✗ ",
        "> what does continue? mean",
        ">>> confirm?",
        "❯ proceed?",
        "Continue? [y/N] y",
        "Continue? [y/N] y\r\n",
        "Continue? [y/N] n\r\nSkipped.\r\n",
        "Continue? [y/N]\r\n\r\n",
        "Proceed?\r\nDone.\r\n",
        "He asked: continue? Nobody knew.",
        "Continue? [y/N] \x1b[1;1H",
        "Continue? [y/N] \x1b[5;1Hsomething below\x1b[1;17H",
        "Building: 45%",
        "Downloading https:",
        "Loading...",
        "error:",
        "",
    ],
)
def test_what_only_looks_like_a_prompt_is_none(text: str):
    assert find_prompt_on(text) is None


def test_a_question_wrapped_by_the_terminal_is_one_question():
    found = find_prompt_on("Remove the folder /srv/data and everything in it? [y/N] ", cols=20)
    assert found is not None
    assert found.prompt == "Remove the folder /srv/data and everything in it? [y/N]"


def test_a_full_row_of_typing_above_does_not_hide_a_question():
    typed = "ada@host:~$ " + "x" * 67
    assert len(typed) == 79
    assert find_prompt_on(f"{typed}\r\nContinue? [y/N] ") is not None


def test_a_question_behind_wide_characters_ends_at_the_cursor():
    assert find_prompt_on("删除文件？(y/n) ") is not None
    assert find_prompt_on("删除文件？(y/n) 是") is None


def test_a_tools_own_rules_come_first_and_the_generic_ones_serve_it_too():
    claude = (SCREENS / "claude-bash.ansi").read_bytes().decode()
    assert find_prompt_on(claude, "/usr/local/bin/claude") == find_prompt_on(claude, "claude")
    own = find_prompt_on(claude, "claude")
    other = find_prompt_on(claude, "some-other-tool")
    assert own is not None
    assert own.approve_text == "1"
    # Whoever does not know the tool sees a menu, and writes nothing by himself.
    assert other is not None
    assert (other.reason, other.approve_text) == ("choice", None)
    assert find_prompt_on("Continue? [y/N] ", "claude") is not None


def test_an_answered_dialog_is_gone():
    terminal = screen.TerminalScreen(80, 24)
    terminal.feed((SCREENS / "claude-bash.ansi").read_bytes().decode())
    terminal.update()
    assert find_prompt(terminal, "claude") is not None
    terminal.feed("\x1b[2J\x1b[H● Bash(rm -rf build)\r\n  ⎿  Done\r\n\r\n❯ ")
    terminal.update()
    assert find_prompt(terminal, "claude") is None


def test_a_dialog_scrolled_up_by_later_output_is_history():
    text = "Do you want to proceed?\r\n❯ 1. Yes\r\n  2. No\r\n"
    assert find_prompt_on(text, "claude") is not None
    assert find_prompt_on(text + "".join(f"output {n}\r\n" for n in range(8)), "claude") is None


# Whatever stands there

_LINES = st.lists(
    st.one_of(
        st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=90),
        st.sampled_from(
            ["│ Do you want to proceed? │", "❯ 1. Yes", "  2. No", "╭────╮", "╰────╯", "Continue? [y/N] ", "? Pick", "❯ a"]
        ),
    ),
    max_size=30,
)


@given(_LINES, st.tuples(st.integers(-2, 40), st.integers(-2, 200)), st.sampled_from([*TOOLS, "", "x/y"]), st.integers(0, 90))
@settings(max_examples=100, deadline=None)
def test_no_screen_makes_it_fail_and_what_it_says_is_short(lines: list[str], cursor: tuple[int, int], tool: str, columns: int):
    found = prompts.find_prompt(lines, cursor, tool, RULES, columns=columns)
    if found is not None:
        assert 0 < len(found.prompt) <= screen_rows.PROMPT_LIMIT
        assert "\n" not in found.prompt
        assert not any("\u2500" <= char <= "\u259f" for char in found.prompt)
        assert len(found.details) <= screen_rows.DETAILS_LIMIT
        assert len(found.options) <= prompts.OPTIONS_LIMIT
        assert (found.approve_text is None) == (found.deny_text is None)


def test_long_questions_and_details_are_cut():
    found = find_prompt_on("".join("detail " * 130 + "\r\n" for _ in range(20)) + "x" * 500 + " continue? [y/N] ", cols=950)
    assert found is not None
    assert len(found.prompt) == screen_rows.PROMPT_LIMIT
    assert found.prompt.endswith("continue? [y/N]")
    assert len(found.details) == screen_rows.DETAILS_LIMIT


def test_a_question_that_is_too_long_for_a_title_is_shown_whole_below_it():
    question = "Run rm -rf / and then " + "x" * 300 + " continue? [y/N]"
    found = find_prompt_on(question + " ", cols=500)
    assert found is not None
    assert found.details == question
    assert found.flaw == ""


def test_a_question_of_which_only_the_end_can_be_shown_cannot_be_approved():
    found = find_prompt_on("Run rm -rf / and then " + "x" * 700 + " continue? [y/N] ", cols=60)
    assert found is not None
    assert found.flaw


# Rules


def test_every_shipped_rule_has_a_recorded_screen():
    recordings = [*_list_recorded(), *terminal_screens.load_expected()]
    shown = {
        (recorded["tool"] if recorded["tool"] in RULES.by_tool else "generic", recorded["prompt"]["rule"])
        for recorded in recordings
        if recorded["prompt"]
    }
    assert {(tool, each.rule.name) for tool, compiled in RULES.by_tool.items() for each in compiled} - shown == set()


def _list_recorded() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in SCREENS.glob("*.json")]


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_a_users_rule_comes_before_the_shipped_ones(tmp_path: Path):
    extra = write(
        tmp_path, "[[rule]]\nname='deploy'\nreason='permission'\nmatch='ship it\\?'\napprove=\"go\\n\"\ndeny=\"stop\\n\"\n"
    )
    found = find_prompt_on("Ready. Ship it? ", ruleset=rules.load_rules(extra))
    assert found is not None
    assert (found.rule, found.approve_text, found.deny_text) == ("deploy", "go\n", "stop\n")


def test_a_users_rule_of_the_same_name_replaces_or_switches_off_the_shipped_one(tmp_path: Path):
    extra = write(tmp_path, "[[rule]]\nname='yes-no'\nreason='permission'\nmatch='x'\nenabled=false\n")
    assert find_prompt_on("Overwrite it now [y/N] ") is not None
    assert find_prompt_on("Overwrite it now [y/N] ", ruleset=rules.load_rules(extra)) is None


def test_a_users_rule_for_one_tool_serves_no_other(tmp_path: Path):
    extra = write(tmp_path, "[[rule]]\nname='go'\ntool='Mine'\nreason='prompt'\nmatch='go on'\n")
    ruleset = rules.load_rules(extra)
    assert find_prompt_on("go on", "mine", ruleset=ruleset) is not None
    assert find_prompt_on("go on", "codex", ruleset=ruleset) is None


def test_a_user_may_name_lines_that_somebody_types(tmp_path: Path):
    extra = write(tmp_path, "ignore=['^mysh: ']\n")
    assert find_prompt_on("mysh: continue? ") is not None
    assert find_prompt_on("mysh: continue? ", ruleset=rules.load_rules(extra)) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[[rule]]\nname='bad'\nreason='permission'\nmatch='('\n", "`bad`: `match` is no regular expression"),
        ("[[rule]]\nname='bad'\nreason='permission'\nmatch='x'\nunless='['\n", "`bad`: `unless` is no regular expression"),
        ("[[rule]]\nname='bad'\nreason='maybe'\nmatch='x'\n", "`bad`: Invalid enum value"),
        ("[[rule]]\nname='bad'\nmatch='x'\n", "`bad`: Object missing required field `reason`"),
        ("[[rule]]\nname='bad'\nreason='prompt'\nmatch='x'\ncolour='red'\n", "`bad`: Object contains unknown field `colour`"),
        ("[[rule]]\nname='bad'\nreason='prompt'\nmatch='x'\napprove='y'\n", "`bad`: `approve` and `deny` go together"),
        ("[[rule]]\nname='bad'\nreason='choice'\nkind='dialog'\nmatch='x'\n", "`bad`: a dialog needs `options`"),
        ("[[rule]]\nname='bad'\nreason='prompt'\nmatch='x'\n" * 2, "`bad`: there are two of that name"),
        ("[[rule]]\nreason='prompt'\nmatch=3\n", "`number 1`: "),
        ("ignore=['(']\n", "`ignore`: `ignore` is no regular expression"),
        ("not toml at all", "mine.toml`: "),
        ("rules=[]\n", "unknown field `rules`"),
        ("x" * (rules.FILE_LIMIT + 1), "larger than"),
    ],
)
def test_a_broken_rules_file_is_refused_by_name(tmp_path: Path, text: str, names: str):
    file = write(tmp_path, text)
    with pytest.raises(rules.InvalidPromptRules) as refused:
        rules.load_rules(file)
    assert str(file) in str(refused.value)
    assert names in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", None])
def test_a_rules_file_that_is_no_text_or_missing(tmp_path: Path, content: bytes | None):
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    if content == b"":
        assert rules.load_rules(file).by_tool == {tool: tuple(each) for tool, each in RULES.by_tool.items()}
    else:
        with pytest.raises(rules.InvalidPromptRules, match=r"mine\.toml"):
            rules.load_rules(file)


# News


def make_prompt(text: str = "Continue? [y/N]", *, waits: Any = "behind", row: int = 3, details: str = "") -> prompts.ScreenPrompt:
    return prompts.ScreenPrompt("permission", text, "yes-no", "y\n", "n\n", details, (), waits, row)


def test_a_prompt_is_reported_once_and_its_going_once():
    watch = prompts.PromptWatcher()
    asked = make_prompt()
    assert watch.update(None) == prompts.PromptChange()
    assert watch.update(asked) == prompts.PromptChange(new=asked)
    assert watch.current_prompt is asked
    assert watch.update(asked) == prompts.PromptChange()
    assert watch.update(make_prompt(row=5)) == prompts.PromptChange(), "redrawn elsewhere"
    assert watch.update(None) == prompts.PromptChange(gone=asked)
    assert watch.current_prompt is None
    assert watch.update(None) == prompts.PromptChange()


def test_the_same_words_after_they_had_gone_are_a_new_prompt():
    watch = prompts.PromptWatcher()
    assert watch.update(make_prompt()).new
    assert watch.update(None).gone
    assert watch.update(make_prompt()).new


def test_another_prompt_takes_the_place_of_the_first():
    watch = prompts.PromptWatcher()
    first, second = make_prompt("One? (y/n)"), make_prompt("Two? (y/n)")
    watch.update(first)
    assert watch.update(second) == prompts.PromptChange(new=second, gone=first)


def test_the_same_words_about_another_command_are_another_prompt():
    watch = prompts.PromptWatcher()
    first, second = make_prompt("Proceed?", details="rm a"), make_prompt("Proceed?", details="rm b")
    watch.update(first)
    assert watch.update(second) == prompts.PromptChange(new=second, gone=first)


def test_what_stands_above_a_question_without_approval_may_change():
    watch = prompts.PromptWatcher()
    watch.update(prompts.ScreenPrompt("prompt", "Name:", "question", details="10%"))
    assert watch.update(prompts.ScreenPrompt("prompt", "Name:", "question", details="20%")) == prompts.PromptChange()


def test_the_same_question_asked_again_after_an_answer_is_new():
    watch = prompts.PromptWatcher()
    first = make_prompt(row=3)
    watch.update(first)
    watch.on_input()
    assert watch.update(first) == prompts.PromptChange(), "the program has not reacted yet"
    again = make_prompt(row=4, details="Continue? [y/N] y")
    assert watch.update(again) == prompts.PromptChange(new=again, gone=first)
    assert watch.update(again) == prompts.PromptChange()


def test_a_question_answered_by_a_bare_enter_has_gone_and_stays_gone():
    watch = prompts.PromptWatcher()
    asked = make_prompt()
    watch.update(asked)
    assert watch.update(make_prompt(waits="below")) == prompts.PromptChange(gone=asked)
    assert watch.update(make_prompt(waits="below")) == prompts.PromptChange()
    assert watch.update(None) == prompts.PromptChange()
    assert watch.update(make_prompt(waits="below")).new, "and later it may be asked with the cursor below"


def test_a_whole_conversation_on_a_real_screen():
    terminal, watch = screen.TerminalScreen(80, 24), prompts.PromptWatcher()

    def after(text: str) -> tuple[str | None, str | None]:
        terminal.feed(text)
        terminal.update()
        news = watch.update(find_prompt(terminal))
        return (news.new and news.new.prompt, news.gone and news.gone.prompt)

    assert after("Remove a? (y") == (None, None)
    assert after("/n) ") == ("Remove a? (y/n)", None)
    watch.on_input()
    assert after("y") == (None, "Remove a? (y/n)")
    assert after("\r\nRemove b? (y/n) ") == ("Remove b? (y/n)", None)
    assert after("\x1b]0;title\x07") == (None, None)
    assert after("\r\nworking") == (None, "Remove b? (y/n)")
    assert after("\r\nPassword: ") == ("Password:", None)
    assert after("\r\n") == (None, "Password:")
    assert after("$ ") == (None, None)
