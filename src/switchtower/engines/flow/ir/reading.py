"""Reads the members of a YAML flow's maps, and notes what is wrong where it stands. Pure."""

import re
from collections.abc import Collection

from switchtower.engines.flow.ir import problems, source

_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,6})?)(ms|s|m|h)")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
LONGEST_MS = 2**31 - 1


class SourceProblems:
    """Problems of one file, as they are found."""

    def __init__(self) -> None:
        self.found: list[source.SourceProblem] = []

    def add(self, at: source.SourceItem, message: str) -> None:
        self.found.append(source.SourceProblem(at.line, at.column, message))


class MapReader:
    """A map with names that are known in advance."""

    def __init__(self, item: source.SourceItem, what: str, known: Collection[str], source_problems: SourceProblems) -> None:
        self.item = item
        self._what = what
        self._problems = source_problems
        self._members: dict[str, source.SourceItem] = {}
        if not isinstance(item.value, dict):
            source_problems.add(item, f"{what} must be a map")
            return
        self._members = item.value
        for key in item.value:
            if key not in known:
                import difflib  # late: only for this hint

                near = difflib.get_close_matches(key[:100], known, n=1)
                hint = f"`{near[0]}`?" if near else f"it knows {', '.join(f'`{each}`' for each in known)}"
                line, column = item.keys[key]
                source_problems.found.append(
                    source.SourceProblem(line, column, f"{what} has no `{problems.clip_name(key)}`; hint: {hint}")
                )

    def get(self, key: str) -> source.SourceItem | None:
        """None when it is not there; a name with nothing behind it counts as not there."""
        item = self._members.get(key)
        return item if item is not None and item.value is not None else None

    def get_text(self, key: str) -> str | None:
        item = self.get(key)
        return None if item is None else read_text(item, f"`{key}`", self._problems)

    def get_duration_ms(self, key: str) -> int:
        item = self.get(key)
        return 0 if item is None else read_duration_ms(item, f"`{key}`", self._problems)

    def get_names(self, key: str) -> list[tuple[str, source.SourceItem]] | None:
        """One name or a list of them; None when the key is not there."""
        item = self.get(key)
        if item is None:
            return None
        each = item.value if isinstance(item.value, list) else [item]
        said = [(read_text(one, f"`{key}`", self._problems), one) for one in each]
        return list({name: (name, one) for name, one in said if name is not None}.values())


def read_text(item: source.SourceItem, what: str, source_problems: SourceProblems) -> str | None:
    if isinstance(item.value, str):
        return item.value
    source_problems.add(item, f"{what} must be a text")
    return None


def read_name(item: source.SourceItem, what: str, source_problems: SourceProblems) -> str | None:
    said = read_text(item, what, source_problems)
    if said is not None and not _NAME.fullmatch(said):
        source_problems.add(
            item, f"{what} must be made of letters, digits, `_`, `.` and `-`, and is `{problems.clip_name(said)}`"
        )
        return None
    return said


def read_count(item: source.SourceItem, what: str, source_problems: SourceProblems) -> int:
    if isinstance(item.value, str) and re.fullmatch(r"[0-9]{1,9}", item.value):
        return int(item.value)
    source_problems.add(item, f"{what} must be a whole number from 0")
    return 0


def read_duration_ms(item: source.SourceItem, what: str, source_problems: SourceProblems) -> int:
    """`500ms`, `1.5s`, `2m`, `1h`, or `0` for none."""
    said = item.value if isinstance(item.value, str) else ""
    if said == "0":
        return 0
    match = _DURATION.fullmatch(said)
    if match is None:
        source_problems.add(item, f"{what} must be a time with its unit, such as `500ms`, `30s`, `2m` or `1h`")
        return 0
    milliseconds = round(float(match[1]) * _MILLISECONDS[match[2]])
    if milliseconds > LONGEST_MS:
        source_problems.add(item, f"{what} must be at most {LONGEST_MS} ms, which is almost 25 days")
        return 0
    return milliseconds
