"""Replaces a part of a text file: one exact text becomes another. The text must occur, and only once unless all occurrences are
meant; line endings, a byte order mark and the file's mode stay.

When the text is not found, similar places are suggested: the same words with other spaces, or similar lines.

Unified diffs are bounded in size. Where little changes in a large text, only that part is compared; where too much changes to be
compared line by line in good time, the whole part is shown as removed and added.
"""

import difflib
import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, islice

from msgspec import Struct

from switchtower.tools import outcome, safe_text
from switchtower.tools.files import atomic_write, files, scope

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
    permit: atomic_write.WritePermit | None = None,
) -> files.WrittenFile:
    with files.translate_os_errors(path, outcome.ToolErrorType.WRITE_FAILED), scope.locate(root, path) as place:
        whole = files.read_whole(place)
        _check_digest(place.path, whole.content, wanted.expected_hash, known_digest)
        applied = apply_edit(place.path, whole.content, wanted)
        content = applied.after.encode()
        atomic_write.replace_file(place, content, permit=permit or atomic_write.WritePermit(), expected=whole.status)
    digest = files.compute_digest(content)
    places = "1 place" if applied.places == 1 else f"{applied.places} places"
    diff = make_unified_diff(place.path, applied.before, applied.after, limit=_SHOWN_DIFF)
    return files.WrittenFile(place.path, f"edited `{place.path}` ({places}; hash {digest[: files.SHORT]})\n{diff}", digest)


def apply_edit(path: str, content: bytes, wanted: FileEdit) -> AppliedEdit:
    """Returns the content after the edit, without writing it."""
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
    digest = files.compute_digest(content)
    if expected_hash is not None:
        if not digest.startswith(expected_hash.lower()):
            message = f"`{path}` has the hash {digest[: files.SHORT]}, not {expected_hash}; hint: read it again first"
            raise outcome.ToolFailed(outcome.ToolErrorType.EDIT_HASH_MISMATCH, message, retryable=True)
    elif known_digest is not None and known_digest(path) not in (None, digest):
        raise atomic_write.make_stale_error(path)


def _find_places(path: str, text: str, wanted: FileEdit, *, crlf: bool) -> list[tuple[int, int]]:
    most = _MOST_PLACES if wanted.replace_all else _SHOWN_PLACES
    occurrences = _iterate_occurrences(text, wanted.old, crlf=crlf, overlapping=not wanted.replace_all)
    places = list(islice(occurrences, most + 1))
    if not places:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.EDIT_CONTENT_NOT_FOUND,
            f"`old` does not occur in `{path}`{suggest_similar(text, wanted.old)}",
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
    """Yields the start and end of each occurrence of `old`. Models write plain newlines whatever the file has: in a file with
    CRLF a newline matches either. Two overlapping occurrences are as ambiguous as two that do not overlap.
    """
    returns: list[int] = []
    if crlf:
        lines = text.split("\r\n")
        returns = [position - 1 for position in accumulate(len(line) + 1 for line in lines[:-1])]
        text, old = "\n".join(lines), old.replace("\r\n", "\n")
    start = text.find(old)
    while start >= 0:
        end = start + len(old)
        # A place moves by as many characters as returns were removed before it.
        yield start + bisect_left(returns, start), end + bisect_left(returns, end)
        start = text.find(old, start + 1 if overlapping else end)


def _convert_line_ends(new: str, replaced: str, usual: str) -> str:
    """In a file with CRLF the new lines end as the replaced ones did, or as most do."""
    line_end = usual if "\n" not in replaced else "\r\n" if "\r\n" in replaced else "\n"
    return new.replace("\n", line_end)


_MOST_LINES = 5000
_LONGEST_HINT_LINE = 200
_SHOWN_LINES = 6
_ALIKE = 0.6


def suggest_similar(text: str, wanted: str) -> str:
    """Returns a sentence and the most similar lines of the file, to follow an error message; empty when nothing is similar."""
    lines = [line.rstrip("\r") for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]]
    wanted_lines = wanted.replace("\r\n", "\n").strip("\n").split("\n")
    if (number := _find_with_other_spacing(lines, wanted_lines)) is not None:
        return _format_hint("; there is this, with other spaces", lines, number, len(wanted_lines))
    if (number := _find_alike(lines, wanted_lines)) is not None:
        return _format_hint("; the most similar lines are", lines, number, len(wanted_lines))
    return ""


def _find_with_other_spacing(lines: list[str], wanted: list[str]) -> int | None:
    bare, bare_wanted = ["".join(line.split()) for line in lines], ["".join(line.split()) for line in wanted]
    if not any(bare_wanted):
        return None
    for number in range(len(lines) - len(wanted) + 1):
        if bare[number] == bare_wanted[0] and bare[number : number + len(wanted)] == bare_wanted:
            return number
    return None


def _find_alike(lines: list[str], wanted: list[str]) -> int | None:
    """Searches by the longest wanted line, which is the most distinctive."""
    position, longest = max(enumerate(line.strip()[:_LONGEST_HINT_LINE] for line in wanted), key=lambda pair: len(pair[1]))
    if not longest:
        return None
    candidates = {line.strip()[:_LONGEST_HINT_LINE]: number for number, line in reversed(list(enumerate(lines)))}
    nearest = difflib.get_close_matches(longest, candidates, n=1, cutoff=_ALIKE)
    return max(candidates[nearest[0]] - position, 0) if nearest else None


def _format_hint(opening: str, lines: list[str], number: int, count: int) -> str:
    shown = lines[number : number + min(count, _SHOWN_LINES)]
    last = number + len(shown)
    where = f"line {last}" if len(shown) == 1 else f"lines {number + 1} to {last}"
    more = "\n…" if count > _SHOWN_LINES else ""
    return f"{opening} ({where}):\n" + "\n".join(line[: 2 * _LONGEST_HINT_LINE] for line in shown) + more


_CONTEXT = 3
_MOST_COMPARED = 1000
"""The most lines on one side. The time of a comparison grows with the square of it."""
_LONGEST_LINE = 1000

_Opcode = tuple[str, int, int, int, int]


def make_unified_diff(path: str, before: str | None, after: str, *, limit: int | None) -> str:
    """Returns the diff from one text to the next; `None` is a file that does not exist yet. It is empty when nothing changes.

    Without a limit the diff is complete: no line is cut or left out.
    """
    if before == after:
        return ""
    old, new = _split_lines(before or ""), _split_lines(after)
    if _is_only_crlf(old) and _is_only_crlf(new):
        old, new = [_strip_cr(line) for line in old], [_strip_cr(line) for line in new]
    name = safe_text.escape_to_one_line(path)
    longest_line = _LONGEST_LINE if limit is not None else None
    lines = [f"--- {'/dev/null' if before is None else f'a/{name}'}", f"+++ b/{name}", *_iterate_hunks(old, new, longest_line)]
    return "\n".join(lines) if limit is None else _truncate_diff(lines, limit)


def _iterate_hunks(old: Sequence[str], new: Sequence[str], longest_line: int | None) -> Iterator[str]:
    for group in _group_opcodes(old, new):
        first, last = group[0], group[-1]
        yield f"@@ -{_format_range(first[1], last[2])} +{_format_range(first[3], last[4])} @@"
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (_format_line(" ", line, longest_line) for line in old[old_start:old_end])
            else:
                yield from (_format_line("-", line, longest_line) for line in old[old_start:old_end])
                yield from (_format_line("+", line, longest_line) for line in new[new_start:new_end])


def _group_opcodes(old: Sequence[str], new: Sequence[str]) -> Iterator[list[_Opcode]]:
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    # The changed middle with its context; the text outside is equal and not shown.
    start, after = max(head - _CONTEXT, 0), max(tail - _CONTEXT, 0)
    old_part, new_part = old[start : len(old) - after], new[start : len(new) - after]
    if max(len(old_part), len(new_part)) > _MOST_COMPARED:
        groups: Iterator[list[_Opcode]] = iter([_make_replacement(old_part, new_part, head - start, tail - after)])
    else:
        groups = iter(SequenceMatcher(None, old_part, new_part).get_grouped_opcodes(_CONTEXT))
    for group in groups:
        yield [(tag, i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in group]


def _make_replacement(old: Sequence[str], new: Sequence[str], head: int, tail: int) -> list[_Opcode]:
    old_end, new_end = len(old) - tail, len(new) - tail
    group: list[_Opcode] = [
        ("equal", 0, head, 0, head),
        ("replace", head, old_end, head, new_end),
        ("equal", old_end, len(old), new_end, len(new)),
    ]
    return [opcode for opcode in group if opcode[1] < opcode[2] or opcode[3] < opcode[4]]


def _format_range(start: int, end: int) -> str:
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _format_line(mark: str, line: str, longest: int | None) -> str:
    ended = line.endswith("\n")
    text = line[:-1] if ended else line
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]} [… {len(text) - longest} more characters]"
    return f"{mark}{safe_text.escape_control_characters(text)}" + ("" if ended else "\n\\ No newline at end of file")


def _truncate_diff(lines: Sequence[str], limit: int) -> str:
    """Returns as many lines as fit. A hash of the whole identifies the rest, so that two long diffs are not confused."""
    kept, size = 0, 0
    for line in lines:
        size += len(line.encode(errors="replace")) + 1
        if size > limit:
            break
        kept += 1
    if kept == len(lines):
        return "\n".join(lines)
    whole = "\n".join(lines)
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()
    return "\n".join(
        [*lines[:kept], f"[… {len(lines) - kept} more lines not shown; the whole diff has the hash {digest[:16]} …]"]
    )


def _split_lines(text: str) -> list[str]:
    """Splits at newlines only; a form feed or a Unicode separator is part of a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _is_only_crlf(lines: Sequence[str]) -> bool:
    return all(line.endswith("\r\n") for line in lines[:-1]) and (
        not lines or not lines[-1].endswith("\n") or lines[-1].endswith("\r\n")
    )


def _strip_cr(line: str) -> str:
    return f"{line[:-2]}\n" if line.endswith("\r\n") else line
