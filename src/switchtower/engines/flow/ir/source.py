"""Parses YAML into a tree that keeps the position of every item, and reads the maps of a flow from it. It opens no file.

Scalars stay strings: in a flow, YAML does not decide what `yes`, `1e3` or `2024-01-01` mean. Hostile files are bounded: their
size, their depth, and their size after aliases are expanded.
"""

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.engines.flow.ir import flow

if TYPE_CHECKING:
    import yaml


LARGEST = 256 * 1024
"""The most characters of a file."""
DEEPEST = 50
MOST_ITEMS = 50_000
"""The most items of the tree, with every alias expanded."""
MOST_PROBLEMS = 50
_NULLS = ("", "~", "null", "Null", "NULL")


class SourceProblem(Struct, frozen=True, order=True):
    line: int
    column: int
    """Both count from 1."""
    message: str


class InvalidSource(Exception):
    """The file is not a flow. The error lists every problem."""

    def __init__(self, source_file: str | None, found: list[SourceProblem]) -> None:
        super().__init__(source_file, found)
        self.source_file = source_file
        self.problems = sorted(found)[:MOST_PROBLEMS]

    def __str__(self) -> str:
        name = self.source_file or "flow"
        return "\n".join(f"{name}:{each.line}:{each.column}: {each.message}" for each in self.problems)


class SourceItem(Struct, frozen=True, eq=False):
    """A string, a list, a map, or nothing (`null`)."""

    value: "str | list[SourceItem] | dict[str, SourceItem] | None"
    line: int
    column: int
    size: int = 1
    depth: int = 1
    keys: dict[str, tuple[int, int]] = {}
    """The positions of a map's keys."""

    def to_plain(self) -> Any:
        """Returns the item as it is put into a flow: scalars are strings."""
        if isinstance(self.value, list):
            return [each.to_plain() for each in self.value]
        if isinstance(self.value, dict):
            return {key: each.to_plain() for key, each in self.value.items()}
        return self.value

    def iterate_paths(self, path: str) -> "Iterator[tuple[str, SourceItem]]":
        """Yields each item inside, under its path in the flow."""
        yield path, self
        if isinstance(self.value, list):
            for index, each in enumerate(self.value):
                yield from each.iterate_paths(f"{path}[{index}]")
        elif isinstance(self.value, dict):
            for key, each in self.value.items():
                yield from each.iterate_paths(flow.join_path(path, key))


class _SourceError(Exception):
    def __init__(self, mark: Any, message: str) -> None:
        super().__init__(message)
        self.problem = SourceProblem(mark.line + 1, mark.column + 1, message)


class _OpenCollection:
    """A list or map whose end has not been reached yet."""

    def __init__(self, event: "yaml.CollectionStartEvent", *, is_map: bool) -> None:
        self.mark: Any = event.start_mark
        self.anchor = event.anchor
        self.is_map = is_map
        self.items: list[SourceItem] = []
        self.members: dict[str, SourceItem] = {}
        self.keys: dict[str, tuple[int, int]] = {}
        self.key: str | None = None
        self.size = 1
        self.depth = 1

    def add(self, item: SourceItem, mark: Any) -> None:
        self.size += item.size
        self.depth = max(self.depth, 1 + item.depth)
        if not self.is_map:
            self.items.append(item)
        elif self.key is not None:
            self.members[self.key] = item
            self.key = None
        elif not isinstance(item.value, str):
            raise _SourceError(mark, "a name must be a text")
        elif item.value in self.members:
            line = self.keys[item.value][0]
            raise _SourceError(mark, f"`{flow.clip_name(item.value)}` is there twice; the first one is in line {line}")
        elif item.value == "<<":
            raise _SourceError(mark, "`<<` is not read; hint: write the names out")
        else:
            self.key = item.value
            self.keys[item.value] = (mark.line + 1, mark.column + 1)

    def close(self) -> SourceItem:
        value = self.members if self.is_map else self.items
        return SourceItem(value, self.mark.line + 1, self.mark.column + 1, self.size, self.depth, self.keys)


def parse_source(text: str, source_file: str | None = None) -> SourceItem:
    """Raises `InvalidSource`."""
    import yaml

    if len(text) > LARGEST:
        raise InvalidSource(source_file, [SourceProblem(1, 1, f"a flow has at most {LARGEST // 1024} KiB")])
    try:
        return _build_tree(text)
    except _SourceError as trouble:
        found = trouble.problem
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        said = flow.clip_name(problem.problem or problem.context or "it cannot be read")
        found = SourceProblem(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, f"this is no YAML: {said}")
    except yaml.reader.ReaderError as problem:
        before = text[: problem.position] if isinstance(problem.position, int) else ""
        column = len(before) - before.rfind("\n")
        found = SourceProblem(before.count("\n") + 1, column, "this is no YAML: a character that it does not allow")
    except (yaml.YAMLError, ValueError, OverflowError):
        found = SourceProblem(1, 1, "this is no YAML: it cannot be read")
    raise InvalidSource(source_file, [found])


def _build_tree(text: str) -> SourceItem:
    import yaml

    # Only events are read: nothing is constructed, so a tag has no effect. The C parser does the same, ten times as fast.
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    root: SourceItem | None = None
    documents = 0
    open_: list[_OpenCollection] = []
    anchors: dict[str, SourceItem | None] = {}
    items = 0
    for event in events:
        mark = event.start_mark
        anchor: str | None = None
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise _SourceError(mark, "a file holds one flow, and here begins another document")
                continue
            case yaml.AliasEvent():
                named = event.anchor or ""
                item = anchors.get(named)
                if item is None:
                    raise _SourceError(mark, f"`*{flow.clip_name(named)}` stands for nothing that is complete by here")
            case yaml.ScalarEvent():
                _check_tag(event)
                plain_null = event.style is None and event.value in _NULLS
                item = SourceItem(None if plain_null else event.value, mark.line + 1, mark.column + 1)
                anchor = event.anchor
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                _check_tag(event)
                _check_depth(len(open_) + 1, mark)
                if event.anchor is not None:
                    anchors[event.anchor] = None
                open_.append(_OpenCollection(event, is_map=isinstance(event, yaml.MappingStartEvent)))
                continue
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                closed = open_.pop()
                item, mark, anchor = closed.close(), closed.mark, closed.anchor
            case _:
                continue
        if anchor is not None:
            anchors[anchor] = item
        items = max(items + 1, item.size)
        if items > MOST_ITEMS:
            raise _SourceError(mark, f"this becomes more than {MOST_ITEMS} items, with aliases in their places")
        _check_depth(len(open_) + item.depth, mark)
        if open_:
            open_[-1].add(item, mark)
        else:
            root = item
    if root is None:
        raise _SourceError(yaml.Mark("", 0, 0, 0, None, 0), "there is nothing in it; hint: a flow has `name` and `steps`")
    return root


def _check_depth(depth: int, mark: Any) -> None:
    if depth > DEEPEST:
        raise _SourceError(mark, f"this is more than {DEEPEST} levels deep")


def _check_tag(event: Any) -> None:
    if event.tag is not None and event.tag != "!":
        raise _SourceError(event.start_mark, f"tags such as `{flow.clip_name(event.tag)}` are not read; hint: leave it out")


_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,6})?)(ms|s|m|h)")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
LONGEST_MS = 2**31 - 1


class SourceProblems:
    """Collects the problems of one file."""

    def __init__(self) -> None:
        self.found: list[SourceProblem] = []

    def add(self, at: SourceItem, message: str) -> None:
        self.found.append(SourceProblem(at.line, at.column, message))


class MapReader:
    """A map whose keys are known in advance."""

    def __init__(self, item: SourceItem, what: str, known: Collection[str], source_problems: SourceProblems) -> None:
        self.item = item
        self._what = what
        self._problems = source_problems
        self._members: dict[str, SourceItem] = {}
        if not isinstance(item.value, dict):
            source_problems.add(item, f"{what} must be a map")
            return
        self._members = item.value
        for key in item.value:
            if key not in known:
                import difflib  # imported late: only for this hint

                near = difflib.get_close_matches(key[:100], known, n=1)
                hint = f"`{near[0]}`?" if near else f"it knows {', '.join(f'`{each}`' for each in known)}"
                line, column = item.keys[key]
                source_problems.found.append(SourceProblem(line, column, f"{what} has no `{flow.clip_name(key)}`; hint: {hint}"))

    def get(self, key: str) -> SourceItem | None:
        """Returns None when the key is missing; a key without a value counts as missing."""
        item = self._members.get(key)
        return item if item is not None and item.value is not None else None

    def get_text(self, key: str) -> str | None:
        item = self.get(key)
        return None if item is None else read_text(item, f"`{key}`", self._problems)

    def get_duration_ms(self, key: str) -> int:
        item = self.get(key)
        return 0 if item is None else read_duration_ms(item, f"`{key}`", self._problems)

    def get_names(self, key: str) -> list[tuple[str, SourceItem]] | None:
        """Returns one name or a list of them; None when the key is missing."""
        item = self.get(key)
        if item is None:
            return None
        each = item.value if isinstance(item.value, list) else [item]
        said = [(read_text(one, f"`{key}`", self._problems), one) for one in each]
        return list({name: (name, one) for name, one in said if name is not None}.values())


def read_text(item: SourceItem, what: str, source_problems: SourceProblems) -> str | None:
    if isinstance(item.value, str):
        return item.value
    source_problems.add(item, f"{what} must be a text")
    return None


def read_name(item: SourceItem, what: str, source_problems: SourceProblems) -> str | None:
    said = read_text(item, what, source_problems)
    if said is not None and not _NAME.fullmatch(said):
        source_problems.add(item, f"{what} must be made of letters, digits, `_`, `.` and `-`, and is `{flow.clip_name(said)}`")
        return None
    return said


def read_count(item: SourceItem, what: str, source_problems: SourceProblems) -> int:
    if isinstance(item.value, str) and re.fullmatch(r"[0-9]{1,9}", item.value):
        return int(item.value)
    source_problems.add(item, f"{what} must be a whole number from 0")
    return 0


def read_duration_ms(item: SourceItem, what: str, source_problems: SourceProblems) -> int:
    """Parses `500ms`, `1.5s`, `2m`, `1h`, or `0` for none."""
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
