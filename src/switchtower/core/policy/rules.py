"""Rules and profiles: a ruling with its reason, the profile's default where no rule applies, and which rules apply to a call.
The strictest rule that applies wins; the judge enforces that.

A rule that allows has to match exactly. A rule that asks or denies matches generously: in any case, by a folder above, under
any path.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from switchtower.core import events
from switchtower.core.policy import command_analysis, paths, patterns


class Ruling(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Judgement(Struct, frozen=True):
    """A ruling, and its reason in one sentence for a user or a model."""

    ruling: Ruling
    reason: str
    always: events.Rule | None = None
    """The rule that "always for this session" would add; None when no approval is requested, or when each call needs one."""
    destructive: bool = False
    """It may destroy, publish or take over something that cannot be recovered."""
    reasons: tuple[str, ...] = ()
    """Every reason for a question, `reason` first, when there are several."""


def allow(reason: str, *, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.ALLOW, reason, destructive=destructive)


def ask(reason: str, *, always: events.Rule | None = None, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.ASK, reason, always, destructive)


def deny(reason: str, *, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.DENY, reason, destructive=destructive)


PROFILES = ("read-only", "ask", "auto", "yolo")


class ToolKind(StrEnum):
    READ = "read"
    WRITE = "write"
    COMMAND = "command"
    COMMIT = "commit"
    SERVER = "server"
    """Starts an MCP server that the workspace names."""
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
    """A built-in tool is known by its name. A tool that has the name but declares a stronger effect does not count as
    built-in.
    """
    kind = _KINDS.get(tool)
    claimed = _KIND_EFFECTS.get(effect or "", ToolKind.OTHER)
    if kind is None or (effect is not None and kind is not claimed and kind in (ToolKind.READ, ToolKind.WRITE)):
        return claimed
    return kind


def is_ours(tool: str) -> bool:
    return tool in _KINDS


def default_ruling(profile: str, kind: ToolKind) -> Ruling:
    return _DEFAULTS[profile].get(kind, _OTHERWISE[profile])


_KEYS = ("effect", "tool", "path", "command")
_EFFECTS = tuple(ruling.value for ruling in Ruling)
_COMMAND_TOOLS = ("run", "mcp_server")
_COMMIT = "git_commit"
_LONGEST = 4096
TOOLS_OF_SERVERS = "@mcp"
"""A rule with this `tool` applies to every tool that is not built in."""


def parse_rules(table: object) -> tuple[events.Rule, ...]:
    """Parses the rules of a configuration, its `[[rules]]`. Raises `ValueError` with the number of the wrong rule and the
    reason.
    """
    if table is None:
        return ()
    if isinstance(table, str | bytes | Mapping) or not isinstance(table, Sequence):
        raise ValueError("rules are a list of tables, each under `[[rules]]`")
    return tuple(_parse_rule(row, number) for number, row in enumerate(table, start=1))


def _parse_rule(row: object, number: int) -> events.Rule:
    if not isinstance(row, Mapping):
        raise ValueError(f"rule {number} is not a table")
    if unknown := [key for key in row if key not in _KEYS]:
        raise ValueError(f"rule {number} has an unknown key `{unknown[0]}`; there are {_join_names(_KEYS)}")
    for key, value in row.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"rule {number}: `{key}` is a text that is not empty")
        if len(value) > _LONGEST:
            raise ValueError(f"rule {number}: `{key}` is longer than {_LONGEST} characters")
    if row.get("effect") not in _EFFECTS:
        raise ValueError(f"rule {number}: `effect` is one of {_join_names(_EFFECTS)}")
    rule = events.Rule(effect=row["effect"], tool=row.get("tool"), path=row.get("path"), command=row.get("command"))
    if (problem := _find_problem(rule)) is not None:
        raise ValueError(f"rule {number}: {problem}")
    return rule


def _find_problem(rule: events.Rule) -> str | None:
    if rule.tool is None and rule.path is None and rule.command is None:
        return (
            'it does not say which calls it is about\nhint: give it a `tool`, a `path` or a `command`; `tool = "*"` is every call'
        )
    if rule.path is not None and (rule.path.startswith("~") or ".." in rule.path.split("/")):
        return "`path` is relative to the workspace, without `~` and `..`"
    if rule.command is None:
        return None
    if rule.tool == _COMMIT and rule.effect == Ruling.ALLOW and rule.path is None:
        return None  # it matches the commit's message
    if rule.path is not None:
        return "`path` and `command` are for different tools, so make two rules of it"
    if rule.tool is not None and not any(is_for_tool(rule, tool) for tool in _COMMAND_TOOLS):
        return f"`command` says nothing about the tool `{rule.tool}`; it is for {_join_names(_COMMAND_TOOLS)}"
    return None if patterns.parse_command_pattern(rule.command).finished else "a quote in `command` does not end"


def format_rule(rule: events.Rule) -> str:
    """Returns a rule as one short text: `deny run git push *`."""
    return " ".join(part for part in (rule.effect, rule.tool, rule.path, rule.command) if part is not None)


def describe_always(rule: events.Rule) -> str:
    """Returns the rule that "always" would make, as the approval shows it."""
    return format_rule(rule) if rule.command is not None or rule.path is not None else f"{format_rule(rule)}, with any arguments"


def matches_tool(pattern: str, tool: str) -> bool:
    return paths.match_glob(paths.parse_rule_glob(pattern), tool[:_LONGEST])


def is_for_tool(rule: events.Rule, tool: str) -> bool:
    if rule.tool is None:
        return True
    if rule.tool == TOOLS_OF_SERVERS:
        return not is_ours(tool)
    if rule.effect == Ruling.ALLOW:
        return matches_tool(rule.tool, tool)
    return paths.match_glob(paths.parse_rule_glob(paths.normalize_name(rule.tool)), paths.normalize_name(tool[:_LONGEST]))


def is_file_restriction(rule: events.Rule, tool: str, files: Sequence[paths.Parts], workspace: str) -> bool:
    """Returns whether a rule that asks or denies applies to the tool, or to one of these files."""
    if rule.command is not None or not is_for_tool(rule, tool):
        return False
    return rule.path is None or any(
        paths.match_path_loosely(paths.parse_path_pattern(rule.path), parts, workspace) for parts in files
    )


def is_file_permission(rule: events.Rule, tool: str, files: Sequence[paths.Parts], workspace: str) -> bool:
    """Returns whether a rule that allows applies to the tool, and to each of these files."""
    if rule.command is not None or not is_for_tool(rule, tool):
        return False
    if rule.path is None:
        return True
    return bool(files) and all(paths.match_path_exactly(paths.parse_path_pattern(rule.path), parts, workspace) for parts in files)


def allows_commit(rule: events.Rule, tool: str, message: object) -> bool:
    """Returns whether the rule allows commits with this message."""
    if rule.effect != Ruling.ALLOW or rule.tool != tool or tool != _COMMIT or rule.command is None:
        return False
    return isinstance(message, str) and len(message) <= _LONGEST and matches_tool(rule.command, message)


def has_literal_path(rule: events.Rule) -> bool:
    """Returns whether the rule spells out its file, so its author meant that one."""
    return rule.path is not None and paths.parse_path_pattern(rule.path).is_literal


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


class PolicyRules(Struct, frozen=True):
    profile: str
    configured: tuple[events.Rule, ...] = ()
    granted: tuple[events.Rule, ...] = ()
    """Rules made by "always" in this session. For commands they hold only in the workspace's own folder and with its own
    input.
    """

    @property
    def rules(self) -> tuple[events.Rule, ...]:
        return (*self.configured, *self.granted)

    def default_ruling(self, kind: ToolKind) -> Ruling:
        return default_ruling(self.profile, kind)

    def refuse(self, reason: str) -> Judgement:
        """Returns the judgement of a call that cannot be allowed in advance: a question, or a denial in the profile
        `read-only`.
        """
        return deny(reason) if self.profile == "read-only" else ask(reason)

    def find_file_rule(self, ruling: Ruling, tool: str, files: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """Returns a rule that asks or denies, and applies to this tool or one of these files."""
        for rule in self.rules:
            if rule.effect == ruling and is_file_restriction(rule, tool, files, workspace):
                return rule
        return None

    def find_rule_below(self, tool: str, folders: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """Returns a rule that asks or denies, and applies to files that a search through these folders would read."""
        for rule in self.rules:
            if rule.effect == Ruling.ALLOW or rule.path is None or not is_for_tool(rule, tool):
                continue
            if any(paths.can_match_below(paths.parse_path_pattern(rule.path), folder, workspace) for folder in folders):
                return rule
        return None

    def find_command_rule(self, ruling: Ruling, tool: str, seen: command_analysis.CommandAnalysis) -> events.Rule | None:
        """Returns a rule that asks or denies, and applies to some part of this command."""
        for rule in self.rules:
            if rule.effect != ruling or not is_for_tool(rule, tool):
                continue
            if rule.command is not None and not command_analysis.is_matched_by(seen, patterns.parse_rule_pattern(rule.command)):
                continue
            if rule.path is None or command_analysis.has_path_match(seen, paths.parse_path_pattern(rule.path)):
                return rule
        return None

    def has_restrictions(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and is_for_tool(rule, tool) for rule in self.rules)

    def restricts_paths(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and rule.path is not None and is_for_tool(rule, tool) for rule in self.rules)

    def list_allowing_rules(self, tool: str, files: Sequence[paths.Parts], workspace: str) -> list[events.Rule]:
        """Returns the rules that allow this tool each of these files."""
        return [rule for rule in self.rules if rule.effect == Ruling.ALLOW and is_file_permission(rule, tool, files, workspace)]

    def list_commit_rules(self, tool: str, message: object) -> list[events.Rule]:
        return [rule for rule in self.rules if allows_commit(rule, tool, message)]

    def list_allowed_commands(self, tool: str) -> list[patterns.CommandPattern]:
        """Returns the commands that configured rules allow this tool to run. A rule with a path is about files and does not
        count here.
        """
        return _parse_command_patterns(self.configured, tool)

    def list_granted_commands(self, tool: str) -> list[patterns.CommandPattern]:
        return _parse_command_patterns(self.granted, tool)


def _parse_command_patterns(listed: Sequence[events.Rule], tool: str) -> list[patterns.CommandPattern]:
    return [
        patterns.parse_rule_pattern("*" if rule.command is None else rule.command)
        for rule in listed
        # A rule for commands does not apply to servers: a server keeps running, and its tools are offered to the model.
        if rule.effect == Ruling.ALLOW and rule.path is None and (tool == "run" or rule.tool is not None)
        if is_for_tool(rule, tool)
    ]


def describe_rule(rule: events.Rule) -> str:
    return f"the rule `{shorten(format_rule(rule))}` says so"


def shorten(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"
