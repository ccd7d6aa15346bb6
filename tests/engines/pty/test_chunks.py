"""Output in pieces: whatever comes and however it is split, nothing is lost, torn or held back for ever."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from switchtower.engines.pty import output as pty_output

TERMINAL_WORDS = [
    *(b"plain text", b"\r\n", b"\0", b"\x07", b"\x1b", b"\x1b[", b"\x1b[31", b"\x1b[1;31m", b"\x1b]0;title\x07", b"\x1b]8;;http"),
    *(b"\x1b\\", b"\x1bP1$r", b"\x1bOP", b"\x1b(B", b"\x18", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf0\x9f", b"\xe2\x82"),
    *("é€💩".encode(), b"\xf4\x90\x80\x80", b"\x9b31m", b"x" * 70),
]
output = strategies.lists(strategies.sampled_from(TERMINAL_WORDS) | strategies.binary(max_size=20), max_size=40).map(b"".join)
limits = strategies.sampled_from([4, 5, 16, 64, 100])


def split(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    return [whole[start:end] for start, end in itertools.pairwise(places)]


@hypothesis.settings(max_examples=120)
@hypothesis.given(output, strategies.lists(strategies.integers(0, 2000), max_size=20), limits, strategies.booleans())
def test_however_it_is_split_the_pieces_together_are_the_whole_decoded(
    whole: bytes, cuts: list[int], limit: int, flushes: bool
) -> None:
    pieces = pty_output.OutputChunker(limit)
    texts: list[str] = []
    for part in split(whole, cuts):
        texts += pieces.feed(part)
        if flushes:
            texts.append(pieces.flush())
    texts.append(pieces.close())

    assert "".join(texts) == whole.decode(errors="replace")
    assert all(len(text) <= limit + pty_output.NEAR for text in texts)
    "".join(texts).encode()  # no lone surrogates
    assert pieces.is_empty


@hypothesis.given(output, limits)
def test_byte_by_byte_is_the_same_as_at_once(whole: bytes, limit: int) -> None:
    at_once, byte_by_byte = pty_output.OutputChunker(limit), pty_output.OutputChunker(limit)
    texts = [text for number in whole for text in byte_by_byte.feed(bytes([number]))]

    assert at_once.feed(whole) == texts
    assert at_once.close() == byte_by_byte.close()


@hypothesis.given(strategies.text(), strategies.lists(strategies.integers(0, 2000), max_size=20))
def test_good_text_never_gets_a_replacement_character(text: str, cuts: list[int]) -> None:
    hypothesis.assume("\ufffd" not in text)
    pieces = pty_output.OutputChunker(4)
    texts: list[str] = []
    for part in split(text.encode(), cuts):
        texts += [*pieces.feed(part), pieces.flush()]

    assert "".join([*texts, pieces.flush(), pieces.close()]) == text


def test_pieces_come_as_soon_as_they_are_full() -> None:
    pieces = pty_output.OutputChunker(8)

    assert pieces.feed(b"1234567") == []
    assert pieces.feed(b"8") == ["12345678"]
    assert pieces.feed(b"a" * 20) == ["a" * 8, "a" * 8]
    assert pieces.flush() == "aaaa"
    assert pieces.flush() == ""


def test_a_character_waits_for_its_rest_over_a_flush_and_becomes_a_replacement_at_the_end() -> None:
    pieces = pty_output.OutputChunker()
    pieces.feed("a💩".encode()[:-1])

    assert [pieces.flush(), pieces.flush(), pieces.flush()] == ["a", "", ""]
    pieces.feed("💩".encode()[-1:])
    assert pieces.flush() == "💩"
    pieces.feed("💩".encode()[:-1])
    assert pieces.close() == "\ufffd"


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b[1;31m",
        b"\x1b]0;a title\x07",
        b"\x1b]0;a title\x1b\\",
        b"\x1b(B",
        b"\x1bOP",
        b"\x1bP1$r0m\x1b\\",
        b"\x1b[?1049h",
        b"\x1bM",
    ],
)
def test_no_piece_ends_inside_an_escape_sequence(sequence: bytes) -> None:
    for room in range(1, len(sequence)):
        pieces = pty_output.OutputChunker(100)
        begun = b"x" * (100 - room) + sequence[:room]

        assert pieces.feed(begun) == [], "its rest is waited for"
        assert pieces.feed(sequence[room:] + b"y") == [(begun + sequence[room:]).decode()]
        assert pieces.close() == "y"


def test_a_boundary_right_behind_an_escape_sequence_is_none_inside_it() -> None:
    assert pty_output.OutputChunker(10).feed(b"12345\x1b[31m") == ["12345\x1b[31m"]


def test_a_sequence_that_is_cut_off_by_another_ends_there() -> None:
    assert pty_output.OutputChunker(8).feed(b"123456\x1b[3\x1b[31mabcdef") == ["123456\x1b[3", "\x1b[31mabc"]


def test_the_rest_of_a_long_sequence_is_not_waited_for() -> None:
    pieces = pty_output.OutputChunker(100)
    picture = b"\x1bPq" + b"~" * 1000

    [first, *_] = pieces.feed(picture)
    assert len(first) == 100


def test_a_flush_keeps_the_beginning_of_a_sequence_once_and_no_longer() -> None:
    pieces = pty_output.OutputChunker()
    for begun in (b"\x1b", b"\x1b[31", b"\x1b]0;ti", b"\x1b]0;title\x1b"):
        pieces.feed(b"a" + begun)
        assert pieces.flush() == "a"
        assert not pieces.is_empty
        assert pieces.flush() == begun.decode()
        assert pieces.is_empty

    pieces.feed(b"\x1b[3")
    assert pieces.flush() == ""
    pieces.feed(b"1")
    assert pieces.flush() == "", "there was no silence between"
    pieces.feed(b"mred")
    assert pieces.flush() == "\x1b[31mred"


def test_a_flush_does_not_keep_a_long_beginning() -> None:
    pieces = pty_output.OutputChunker()
    pieces.feed(b"\x1b]52;c;" + b"A" * 100)

    assert len(pieces.flush()) == 107


def test_control_characters_pass() -> None:
    pieces = pty_output.OutputChunker()
    controls = bytes(range(32)).replace(b"\x1b", b"") + b"\x7f"
    pieces.feed(controls)

    assert pieces.flush() == controls.decode()
