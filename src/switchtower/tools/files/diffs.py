"""Unified diffs of bounded size, for people and models to read. Pure.

Where little changes in a large text only that part is compared; where too much changes to be compared line by line in good
time, the whole part is shown as removed and added.
"""

import hashlib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from switchtower.tools import shown

_CONTEXT = 3
_MOST_COMPARED = 1000
"""Lines on one side. Comparing takes time that grows with the square of it."""
_LONGEST_LINE = 1000

_Opcode = tuple[str, int, int, int, int]


def make_unified_diff(path: str, before: str | None, after: str, *, limit: int | None) -> str:
    """From one text to the next; `None` is a file that is not there yet. Empty when nothing changes.

    Without a limit the diff is whole: no line of it is cut or left out."""
    if before == after:
        return ""
    old, new = _split_lines(before or ""), _split_lines(after)
    if _is_only_crlf(old) and _is_only_crlf(new):
        old, new = [_strip_cr(line) for line in old], [_strip_cr(line) for line in new]
    name = shown.escape_to_one_line(path)
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
    # The unequal middle with its surroundings; what lies outside is equal and not shown.
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
    return f"{mark}{shown.escape_control_characters(text)}" + ("" if ended else "\n\\ No newline at end of file")


def _truncate_diff(lines: Sequence[str], limit: int) -> str:
    """As many lines as fit. The rest is named by a hash of all of it, so that two long diffs are not taken for one."""
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
    """Only newlines end a line; a form feed or a Unicode separator is part of one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _is_only_crlf(lines: Sequence[str]) -> bool:
    return all(line.endswith("\r\n") for line in lines[:-1]) and (
        not lines or not lines[-1].endswith("\n") or lines[-1].endswith("\r\n")
    )


def _strip_cr(line: str) -> str:
    return f"{line[:-2]}\n" if line.endswith("\r\n") else line
