"""Cuts what the model server says into the small pieces that a stream is made of."""

import json
import re
from collections.abc import Iterator
from typing import Any

_ARGUMENTS_PIECE = 7


def split_text(text: str, size: int) -> Iterator[str]:
    """Pieces of so many characters; with 0, of a word and the blanks around it."""
    if size:
        return (text[start : start + size] for start in range(0, len(text), size))
    return (found.group() for found in re.finditer(r"\s*\S+\s*|\s+\Z", text))


def split_arguments(args: dict[str, Any] | str) -> Iterator[str]:
    return split_text(args if isinstance(args, str) else json.dumps(args), _ARGUMENTS_PIECE)
