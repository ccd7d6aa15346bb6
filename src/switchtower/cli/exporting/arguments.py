"""A call's arguments and an approval's details, as pieces that are shown each in its own way. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_HIDDEN_ARGUMENTS = ("always", "destructive")


class ArgumentPart(NamedTuple):
    """`name` is empty for what is one object of several arguments."""

    name: str
    text: str
    kind: str
    """`json`, `diff`, or empty for text as it is."""


def split_arguments(values: Mapping[str, Any]) -> Iterator[ArgumentPart]:
    """What has several lines is a text of its own; the rest stays together."""
    long = {name: value for name, value in values.items() if isinstance(value, str) and "\n" in value}
    short = {name: value for name, value in values.items() if name not in long and name not in _HIDDEN_ARGUMENTS}
    if short:
        yield ArgumentPart("", json.dumps(short, indent=2, ensure_ascii=False, default=str), "json")
    for name, text in long.items():
        yield ArgumentPart(name, text, "diff" if name == "diff" else "")
