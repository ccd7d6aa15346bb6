"""Writes a file of the run's folder, whole or not at all, and shows beforehand what would be written."""

import asyncio
from typing import Any

from msgspec import Struct

from switchtower.tools.files import scope, writing
from switchtower.tools.running import patience, threads
from switchtower.tools.workbench import paths, refusals

WRITE_LIMIT = 10 * 1024 * 1024


class WriteResult(Struct, frozen=True):
    path: str
    bytes_written: int


async def write_file(cwd: str, path: str, content: str) -> WriteResult:
    """Creates the file and the folders on the way, or replaces it; its mode stays. Cancelled, it has either happened or will
    not happen any more."""
    encoded = _encode(content)
    permit = writing.WritePermit()
    changing = asyncio.create_task(threads.run_in_thread(_write, cwd, path, encoded, permit))
    try:
        await asyncio.wait([changing])
    except asyncio.CancelledError:
        if not (permit.withdraw() and changing.cancel()):
            await patience.run_to_completion(_consume_exception(changing))
        raise
    return changing.result()


async def check_write(cwd: str, path: str, content: str) -> None:
    """Raises `Refused` for what `write` would refuse as things stand. Changes nothing."""
    _encode(content)
    await threads.run_in_thread(_check_place, cwd, path)


def _check_place(cwd: str, path: str) -> None:
    paths.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise refusals.OperationRefused(refusals.IS_A_FOLDER)
    with refusals.translate_errors():
        try:
            with scope.locate(cwd, path) as place:
                paths.refuse_all_but_files(path, place)
        except FileNotFoundError:
            return  # its folders are made when it is written


def _encode(content: str) -> bytes:
    try:
        encoded = content.encode()
    except UnicodeEncodeError:
        raise refusals.OperationRefused("content is not valid Unicode") from None
    if len(encoded) > WRITE_LIMIT:
        raise refusals.OperationRefused(refusals.TOO_LARGE)
    return encoded


def preview_write(path: str, content: str) -> dict[str, Any]:
    """Relay's `op_args` for the question: whole, not redacted. Bytes are those of the content."""
    return {
        "path": _replace_surrogates(path),
        "content": _replace_surrogates(content),
        "bytes": len(content.encode(errors="surrogatepass")),
        "truncated": False,
    }


def _write(cwd: str, path: str, encoded: bytes, permit: writing.WritePermit) -> WriteResult:
    paths.check_path(cwd, path)
    if path.endswith(("/", "/.")):
        raise refusals.OperationRefused(refusals.IS_A_FOLDER)  # before its folders are made
    with paths.locate_path(cwd, path, make_folders=True) as place:
        paths.refuse_all_but_files(path, place)
        writing.replace_file(place, encoded, permit=permit)
    return WriteResult(path, len(encoded))


async def _consume_exception(changing: asyncio.Task[WriteResult]) -> None:
    await asyncio.wait([changing])
    if not changing.cancelled():
        changing.exception()  # seen, so that asyncio does not report it as forgotten


def _replace_surrogates(shown: str) -> str:
    return shown.encode(errors="replace").decode()
