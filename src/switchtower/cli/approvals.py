"""Which approvals a headless run may give itself: the rules of `--approve`. What no rule matches is denied. Pure."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# A wildcard in a command stays inside one simple command: it never stands for what would chain, redirect or expand.
_IN_COMMAND = r"[^;&|<>`$()\\\n\r]*"
_IN_PATH = r"[^/]*"
_OUR_KINDS = ("exec", "write", "commit")


class Rule(NamedTuple):
    """`name` is a kind or a tool, with or without push's `sandbox_`. `glob`, if given, must match what the question is about:
    a command, a path, a commit's message, or for the kind `mcp` the tool's name."""

    name: str
    glob: str | None

    def matches(self, kind: str, details: Mapping[str, Any]) -> bool:
        tool = str(details.get("tool", ""))
        name = self.name.removeprefix("sandbox_")
        # A stranger's server may be called `sandbox` and offer a tool `exec`: push's names are for our own tools alone.
        if name not in (kind, tool) or (name != self.name and kind not in _OUR_KINDS):
            return False
        if self.glob is None:
            return True
        if isinstance(command := details.get("command"), str):
            return re.fullmatch(_pattern(self.glob, _IN_COMMAND, deep=_IN_COMMAND), command) is not None
        if isinstance(path := details.get("path"), str):
            normal = posixpath.normpath(path)
            # Only a rule that says so itself leads out of the workspace.
            leads_out = normal == ".." or normal.startswith(("/", "../"))
            if leads_out and not self.glob.startswith(("/", "../")):
                return False
            return re.fullmatch(_pattern(self.glob, _IN_PATH, deep=".*"), normal, re.DOTALL) is not None
        if kind == "commit" and isinstance(message := details.get("message"), str):
            return re.fullmatch(_pattern(self.glob, ".*", deep=".*"), message, re.DOTALL) is not None
        if kind == "mcp":
            return re.fullmatch(_pattern(self.glob, _IN_PATH, deep=_IN_PATH), tool) is not None
        return False


class Rules(NamedTuple):
    always: bool
    rules: tuple[Rule, ...]

    def approve(self, kind: str, details: Mapping[str, Any]) -> bool:
        return self.always or any(rule.matches(kind, details) for rule in self.rules)


NEVER = Rules(False, ())


def parse(texts: Sequence[str]) -> Rules:
    """Raises ValueError with the reason."""
    for word in ("never", "always"):
        if word in texts and set(texts) != {word}:
            raise ValueError(f"`{word}` leaves no room for other rules")
    if "always" in texts:
        return Rules(True, ())
    return Rules(False, tuple(_rule(text) for text in texts if text != "never"))


def _rule(text: str) -> Rule:
    name, colon, glob = text.partition(":")
    if not name or (colon and not glob):
        raise ValueError(f"`{text}` is neither KIND nor TOOL nor TOOL:GLOB")
    return Rule(name, glob if colon else None)


def _pattern(glob: str, wild: str, *, deep: str) -> str:
    pieces = {"**": deep, "*": wild, "?": wild[:-1]}
    return "".join(pieces.get(piece) or re.escape(piece) for piece in re.split(r"(\*\*|\*|\?)", glob))
