"""The profiles: what holds where no rule says anything. And the kinds of tools that they tell apart."""

from enum import StrEnum

from switchtower.core.policy.rulings import Ruling

PROFILES = ("read-only", "ask", "auto", "yolo")


class Kind(StrEnum):
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
    **dict.fromkeys(READS, Kind.READ),
    **dict.fromkeys(WRITES, Kind.WRITE),
    **dict.fromkeys(COMMANDS, Kind.COMMAND),
    "git_commit": Kind.COMMIT,
    "mcp_server": Kind.SERVER,
}
_EFFECTS = {"read": Kind.READ, "write": Kind.WRITE}

_DEFAULTS = {
    "read-only": {Kind.READ: Ruling.ALLOW},
    "ask": {Kind.READ: Ruling.ALLOW},
    "auto": {Kind.READ: Ruling.ALLOW, Kind.WRITE: Ruling.ALLOW},
    "yolo": dict.fromkeys(Kind, Ruling.ALLOW),
}
_OTHERWISE = {"read-only": Ruling.DENY, "ask": Ruling.ASK, "auto": Ruling.ASK, "yolo": Ruling.ALLOW}


def kind_of(tool: str, effect: str | None) -> Kind:
    """A tool of ours is known by its name. One that claims the name but says that it does more is not taken for ours."""
    kind = _KINDS.get(tool)
    claimed = _EFFECTS.get(effect or "", Kind.OTHER)
    if kind is None or (effect is not None and kind is not claimed and kind in (Kind.READ, Kind.WRITE)):
        return claimed
    return kind


def is_ours(tool: str) -> bool:
    return tool in _KINDS


def default(profile: str, kind: Kind) -> Ruling:
    return _DEFAULTS[profile].get(kind, _OTHERWISE[profile])
