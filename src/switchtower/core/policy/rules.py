"""Rules as people write them, and which calls they speak about. The strictest that speaks wins; who asks sees to that.

A rule that allows has to fit exactly. A rule that asks or denies fits generously: in any case, by a folder above, under any path.
"""

from collections.abc import Mapping, Sequence

from switchtower.core import events
from switchtower.core.policy import globs, paths, patterns, profiles
from switchtower.core.policy.rulings import Ruling

_KEYS = ("effect", "tool", "path", "command")
_EFFECTS = tuple(ruling.value for ruling in Ruling)
_COMMAND_TOOLS = ("run", "mcp_server")
_COMMIT = "git_commit"
_LONGEST = 4096
TOOLS_OF_SERVERS = "@mcp"
"""As a rule's `tool`: every tool that is not one of ours."""


def parse_rules(table: object) -> tuple[events.Rule, ...]:
    """The rules of a configuration, its `[[rules]]`. Raises `ValueError` that says which one is wrong, and why."""
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
        return None  # It is about the commit's message.
    if rule.path is not None:
        return "`path` and `command` are for different tools, so make two rules of it"
    if rule.tool is not None and not any(is_for_tool(rule, tool) for tool in _COMMAND_TOOLS):
        return f"`command` says nothing about the tool `{rule.tool}`; it is for {_join_names(_COMMAND_TOOLS)}"
    return None if patterns.parse_command_pattern(rule.command).finished else "a quote in `command` does not end"


def format_rule(rule: events.Rule) -> str:
    """A rule as one short text: `deny run git push *`."""
    return " ".join(part for part in (rule.effect, rule.tool, rule.path, rule.command) if part is not None)


def describe_always(rule: events.Rule) -> str:
    """The rule that "always" would make, as the question shows it."""
    return format_rule(rule) if rule.command is not None or rule.path is not None else f"{format_rule(rule)}, with any arguments"


def matches_tool(pattern: str, tool: str) -> bool:
    return globs.match_glob(globs.parse_rule_glob(pattern), tool[:_LONGEST])


def is_for_tool(rule: events.Rule, tool: str) -> bool:
    if rule.tool is None:
        return True
    if rule.tool == TOOLS_OF_SERVERS:
        return not profiles.is_ours(tool)
    if rule.effect == Ruling.ALLOW:
        return matches_tool(rule.tool, tool)
    return globs.match_glob(globs.parse_rule_glob(paths.normalize_name(rule.tool)), paths.normalize_name(tool[:_LONGEST]))


def is_file_restriction(rule: events.Rule, tool: str, files: Sequence[paths.Parts], workspace: str) -> bool:
    """A rule that asks or denies: it is about the tool, or about one of these files."""
    if rule.command is not None or not is_for_tool(rule, tool):
        return False
    return rule.path is None or any(
        paths.match_path_loosely(paths.parse_path_pattern(rule.path), parts, workspace) for parts in files
    )


def is_file_permission(rule: events.Rule, tool: str, files: Sequence[paths.Parts], workspace: str) -> bool:
    """A rule that allows: it is about the tool, and about each of these files."""
    if rule.command is not None or not is_for_tool(rule, tool):
        return False
    if rule.path is None:
        return True
    return bool(files) and all(paths.match_path_exactly(paths.parse_path_pattern(rule.path), parts, workspace) for parts in files)


def allows_commit(rule: events.Rule, tool: str, message: object) -> bool:
    """A rule that allows commits by their message."""
    if rule.effect != Ruling.ALLOW or rule.tool != tool or tool != _COMMIT or rule.command is None:
        return False
    return isinstance(message, str) and len(message) <= _LONGEST and matches_tool(rule.command, message)


def has_literal_path(rule: events.Rule) -> bool:
    """It spells out its file, so whoever made it meant that one."""
    return rule.path is not None and paths.parse_path_pattern(rule.path).is_literal


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
