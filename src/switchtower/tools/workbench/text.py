"""Bytes of unknown origin as text that can go into JSON. Pure."""

import codecs
import os


def truncate_text(content: bytes, limit: int, *, errors: str) -> tuple[str, bool]:
    """As much of it as the limit allows, never a part of a character, and whether there was more."""
    is_cut = len(content) > limit
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    return decoder.decode(content[:limit], final=not is_cut), is_cut


def decode_name(name: str) -> str:
    """A file's name; bytes in it that are no text are spelled out as `\\xff`."""
    return os.fsencode(name).decode(errors="backslashreplace")
