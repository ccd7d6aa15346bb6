"""What may be completed where the cursor stands: a command at the beginning, a file's name anywhere. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from switchtower.tui.state import mentions, slash


class Offer(NamedTuple):
    """`start` is where the replaced part begins in the text before the cursor."""

    start: int
    options: list[slash.Option]


NOTHING = Offer(0, [])


def offers(
    before_cursor: str,
    *,
    templates: Sequence[slash.Option] = (),
    values: Sequence[slash.Option] = (),
    files: Iterable[str] = (),
) -> Offer:
    if before_cursor.startswith("/") and (found := slash.options(before_cursor, templates, values)):
        # A command that stands there in full needs no completion.
        return NOTHING if len(found) == 1 and found[0].text == before_cursor else Offer(0, found)
    if (mention := mentions.being_typed(before_cursor)) is not None:
        paths = mentions.options(mention.wanted, files)
        if paths == [mention.wanted]:
            return NOTHING
        return Offer(mention.start, [slash.Option(mentions.spelled(path)) for path in paths])
    return NOTHING
