"""What is written: history, commands, names of files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.tui.state import input
from switchtower.tui.state.input import MOST_ENTRIES, InputHistory

# History


def test_one_walks_back_and_forth_and_finds_the_draft_again() -> None:
    history = InputHistory(["one", "two"])
    assert history.go_back("dra") == "two"
    assert history.go_back("two") == "one"
    assert history.go_back("one") is None
    assert history.go_forward() == "two"
    assert history.go_forward() == "dra"
    assert history.go_forward() is None


def test_the_same_twice_is_remembered_once_and_blanks_never() -> None:
    history = InputHistory()
    assert [history.add(text) for text in ("a", "a", " ", "b")] == [True, False, False, True]
    assert history.entries == ["a", "b"]


@given(st.lists(st.text(min_size=1, max_size=3), max_size=20))
def test_walking_back_gives_what_was_sent_in_reverse(texts: list[str]) -> None:
    history = InputHistory(texts)
    walked = []
    while (text := history.go_back("")) is not None:
        walked.append(text)
    assert walked == texts[::-1]


def test_history_is_bounded() -> None:
    history = InputHistory(str(number) for number in range(2 * MOST_ENTRIES))
    history.add("x" * 100_000)
    assert len(history.entries) == MOST_ENTRIES


# Commands


def test_a_command_is_told_from_what_is_said() -> None:
    typed = input.parse_slash("/model  demo ")
    assert isinstance(typed, input.SlashInput)
    assert (typed.command.name, typed.rest) == ("model", "demo")
    assert input.parse_slash("hello /model") is None
    assert input.parse_slash("/etc/hosts is odd") is None
    assert input.parse_slash("// not a command") is None
    assert input.parse_slash("/review src", ["review"]) is None


def test_an_alias_is_the_command() -> None:
    typed = input.parse_slash("/q")
    assert isinstance(typed, input.SlashInput)
    assert typed.command.name == "exit"


def test_a_mistyped_command_is_not_sent_and_says_what_was_meant() -> None:
    assert input.parse_slash("/modle") == input.UnknownSlashCommand("modle", "model")
    assert input.parse_slash("/reviw", ["review"]) == input.UnknownSlashCommand("reviw", "review")
    assert input.parse_slash("/xyzzy") == input.UnknownSlashCommand("xyzzy", None)


@given(st.text(max_size=20))
def test_nothing_typed_breaks_the_commands(text: str) -> None:
    input.parse_slash("/" + text)
    input.complete_slash("/" + text)
    input.find_offer(text, files=["a b.txt", "src/"])


def test_commands_and_skills_are_offered_alike() -> None:
    offered = [option.text for option in input.complete_slash("/re", [input.SlashOption("review", "looks at it")])]
    assert offered == ["/redo", "/rename", "/review"]


def test_values_are_offered_behind_a_command() -> None:
    assert [one.text for one in input.complete_slash("/policy a")] == ["/policy ask", "/policy auto", "/policy read-only"]
    assert [one.text for one in input.complete_slash("/model d", values=[input.SlashOption("demo")])] == ["/model demo"]


def test_every_command_has_a_name_of_its_own() -> None:
    names = [name for command in input.COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))


def test_the_commands_that_people_expect_are_there() -> None:
    wanted = ["help", "new", "model", "provider", "session", "skills", "compact", "fork", "undo", "diff", "export", "exit"]
    assert set(wanted) <= {command.name for command in input.COMMANDS}


# Files


@pytest.mark.parametrize(
    ("before", "wanted"),
    [("@", ""), ("see @src/a", "src/a"), ("(@x", "x"), ('@"a b', "a b"), ("line\n@y", "y")],
)
def test_a_name_that_is_being_typed_is_found(before: str, wanted: str) -> None:
    found = input.find_mention(before)
    assert found is not None
    assert found.wanted == wanted
    assert before[found.start] == "@"


@pytest.mark.parametrize("before", ["me@example", "@src/app.py done", "", "@a ", '@"a b" '])
def test_what_is_no_name_is_left_alone(before: str) -> None:
    assert input.find_mention(before) is None


def test_a_name_behind_a_long_text_is_found_at_its_place() -> None:
    found = input.find_mention("(@" * 100_000 + " @x")
    assert found == (200_001, "x")


def test_the_nearest_file_is_first() -> None:
    paths = ["docs/apple.md", "app.py", "src/app.py", "a/p/p.txt", "zzz"]
    assert input.rank_files("app", paths) == ["app.py", "src/app.py", "docs/apple.md", "a/p/p.txt"]


def test_a_name_with_blanks_is_quoted() -> None:
    assert input.format_mention("a b.txt") == '@"a b.txt"'
    assert input.format_mention("a.txt") == "@a.txt"


def test_what_stands_there_in_full_is_not_offered() -> None:
    assert input.find_offer("/help") == input.NO_OFFER
    assert input.find_offer("@a.txt", files=["a.txt"]) == input.NO_OFFER


def test_a_completion_replaces_what_was_typed_of_it() -> None:
    offer = input.find_offer("look at @sr", files=["src/", "src/app.py"])
    assert offer.start == len("look at ")
    assert [option.text for option in offer.options] == ["@src/", "@src/app.py"]
