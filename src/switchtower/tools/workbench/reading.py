"""Reads a file of the run's folder: text, and only so much of it."""

import os

from msgspec import Struct

from switchtower.tools.running import threads
from switchtower.tools.workbench import paths, refusals, text

READ_LIMIT = 1024 * 1024


class ReadResult(Struct, frozen=True):
    path: str
    content: str
    truncated: bool


async def read_file(cwd: str, path: str) -> ReadResult:
    return await threads.run_in_thread(_read, cwd, path)


def _read(cwd: str, path: str) -> ReadResult:
    with paths.locate_path(cwd, path) as place:
        paths.refuse_all_but_files(path, place)
        with os.fdopen(paths.open_to_read(place), "rb") as stream:
            piece = stream.read(READ_LIMIT + 1)
    try:
        content, is_cut = text.truncate_text(piece, READ_LIMIT, errors="strict")
    except UnicodeDecodeError:
        raise refusals.OperationRefused(refusals.NOT_TEXT) from None
    if "\0" in content:
        raise refusals.OperationRefused(refusals.NOT_TEXT)
    return ReadResult(path, content, is_cut)
