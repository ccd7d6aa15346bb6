"""What the owner wants hidden besides, by a pattern of their own: line by line, in texts, events and streams in any cutting."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchtower.core import events, redact
from switchtower.core.redact import redactor

PATTERN = r"CUST-[0-9]+"
REDACTOR = redact.Redactor(extra=PATTERN)
GITHUB = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

PATTERNS = (PATTERN, r"^secret", r"secret$", r"secret\s*", r"[^x]+x", r"(?s)a.*b", r"x*", r"\bab\b", r"(?i)SECRET|a{3}", r"\n")
PIECES = (
    "CUST-",
    "1",
    "23",
    "secret",
    "Secret",
    " ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\u2028",
    "\x0b",
    "x",
    "xx",
    "a",
    "ab",
    "b",
)
TEXTS = st.lists(st.sampled_from((*PIECES, GITHUB, "password=swordfish1")), max_size=25).map("".join)


def redact_stream(redactor: redact.Redactor, pieces: list[str]) -> list[str]:
    stream = redactor.open_stream()
    return [*map(stream.feed, pieces), stream.close()]


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


@given(st.sampled_from(PATTERNS), cut_texts())
@example("^secret", ["a\nsecret"])
@example(r"secret\s*", ["secret\n", "\nb"])
@example("x*", ["\n", "\n"])
def test_however_it_is_cut_the_same_comes_out_line_by_line(pattern: str, pieces: list[str]) -> None:
    redactor = redact.Redactor(extra=pattern)
    known = redact.Redactor().redact_text("".join(pieces))
    line_by_line = "\n".join(re.sub(pattern, redact.MARK, line) if line else "" for line in known.split("\n"))
    assert "".join(redact_stream(redactor, pieces)) == line_by_line
    assert redactor.redact_text("".join(pieces)) == line_by_line


@given(cut_texts())
def test_no_match_is_in_what_comes_out(pieces: list[str]) -> None:
    assert not re.search(PATTERN, "".join(redact_stream(REDACTOR, pieces)))


def test_a_line_is_let_go_when_it_is_whole_and_the_rest_at_the_end() -> None:
    stream = REDACTOR.open_stream()
    assert stream.feed("of CUST-") == ""
    assert stream.feed("12") == ""
    assert stream.feed("34 it\nand CUST-5") == "of [redacted] it\n"
    assert stream.close() == "and [redacted]"
    assert stream.close() == ""
    assert stream.feed("as new CUST-6\n") == "as new [redacted]\n"


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    stream = REDACTOR.open_stream()
    fed = released = 0
    for _ in range(1_000):
        fed += 100
        released += len(stream.feed("x" * 100))
        assert fed - released < redactor.LONGEST_LINE + 100
    assert released + len(stream.close()) == fed


def test_known_secrets_are_hidden_too_with_and_without_a_match() -> None:
    redactor = redact.Redactor(["correct horse battery"], extra=PATTERN)
    assert redactor.redact_text(f"{GITHUB} and CUST-1") == "[redacted] and [redacted]"
    assert redactor.redact_text("a correct horse battery") == "a [redacted]"
    redactor.add_secret("learnt later on")
    assert redactor.redact_text("learnt later on, CUST-2") == "[redacted], [redacted]"


def test_text_without_a_match_is_itself() -> None:
    text = "nothing to see\nhere\n"
    assert REDACTOR.redact_text(text) is text
    assert REDACTOR.redact_text("") == ""


def test_data_and_events_are_looked_through() -> None:
    assert REDACTOR.redact_value({"who CUST-1": ["CUST-2", ("see CUST-3",), 4, None]}) == {
        "who [redacted]": ["[redacted]", ("see [redacted]",), 4, None]
    }
    started = events.RunStarted(text="for CUST-77\nplease", by=events.Actor(name="ann", via="cli"))
    redacted = REDACTOR.redact_event(started)
    assert isinstance(redacted, events.RunStarted)
    assert redacted.text == "for [redacted]\nplease"
    said = events.HostEventReceived(type="note", data={"a": "CUST-8"}, relayed=events.Relayed(1, 1, {"b": "CUST-9"}))
    assert "CUST" not in repr(REDACTOR.redact_event(said))
    quiet = events.HostEventReceived(type="note", data={"a": "b"})
    assert REDACTOR.redact_event(quiet) is quiet


@pytest.mark.parametrize("nothing", [None, ""])
def test_without_a_pattern_streams_let_text_go_at_once(nothing: str | None) -> None:
    stream = redact.Redactor(extra=nothing).open_stream()
    assert stream.feed("CUST-1 ") == "CUST-1 "
