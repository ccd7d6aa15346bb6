"""What may be completed where the cursor stands: a command at the beginning, a file's name anywhere. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from switchtower.tui.state import mentions, slash


class CompletionOffer(NamedTuple):
    """`start` is where the replaced part begins in the text before the cursor."""

    start: int
    options: list[slash.SlashOption]


NO_OFFER = CompletionOffer(0, [])


def find_offer(
    before_cursor: str,
    *,
    templates: Sequence[slash.SlashOption] = (),
    values: Sequence[slash.SlashOption] = (),
    files: Iterable[str] = (),
) -> CompletionOffer:
    if before_cursor.startswith("/") and (found := slash.complete_slash(before_cursor, templates, values)):
        # A command that stands there in full needs no completion.
        return NO_OFFER if len(found) == 1 and found[0].text == before_cursor else CompletionOffer(0, found)
    if (mention := mentions.find_mention(before_cursor)) is not None:
        paths = mentions.rank_files(mention.wanted, files)
        if paths == [mention.wanted]:
            return NO_OFFER
        return CompletionOffer(mention.start, [slash.SlashOption(mentions.format_mention(path)) for path in paths])
    return NO_OFFER
