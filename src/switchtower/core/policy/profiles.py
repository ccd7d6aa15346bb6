"""The profiles: what holds where no rule says anything. And the kinds of tools that they tell apart."""

from enum import StrEnum

from switchtower.core.policy.rulings import Ruling

PROFILES = ("read-only", "ask", "auto", "yolo")


class ToolKind(StrEnum):
    READ = "read"
    WRITE = "write"
    COMMAND = "command"
    COMMIT = "commit"
    SERVER = "server"
    """Starting an MCP server that the workspace names."""
    OTHER = "other"
    """A tool that nothing is known about, such as one of an MCP server."""


READS = frozenset({"read_file", "list_dir", "search", "git_status", "git_diff"})
WRITES = frozenset({"write_file", "edit_file"})
COMMANDS = frozenset({"run"})
_KINDS = {
    **dict.fromkeys(READS, ToolKind.READ),
    **dict.fromkeys(WRITES, ToolKind.WRITE),
    **dict.fromkeys(COMMANDS, ToolKind.COMMAND),
    "git_commit": ToolKind.COMMIT,
    "mcp_server": ToolKind.SERVER,
}
_KIND_EFFECTS = {"read": ToolKind.READ, "write": ToolKind.WRITE}

_DEFAULTS = {
    "read-only": {ToolKind.READ: Ruling.ALLOW},
    "ask": {ToolKind.READ: Ruling.ALLOW},
    "auto": {ToolKind.READ: Ruling.ALLOW, ToolKind.WRITE: Ruling.ALLOW},
    "yolo": dict.fromkeys(ToolKind, Ruling.ALLOW),
}
_OTHERWISE = {"read-only": Ruling.DENY, "ask": Ruling.ASK, "auto": Ruling.ASK, "yolo": Ruling.ALLOW}


def classify_tool(tool: str, effect: str | None) -> ToolKind:
    """A tool of ours is known by its name. One that claims the name but says that it does more is not taken for ours."""
    kind = _KINDS.get(tool)
    claimed = _KIND_EFFECTS.get(effect or "", ToolKind.OTHER)
    if kind is None or (effect is not None and kind is not claimed and kind in (ToolKind.READ, ToolKind.WRITE)):
        return claimed
    return kind


def is_ours(tool: str) -> bool:
    return tool in _KINDS


def default_ruling(profile: str, kind: ToolKind) -> Ruling:
    return _DEFAULTS[profile].get(kind, _OTHERWISE[profile])
