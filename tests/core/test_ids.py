from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import ids


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_id_and_its_uuid_are_the_same_bits(now_ms: int, randomness: int) -> None:
    identifier = ids.format_id("run", now_ms, randomness)
    uuid = ids.to_uuid(identifier)
    assert uuid == UUID(int=now_ms << 80 | randomness)
    assert ids.parse_uuid("run", uuid) == identifier


@given(st.integers(0, 2**48 - 2), st.integers(0, 2**80 - 1), st.integers(0, 2**80 - 1))
def test_later_ids_sort_after_earlier_ones(now_ms: int, earlier: int, later: int) -> None:
    assert ids.format_id("run", now_ms, earlier) < ids.format_id("run", now_ms + 1, later)


def test_an_id_has_its_prefix_and_26_symbols() -> None:
    prefix, _, symbols = ids.format_id("sess", 1_760_000_000_000, 42).partition("_")
    assert (prefix, len(symbols)) == ("sess", 26)


@given(moment=st.integers(0, 2**48 - 1), randomness=st.integers(0, 2**80 - 1))
def test_an_id_with_version_7_bits_is_a_valid_uuid_and_still_sorts_by_its_moment(moment: int, randomness: int) -> None:
    identifier = ids.format_id("appr", moment, ids.mark_version_7(randomness))
    uuid = ids.to_uuid(identifier)
    assert (uuid.variant, uuid.version) == (RFC_4122, 7)
    assert uuid.int >> 80 == moment
    assert ids.parse_uuid("appr", uuid) == identifier
