"""Columns of a batch in the form that costs least: the library turns an array into bytes element by element, which takes longer
than the server takes to read the array from one text. Numbers, names and bytes go as one value a column.

Everything is escaped or checked here: whatever a value is, it stays one element.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate


def encode_numbers(values: Sequence[int]) -> str:
    """For `::bigint[]`. Anything but a number of 64 bits raises `TypeError` or `OverflowError`."""
    return f"{{{repr(array('q', values).tolist())[1:-1]}}}"


def encode_texts(values: Sequence[str | None]) -> str:
    """For `::text[]`. None is NULL."""
    named = [value for value in values if value is not None]
    if not values:
        return "{}"
    if len(named) < len(values):
        return f"{{{','.join('NULL' if value is None else _quote(value) for value in values)}}}"
    joined = '","'.join(named)
    if "\\" in joined or joined.count('"') != 2 * (len(named) - 1):
        return f"{{{','.join(map(_quote, named))}}}"
    return f'{{"{joined}"}}'


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def join_pieces(values: Sequence[bytes]) -> tuple[bytes, str, str]:
    """All of them as one, where each begins (from 1 on), and how long each is."""
    sizes = list(map(len, values))
    return b"".join(values), encode_numbers(list(accumulate(sizes[:-1], initial=1)) if sizes else ()), encode_numbers(sizes)


def split_pieces_sql(whole: str, firsts: str, sizes: str) -> str:
    """What makes `pieces` a `bytea[]` again: SQL with the names of the three parameters."""
    return (
        f"ARRAY (SELECT substring({whole}::bytea, piece.first::integer, piece.size::integer)"  # noqa: S608 - names of parameters
        f" FROM unnest({firsts}::text::bigint[], {sizes}::text::bigint[]) WITH ORDINALITY AS piece (first, size, place)"
        " ORDER BY piece.place)"
    )
