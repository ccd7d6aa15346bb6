"""The keys that leave a program running are nobody's; all others reach it, in order and once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.cli.terminal.raw_mode import DetachKeys, KeyInput

PLAIN = st.binary(max_size=8).map(lambda data: bytes(byte for byte in data if byte not in (0x1B, 0x1C, 0x1D)))


def type_keys(*pieces: bytes, also: bytes = b"") -> tuple[bytes, bool]:
    """All that was passed on, and whether somebody left. A pause follows the last piece."""
    keys = DetachKeys(extra_keys=also)
    passed = b""
    for piece in pieces:
        result = keys.feed(piece)
        passed += result.keys
        if result.left:
            return passed, True
    return passed + keys.release_held(), False


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        ([b"\x1d"], b""),
        ([b"ab\x1dcd"], b"ab"),
        ([b"\x1c\x1c"], b""),
        ([b"\x1c", b"\x1c"], b""),
        ([b"a\x1c", b"\x1cb"], b"a"),
        ([b"\x1ca\x1c\x1c"], b"\x1ca"),
        ([b"\x1c\x1d"], b""),
        ([b"\x1c", b"a\x1d"], b"\x1ca"),
        ([b"a\x1b[93;5u"], b"a"),
        ([b"\x1b[27;5;93~"], b""),
        ([b"\x1b[92;5u", b"\x1b[92;5u"], b""),
        ([b"\x1b[93;5:1u"], b""),
    ],
)
def test_leaving_passes_on_what_was_typed_before(pieces: list[bytes], passed: bytes) -> None:
    assert type_keys(*pieces) == (passed, True)


@pytest.mark.parametrize("pieces", [[b"\x1c"], [b"\x1ca"], [b"\x1c", b"a\x1c"], [b"\x1b[92;5u"], [b"\x1b[93;1u"], [b""]])
def test_a_single_quit_key_is_the_program_s(pieces: list[bytes]) -> None:
    assert type_keys(*pieces) == (b"".join(pieces), False)


def test_a_first_quit_key_is_held_until_it_is_clear_that_no_second_one_comes() -> None:
    keys = DetachKeys()

    assert keys.feed(b"a\x1c") == KeyInput(b"a", left=False)
    assert keys.is_holding
    assert keys.release_held() == b"\x1c"
    assert not keys.is_holding
    assert keys.feed(b"\x1c") == KeyInput(b"", left=False)


def test_who_only_looks_on_leaves_with_further_keys() -> None:
    assert type_keys(b"x\x03y", also=b"\x03") == (b"", True)


@given(st.lists(PLAIN | st.just(b"\x1cx"), max_size=8))
def test_without_a_leaving_key_everything_is_passed_on_unchanged(pieces: list[bytes]) -> None:
    assert type_keys(*pieces) == (b"".join(pieces), False)


@given(st.lists(PLAIN, max_size=4), st.sampled_from([b"\x1d", b"\x1c\x1c"]), st.integers(0, 40))
def test_where_the_reads_are_cut_makes_no_difference(before: list[bytes], leaving: bytes, cut: int) -> None:
    data = b"".join(before) + leaving
    assert type_keys(data[:cut], data[cut:]) == (b"".join(before), True)
