"""What programs ask of their terminal: where the cursor is, what kind it is, which colours it has. We are the terminal, so we
answer; and since the question was for us alone, it goes no further: whoever watches has a terminal too, which would answer
once more. Pure."""

import re

QUERY = re.compile(
    r"\x1b\[(?P<cursor>\??6n)"
    r"|\x1b\[(?P<well>5n)"
    r"|\x1b\[(?P<kind>>?)0?c"
    r"|\x1b\[\?(?P<mode>[0-9]{1,5})\$p"
    r"|\x1b\](?P<colour>1[01]);\?(?:\x07|\x1b\\)"
    r"|\x1b\[(?:\?u|>0?q)"  # keyboard protocols and version: no answer means none
)
_COLOURS = {"10": "dddd/dddd/dddd", "11": "0000/0000/0000"}


def answer_query(query: re.Match[str], cursor: tuple[int, int], cols: int) -> str:
    """`cursor` is the row and the column, from 0."""
    row, col = cursor[0] + 1, min(cursor[1] + 1, cols)
    if query["cursor"]:
        return f"\x1b[{'?' if query['cursor'].startswith('?') else ''}{row};{col}R"
    if query["well"]:
        return "\x1b[0n"
    if query["kind"] is not None:
        return "\x1b[>0;10;0c" if query["kind"] else "\x1b[?62;22c"
    if query["mode"]:
        return f"\x1b[?{query['mode']};0$y"
    if query["colour"]:
        return f"\x1b]{query['colour']};rgb:{_COLOURS[query['colour']]}\x1b\\"
    return ""
