"""Changes a part of a text file: one exact piece of text becomes another. The piece must be there, and only once unless all
are meant; line endings, a byte order mark and the file's mode stay.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, islice

from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.files import diffs, files, known, scope, similar, writing

_SHOWN_DIFF = 4 * 1024
_SHOWN_PLACES = 5
_MOST_PLACES = 100_000
_LARGEST_RESULT = 4 * files.WHOLE_LIMIT


class FileEdit(Struct, frozen=True):
    old: str
    new: str
    replace_all: bool = False
    expected_hash: str | None = None


class AppliedEdit(Struct, frozen=True):
    before: str
    after: str
    places: int


def edit_file(
    root: str,
    path: str,
    wanted: FileEdit,
    *,
    known_digest: files.KnownDigest | None = None,
    permit: writing.WritePermit | None = None,
) -> files.WrittenFile:
    with files.translate_os_errors(path, outcome.ToolErrorType.WRITE_FAILED), scope.locate(root, path) as place:
        whole = files.read_whole(place)
        _check_digest(place.path, whole.content, wanted.expected_hash, known_digest)
        applied = apply_edit(place.path, whole.content, wanted)
        content = applied.after.encode()
        writing.replace_file(place, content, permit=permit or writing.WritePermit(), expected=whole.status)
    digest = known.compute_digest(content)
    places = "1 place" if applied.places == 1 else f"{applied.places} places"
    diff = diffs.make_unified_diff(place.path, applied.before, applied.after, limit=_SHOWN_DIFF)
    return files.WrittenFile(place.path, f"edited `{place.path}` ({places}; hash {digest[: known.SHORT]})\n{diff}", digest)


def apply_edit(path: str, content: bytes, wanted: FileEdit) -> AppliedEdit:
    """What the edit would make of the content. Has no effect."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, f"`{path}` is not UTF-8 text") from None
    if "\0" in text:
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, f"`{path}` is a binary file")
    if wanted.old == wanted.new:
        raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "`old` and `new` are the same: nothing would change")
    crlf = "\r\n" in text
    places = _find_places(path, text, wanted, crlf=crlf)
    new = wanted.new.replace("\r\n", "\n") if crlf else wanted.new
    # Each newline may become two characters.
    if len(content) + len(places) * (len(new.encode()) + new.count("\n")) > _LARGEST_RESULT:
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, f"`{path}` would become too large")
    usual = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    pieces, end = [], 0
    for start, after in places:
        pieces += [text[end:start], _convert_line_ends(new, text[start:after], usual) if crlf else new]
        end = after
    return AppliedEdit(before=text, after="".join([*pieces, text[end:]]), places=len(places))


def _check_digest(path: str, content: bytes, expected_hash: str | None, known_digest: files.KnownDigest | None) -> None:
    digest = known.compute_digest(content)
    if expected_hash is not None:
        if not digest.startswith(expected_hash.lower()):
            message = f"`{path}` has the hash {digest[: known.SHORT]}, not {expected_hash}; hint: read it again first"
            raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_HASH_MISMATCH, message, retryable=True)
    elif known_digest is not None and known_digest(path) not in (None, digest):
        raise writing.make_stale_error(path)


def _find_places(path: str, text: str, wanted: FileEdit, *, crlf: bool) -> list[tuple[int, int]]:
    most = _MOST_PLACES if wanted.replace_all else _SHOWN_PLACES
    occurrences = _iterate_occurrences(text, wanted.old, crlf=crlf, overlapping=not wanted.replace_all)
    places = list(islice(occurrences, most + 1))
    if not places:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.EDIT_CONTENT_NOT_FOUND,
            f"`old` does not occur in `{path}`{similar.suggest_similar(text, wanted.old)}",
        )
    if len(places) > 1 and not wanted.replace_all:
        lines = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in places[:_SHOWN_PLACES])
        more = ", …" if len(places) > _SHOWN_PLACES else ""
        raise outcome.ToolFailed(
            outcome.ToolErrorType.EDIT_CONTENT_NOT_FOUND,
            f"`old` occurs more than once in `{path}` (lines {lines}{more}); "
            "hint: give more of the lines around it, or set `replace_all`",
        )
    if len(places) > most:
        raise outcome.ToolFailed(outcome.ToolErrorType.WRITE_FAILED, f"`old` occurs more than {_MOST_PLACES} times in `{path}`")
    return places


def _iterate_occurrences(text: str, old: str, *, crlf: bool, overlapping: bool) -> Iterator[tuple[int, int]]:
    """Where `old` begins and ends. Models write plain newlines whatever the file has: in a file with CRLF a newline stands
    for either. Two places that overlap leave it as unclear which is meant as two that do not."""
    returns: list[int] = []
    if crlf:
        lines = text.split("\r\n")
        returns = [position - 1 for position in accumulate(len(line) + 1 for line in lines[:-1])]
        text, old = "\n".join(lines), old.replace("\r\n", "\n")
    start = text.find(old)
    while start >= 0:
        end = start + len(old)
        # As many returns were left out of the text before a place as it lies further on.
        yield start + bisect_left(returns, start), end + bisect_left(returns, end)
        start = text.find(old, start + 1 if overlapping else end)


def _convert_line_ends(new: str, replaced: str, usual: str) -> str:
    """In a file with CRLF the new lines end as the replaced ones did, or as most do."""
    line_end = usual if "\n" not in replaced else "\r\n" if "\r\n" in replaced else "\n"
    return new.replace("\n", line_end)
