"""`/name` puts a template in the place of a message, filled with what was written behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchtower.engines.agent.prompts import expansion
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog

Put = Callable[[Path, str], None]
BlocksOf = Callable[[str], list[Any]]


def test_a_prompt_takes_the_place_of_the_message(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/fix.md", "---\ndescription: d\n---\nFix issue $1 in $2. All: $ARGUMENTS = {{args}}\n")

    expanded = prompt_catalog.expand_message('/fix 42 "the parser"', str(workspace))
    assert expanded.text == 'Fix issue 42 in the parser. All: 42 "the parser" = 42 "the parser"'
    assert expanded.sources == (".tower/prompts/fix.md",)
    assert expanded.problems == ()


@pytest.mark.parametrize(
    ("text", "arguments", "filled"),
    [
        ("$1-$2-$9", "a b", "a-b-"),
        ("no place", "a b", "no place\n\na b"),
        ("no place", "", "no place"),
        ("$1", "", ""),
        ("$$1 $1", "a", "$1 a"),
        ("$$1", "a", "$1\n\na"),
        ("$$ARGUMENTS is $ARGUMENTS", "a", "$ARGUMENTS is a"),
        ("$10 $0 $1x $x $ARGUMENTSX $", "a", "$10 $0 $1x $x $ARGUMENTSX $\n\na"),
        ("${1} $1.", "a", "${1} a."),
        ("{{ args }} {{args}} {{Args}} {args}", "a", "a a {{Args}} {args}"),
        ("$1", "'it is' x", "it is"),
        ("$1|$2", "don't stop", "don't|stop"),
        ("$1|$2", "'open quote", "'open|quote"),
        ("$1", r'"a \"b\" \\ \n"', r'a "b" \ \n'),
        ("$1|$2", '"a"b c', '"a"b|c'),
        ("$1|$2", '"" x', "|x"),
        ("$2", "a\n\n b", "b"),
        ("$9", "1 2 3 4 5 6 7 8 9 10", "9"),
        (r"$1", r"\1 \g<0>", r"\1"),
    ],
)
def test_arguments_go_where_the_prompt_has_a_place_for_them(text: str, arguments: str, filled: str) -> None:
    assert expansion.fill_template(text, arguments) == filled


def test_an_argument_is_never_looked_at_as_a_place(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/x.md", "1: $1, 2: $2, all: $ARGUMENTS")

    expanded = prompt_catalog.expand_message("/x $2 {{args}}$ARGUMENTS", str(workspace))
    assert expanded.text == "1: $2, 2: {{args}}$ARGUMENTS, all: $2 {{args}}$ARGUMENTS"


def test_a_prompt_that_calls_another_is_only_text(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/x.md", "/x $ARGUMENTS")

    assert prompt_catalog.expand_message("/x /x go", str(workspace)).text == "/x /x go"
    assert prompt_catalog.expand_message("/x /x go", str(workspace)).sources == (".tower/prompts/x.md",)


def test_arguments_may_go_on_over_lines(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/explain.md", "Explain:\n$ARGUMENTS")

    assert prompt_catalog.expand_message("/explain\nfirst\n  second\n", str(workspace)).text == "Explain:\nfirst\n  second"


def test_a_skill_comes_with_the_request_behind_it(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, read_prompt_blocks: BlocksOf
) -> None:
    write_file(workspace / ".tower/skills/release.md", "---\nname: release\n---\n# Release\nCosts $1, ask @a.py.")

    expanded = prompt_catalog.expand_message("/release version 2", str(workspace))
    (block,) = read_prompt_blocks(expanded.text)
    assert (block.kind, block.attributes) == ("skill", {"name": "release", "path": ".tower/skills/release.md"})
    assert block.text == "# Release\nCosts $1, ask @a.py."
    assert expanded.text.endswith(">\n\nversion 2")
    assert expanded.sources == (".tower/skills/release.md",)
    assert prompt_catalog.expand_message("/release", str(workspace)).text.endswith("\n\nDo what this skill describes.")


def test_mentions_of_a_prompt_and_of_its_arguments_are_brought_in(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, read_prompt_blocks: BlocksOf
) -> None:
    write_file(workspace / ".tower/prompts/compare.md", "Compare $1 with @src/app.py.")

    expanded = prompt_catalog.expand_message("/compare @a.py:1", str(workspace))
    assert expanded.text.startswith("Compare @a.py:1 with @src/app.py.\n\n<file")
    assert [block.text for block in read_prompt_blocks(expanded.text)] == ["print('app')", "line 1"]
    assert expanded.sources == (".tower/prompts/compare.md", "src/app.py", "a.py")


def test_mentions_in_the_request_to_a_skill_are_brought_in(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    write_file(workspace / ".tower/skills/x.md", "the skill")

    assert prompt_catalog.expand_message("/x with @a.py", str(workspace)).sources == (".tower/skills/x.md", "a.py")


def test_a_prompt_and_an_argument_do_not_form_a_mention_together(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    write_file(workspace / ".tower/prompts/x.md", "Look at @$1 and at @src/$2")

    expanded = prompt_catalog.expand_message("/x a.py app.py", str(workspace))
    assert expanded.text == "Look at @a.py and at @src/app.py"
    assert expanded.sources == (".tower/prompts/x.md",)


@pytest.mark.parametrize(
    "message",
    [
        "/help",
        "/new session",
        "/",
        "/etc/passwd is a file",
        "//x",
        " /x go",
        "\n/x",
        "see /x",
        "/X",
        "/x.md",
        "/x,y",
        "/-x",
        "/x\0",
    ],
)
def test_what_calls_no_template_is_left_as_it_is(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, message: str
) -> None:
    write_file(workspace / ".tower/prompts/x.md", "text")

    expanded = prompt_catalog.expand_message(message, str(workspace))
    assert (expanded.text, expanded.sources, expanded.problems) == (message, (), ())


def test_mentions_behind_an_unknown_command_are_brought_in_all_the_same(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    assert prompt_catalog.expand_message("/unknown @a.py", str(workspace)).sources == ("a.py",)


def test_a_prompt_that_repeats_a_long_argument_without_end_is_refused(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    write_file(workspace / ".tower/prompts/x.md", "$ARGUMENTS{{args}}$1" * 20)
    long = "y" * 32_768

    expanded = prompt_catalog.expand_message(f"/x {long}", str(workspace))
    assert expanded.text == f"/x {long}"
    assert "too long" in expanded.problems[0]
    assert prompt_catalog.expand_message(f"/x {long[:1000]}", str(workspace)).text == "y" * 60_000


def test_a_long_argument_fits_once(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/x.md", "Sum up: $ARGUMENTS")
    long = "y" * (4 << 20)

    assert prompt_catalog.expand_message(f"/x {long}", str(workspace)).text == f"Sum up: {long}"


@pytest.mark.parametrize("piece", ['"', "'", "\\", '"\\', "a'", '"a ', " ", "$1 ", "{{"])
def test_a_megabyte_of_quotes_is_split_without_trouble(piece: str) -> None:
    arguments = piece * (1_000_000 // len(piece))

    assert len(expansion.split_arguments(arguments)) <= 9
    assert expansion.fill_template("$ARGUMENTS", arguments) == arguments
