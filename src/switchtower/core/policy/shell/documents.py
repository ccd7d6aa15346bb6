"""Here-documents: announced by `<<` in a command, and standing below its line."""

import re

from msgspec import Struct

_DELIMITER = re.compile(r"""(?:(?P<quote>['"])(?P<quoted>[\w.-]+)(?P=quote)|(?P<escape>\\?)(?P<bare>[\w.-]+))(?=[\s;&|<>()]|$)""")


class HereDocument(Struct, frozen=True):
    """One that has been announced."""

    end: str
    """The line that ends it."""
    expanded: bool
    indented: bool


class HereDocumentBody(Struct, frozen=True):
    text: str
    ends_at: int
    """Behind the line that ends it."""
    is_ended: bool


def parse_here_document(text: str, at: int, operator: str) -> tuple[HereDocument, int] | None:
    """What follows `<<` or `<<-` at that place, and where reading goes on. `None` where that is hard to say."""
    delimiter = _DELIMITER.match(text, at)
    if delimiter is None:
        return None
    end = delimiter["quoted"] or delimiter["bare"]
    expanded = not delimiter["quote"] and not delimiter["escape"]
    return HereDocument(end, expanded=expanded, indented=operator == "<<-"), delimiter.end()


def read_body(document: HereDocument, text: str, start: int) -> HereDocumentBody:
    at = start
    while at < len(text):
        newline = text.find("\n", at)
        line_end = len(text) if newline < 0 else newline
        line = text[at:line_end]
        behind = line_end if newline < 0 else line_end + 1
        if (line.lstrip("\t") if document.indented else line) == document.end:
            return HereDocumentBody(text[start:at], behind, is_ended=True)
        at = behind
    return HereDocumentBody(text[start:], len(text), is_ended=False)
