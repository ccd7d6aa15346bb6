"""Where a text that was not found might be meant: the same words with other spaces, or lines that look like it. Pure."""

import difflib

_MOST_LINES = 5000
_LONGEST_HINT_LINE = 200
_SHOWN_LINES = 6
_ALIKE = 0.6


def suggest_similar(text: str, wanted: str) -> str:
    """A sentence and the nearest lines as they really are, to stand behind a complaint; empty when nothing is like it."""
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
    """By the longest line that is wanted, which says the most."""
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
