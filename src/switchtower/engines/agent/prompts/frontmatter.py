"""The lines between two `---` at the top of a Markdown file. Pure, and no YAML: only `key: value` at the left edge is
read. Files that were written for other programs may have more there; that is passed over.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}):[ \t]+(\S.*)")
_MOST_LINES = 100


class FrontMatter(NamedTuple):
    """A file in its two parts."""

    fields: Mapping[str, str]
    body: str


def split_front_matter(text: str) -> FrontMatter:
    """Without a closing `---` there is no front matter: the first line is then a rule across the page."""
    lines = text.split("\n", _MOST_LINES)
    if lines[0].rstrip() != "---":
        return FrontMatter({}, text)
    end = next((number for number, line in enumerate(lines[1:_MOST_LINES], 1) if line.rstrip() == "---"), None)
    if end is None:
        return FrontMatter({}, text)
    fields: dict[str, str] = {}
    for line in lines[1:end]:
        if pair := _PAIR.fullmatch(line.rstrip()):
            fields.setdefault(pair[1].lower(), _unquote(pair[2]))
    return FrontMatter(fields, "\n".join(lines[end + 1 :]))


def _unquote(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
