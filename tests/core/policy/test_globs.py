"""Wildcards: what fits, what two patterns have in common, and that neither takes forever."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core.policy import paths

pieces = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]"]), max_size=6).map("".join)
texts = st.text("abcd", max_size=6)


@given(pieces, texts)
def test_it_matches_as_the_library_of_python_does(pattern: str, text: str) -> None:
    assert paths.match_glob(paths.parse_glob(pattern), text) == fnmatch.fnmatchcase(text, pattern)


@given(pieces, pieces, texts)
def test_two_patterns_that_both_match_a_text_meet(left: str, right: str, text: str) -> None:
    if fnmatch.fnmatchcase(text, left) and fnmatch.fnmatchcase(text, right):
        assert paths.can_overlap(paths.parse_glob(left), paths.parse_glob(right))


@given(st.text(max_size=20))
def test_an_escaped_text_matches_itself_only(text: str) -> None:
    glob = paths.parse_glob(paths.escape_glob(text))

    assert paths.is_literal(glob)
    assert paths.match_glob(glob, text)
    assert not paths.match_glob(glob, f"{text}x")


@pytest.mark.parametrize(("left", "right"), [("*.py", "*.md"), ("a?", "b*"), ("[ab]x", "cx"), ("a", "ab"), (".env*", "env*")])
def test_patterns_without_a_common_text_do_not_meet(left: str, right: str) -> None:
    assert not paths.can_overlap(paths.parse_glob(left), paths.parse_glob(right))


def test_a_pattern_made_to_take_forever_does_not() -> None:
    assert not paths.match_glob(paths.parse_glob("*a" * 40 + "b"), "a" * 5000)
    assert paths.can_overlap(paths.parse_glob("*a" * 100), paths.parse_glob("a*" * 100))
