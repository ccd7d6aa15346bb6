"""Whatever is in a column, the server reads from one value what was in the list."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from switchtower.stores.postgres import batch, database

NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
LIKE_LITERALS = st.text("\"\\\\{},NUL \n'", max_size=12)
SLOW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    texts=st.lists(NAMES | LIKE_LITERALS | st.none(), max_size=30),
    pieces=st.lists(st.binary(max_size=30), max_size=30),
)
@example(numbers=[], texts=[], pieces=[])
@example(numbers=[0], texts=[""], pieces=[b""])
@example(numbers=[True], texts=["NULL", "null", None], pieces=[b"", b"a", b"", b"", b"bc", b""])
@example(numbers=[1], texts=['","', "a"], pieces=[])
@example(numbers=[1], texts=["}", "{", "\\", '"', " a ", "\n"], pieces=[])
async def test_the_server_reads_the_lists_that_were_written(
    dsn: str, numbers: list[int], texts: list[str | None], pieces: list[bytes]
) -> None:
    connection = await database.connect(dsn, database.BY_INDEX)
    try:
        row = await connection.fetchrow(
            f"SELECT $1::text::bigint[], $2::text::text[], {batch.split_pieces_sql('$3', '$4', '$5')}",
            *(batch.encode_numbers(numbers), batch.encode_texts(texts), *batch.join_pieces(pieces)),
        )
    finally:
        await connection.close()
    assert list(row) == [numbers, texts, pieces]


@pytest.mark.parametrize("wrong", ["1,2", "7", 1.5, None, b"1", [1], 2**63, -(2**63) - 1])
def test_what_is_no_number_is_refused_before_it_is_written(wrong: object) -> None:
    with pytest.raises((TypeError, OverflowError)):
        batch.encode_numbers([1, wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [7, b"text", ["a"]])
def test_what_is_no_text_is_refused_before_it_is_written(wrong: object) -> None:
    for others in ([], ["a"], ["a\\"], [None]):
        with pytest.raises((TypeError, AttributeError)):
            batch.encode_texts([*others, wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", ["text", [1], 7])
def test_what_are_no_bytes_is_refused_before_it_is_written(wrong: object) -> None:
    with pytest.raises(TypeError):
        batch.join_pieces([b"a", wrong])  # type: ignore[list-item]
