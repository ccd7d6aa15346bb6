"""Paths as words: where one lies in the workspace, whether it belongs to git or steers the agent, which patterns fit it.

Looks at no disk, so a link is not seen here; `tools/files/scope.py` has the last word on where a name really leads.
"""

import unicodedata
from functools import lru_cache

from msgspec import Struct

from switchtower.core.policy import globs

Parts = tuple[str, ...]

_GIT = frozenset({".git", "git~1"})
STEERING_FILES = frozenset({".mcp.json", "agents.md", "claude.md", "gemini.md", ".cursorrules"})
STEERING_FOLDERS = frozenset({".tower"})


def inside(path: str, workspace: str = "", base: Parts = ()) -> Parts | None:
    """The parts of a path below the workspace, with `.` and `..` worked out; None when it leads out of it.

    A relative path starts at `base`, a folder of the workspace.
    """
    if path.startswith("/"):
        root = workspace.rstrip("/")
        # The root itself may be spelled with `..`, so both are worked out before they are compared.
        absolute, home = _resolved(path.split("/"), ()), _resolved(root.split("/"), ())
        if not home or absolute is None or absolute[: len(home)] != home:
            return None
        return absolute[len(home) :]
    if path == "~" or path.startswith("~/"):
        return None
    return _resolved(path.split("/"), base)


def _resolved(parts: list[str], base: Parts) -> Parts | None:
    stack = list(base)
    for part in parts:
        if part == "..":
            if not stack:
                return None
            stack.pop()
        elif part not in ("", "."):
            stack.append(part)
    return tuple(stack)


def fold(text: str) -> str:
    """Names that some disk holds for the same become the same: upper case, look-alike forms, characters without a shape."""
    if text.isascii() and text.isprintable():
        return text.lower()
    shown = "".join(char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in ("Cf", "Cc"))
    return shown.casefold()


def belongs_to_git(parts: Parts) -> bool:
    return any(fold(part).rstrip(" .") in _GIT for part in parts)


def steers_the_agent(parts: Parts) -> bool:
    """A file that tells the agent or its daemon what to do; who writes it can give itself more than it has."""
    folded = [fold(part).rstrip(" .") for part in parts]
    return bool(folded) and (folded[-1] in STEERING_FILES or not STEERING_FOLDERS.isdisjoint(folded))


class Pattern(Struct, frozen=True):
    """A path with wildcards, part by part; None stands for `**`, any number of parts."""

    parts: tuple[globs.Glob | None, ...]
    folded: tuple[globs.Glob | None, ...]
    """The same for comparisons in which upper and lower case count as one."""
    absolute: bool

    @property
    def is_literal(self) -> bool:
        return all(part is not None and globs.is_literal(part) for part in self.parts)


@lru_cache(maxsize=512)
def pattern(text: str) -> Pattern:
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    return Pattern(
        parts=tuple(None if part == "**" else globs.parse(part) for part in parts),
        folded=tuple(None if part == "**" else globs.parse(fold(part)) for part in parts),
        absolute=text.startswith("/"),
    )


def fits(wanted: Pattern, parts: Parts, workspace: str = "") -> bool:
    """For rules that allow: exactly this path, upper and lower case told apart."""
    return _fits(wanted.parts, _placed(wanted, parts, workspace))


def touches(wanted: Pattern, parts: Parts, workspace: str = "", *, wild: bool = False) -> bool:
    """For rules that ask or deny: this path or a folder that it lies in, in any spelling.

    `wild` says that the path itself has wildcards, and it counts what they could stand for.
    """
    folded = tuple(fold(part) for part in _placed(wanted, parts, workspace))
    return _fits((*wanted.folded, None), folded, wild=wild)


def may_hold(wanted: Pattern, folder: Parts, workspace: str = "") -> bool:
    """Whether the pattern could fit something below this folder."""
    reached = {0}
    for part in _placed(wanted, folder, workspace):
        reached = _step(wanted.folded, reached, fold(part))
    return bool(_through(wanted.folded, reached))


def _placed(wanted: Pattern, parts: Parts, workspace: str) -> Parts:
    if not wanted.absolute:
        return parts
    return (*(part for part in workspace.split("/") if part), *parts)


def _fits(wanted: tuple[globs.Glob | None, ...], parts: Parts, *, wild: bool = False) -> bool:
    reached = {0}
    for part in parts:
        reached = _step(wanted, reached, part, wild=wild)
        if not reached:
            return False
    return len(wanted) in _through(wanted, reached)


def _step(wanted: tuple[globs.Glob | None, ...], reached: set[int], part: str, *, wild: bool = False) -> set[int]:
    """The places in the pattern that one more part leads to."""
    after = set()
    for at in _through(wanted, reached):
        if at == len(wanted):
            continue
        glob = wanted[at]
        if glob is None:
            after.add(at)
        elif globs.meets(glob, globs.parse(part)) if wild else globs.matches(glob, part):
            after.add(at + 1)
    return after


def _through(wanted: tuple[globs.Glob | None, ...], reached: set[int]) -> set[int]:
    """`**` may also stand for nothing."""
    places = set(reached)
    for at in reached:
        while at < len(wanted) and wanted[at] is None:
            at += 1
            places.add(at)
    return places
