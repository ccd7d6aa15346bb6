"""Whatever cannot be seen in what is decided is shown: in the command line, the terminal UI, the page, exports and diffs."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.cli import console
from switchtower.core import characters
from switchtower.presentation import approval_text, safe_text
from switchtower.protocols.push import messages
from switchtower.tools import safe_text as tools_safe_text

ROOT = Path(__file__).parents[2]
CASES = json.loads((Path(__file__).parent / "corpus" / "invisible_characters.json").read_text())

SHOWN_BY: dict[str, Callable[[str], str]] = {
    "command line": console.escape_unprintable,
    "terminal UI": safe_text.escape_exact,
    "title in the terminal UI": safe_text.escape_exact_line,
    "export": safe_text.to_exact_text,
    "diff": tools_safe_text.escape_control_characters,
}
HIDDEN_CATEGORIES = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}


@pytest.mark.parametrize("client", SHOWN_BY)
def test_every_invisible_character_has_its_name_in_its_place(client: str) -> None:
    show = SHOWN_BY[client]
    for case in CASES:
        character = chr(case["character"])
        if client == "export" and character == "\r":
            continue  # a return to the line's start begins a line there
        text = show(f"a{character}b")
        assert character not in text, case["name"]
        assert text != "ab", case["name"]
        assert len(text) > 2, case["name"]


@pytest.mark.parametrize("client", SHOWN_BY)
@given(text=st.text(st.characters(codec=None), max_size=80))
def test_nothing_invisible_comes_through(client: str, text: str) -> None:
    left = SHOWN_BY[client](text)
    assert not [
        c for c in left if c not in "\n\t" and (unicodedata.category(c) in HIDDEN_CATEGORIES or characters.is_invisible(c))
    ]


def test_every_character_of_a_hidden_category_is_invisible() -> None:
    seen = [
        number
        for number in range(0x110000)
        if unicodedata.category(chr(number)) in HIDDEN_CATEGORIES and not characters.is_invisible(chr(number))
    ]
    assert seen == []


@pytest.mark.parametrize("text", ["rm -rf ./x && echo 'grün' | tee 日本語", "👩 ✓ é ß ї", "a\tb\nc"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert console.escape_unprintable(text) == text
    assert characters.reveal(text, characters.format_code_point) == text


def test_the_page_has_the_same_table() -> None:
    source = (ROOT / "web" / "src" / "text" / "invisible.ts").read_text()
    ranges = [(int(first, 16), int(last, 16)) for first, last in re.findall(r"\[0x([0-9a-f]+), 0x([0-9a-f]+)\]", source)]
    assert ranges == list(characters.RANGES)


def test_the_command_line_shows_titles_and_details_with_what_they_hide() -> None:
    asked = messages.ApprovalRequired(
        approvalId="appr_1",
        kind="exec",
        title="Run\u200b a command",
        summary="make\u3164 test",
        details={"command": "make\u2800 test", "args": {"x\u00ad": "y\U000e0041"}},
        options=["approve", "deny"],
        expiresAt=1_000,
    )
    told = "\n".join(console.escape_unprintable(line) for line, _ in approval_text.format_approval(asked))
    for escaped in ("\\u200b", "\\u3164", "\\u2800", "\\xad", "\\U000e0041"):
        assert escaped in told
    assert not [c for c in told if c != "\n" and characters.is_invisible(c)]
