"""The rules of `--approve`, turned into rules of the policy. The daemon judges them on the call itself; this module does not."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from switchtower.core import policy
from switchtower.protocols.push import messages

_OUR_TOOLS = (*sorted(policy.READS | policy.WRITES | policy.COMMANDS), "git_commit", "mcp_server")
_KINDS = {
    "exec": ("run",),
    "write": ("write_file", "edit_file"),
    "commit": ("git_commit",),
    "mcp": ("mcp_server",),
    "tool": (policy.TOOLS_OF_SERVERS,),
}
_WITH_COMMAND = frozenset({"run", "git_commit"})
"""For a commit it is the message."""
_WITH_PATH = frozenset({"write_file", "edit_file"})
_SUGGESTION_CUTOFF = 0.8


class ApprovalRules(NamedTuple):
    always: bool = False
    """Every question is approved, whatever it is about."""
    rules: tuple[messages.RunRule, ...] = ()
    """For the daemon, with the message that starts the run."""


NO_RULES = ApprovalRules()


def parse_approval_rules(texts: Sequence[str]) -> ApprovalRules:
    """Raises ValueError with the reason."""
    for word in ("never", "always"):
        if word in texts and set(texts) != {word}:
            raise ValueError(f"`{word}` leaves no room for other rules")
    if "always" in texts:
        return ApprovalRules(always=True)
    return ApprovalRules(rules=tuple(rule for text in texts if text != "never" for rule in _parse_rule(text)))


def _parse_rule(text: str) -> list[messages.RunRule]:
    """One rule for each tool that a text is about."""
    name, colon, pattern = text.partition(":")
    if not name.strip() or (colon and not pattern.strip()):
        raise ValueError(f"`{text}` is neither KIND nor TOOL nor TOOL:PATTERN")
    if name == "mcp" and colon:
        return [_make_server_rule(pattern, text)]
    tools = _match_tools(name, text)
    rules = [messages.RunRule("allow", tool, *_split_pattern(tool, pattern if colon else None, text)) for tool in tools]
    try:
        policy.parse_rules([{name: value for name, value in rule.items() if value} for rule in map(_to_row, rules)])
    except ValueError as problem:
        raise ValueError(f"`{text}`: {str(problem).partition(': ')[2] or problem}") from None
    return rules


def _to_row(rule: messages.RunRule) -> dict[str, str | None]:
    return {"effect": rule.effect, "tool": rule.tool, "path": rule.path, "command": rule.command}


def _match_tools(name: str, text: str) -> tuple[str, ...]:
    # push calls our own tools `sandbox_…` too.
    for known in (name, name.removeprefix("sandbox_")):
        if known in _KINDS:
            return _KINDS[known]
        if known in _OUR_TOOLS:
            return (known,)
    close = difflib.get_close_matches(name, (*_KINDS, *_OUR_TOOLS, "always", "never"), n=1, cutoff=_SUGGESTION_CUTOFF)
    if close:
        raise ValueError(f"`{text}`: no kind or tool is called `{name}`; did you mean `{close[0]}`?")
    if "_" not in name:
        raise ValueError(
            f"`{text}`: no kind or tool is called `{name}`; kinds are {', '.join(_KINDS)}, tools are"
            f" {', '.join(_OUR_TOOLS)}, and a tool of an MCP server is SERVER_TOOL"
        )
    return (policy.escape_glob(name),)


def _make_server_rule(pattern: str, text: str) -> messages.RunRule:
    if covered := [tool for tool in _OUR_TOOLS if policy.matches_tool(pattern, tool)]:
        raise ValueError(f"`{text}` would also allow `{covered[0]}`; use `tool` for all tools of MCP servers")
    return messages.RunRule("allow", pattern)


def _split_pattern(tool: str, pattern: str | None, text: str) -> tuple[str | None, str | None]:
    """The path and the command of a rule."""
    if pattern is None:
        return None, None
    if tool in _WITH_COMMAND:
        return None, pattern
    if tool in _WITH_PATH:
        return pattern, None
    raise ValueError(f"`{text}`: only commands, paths and commits have a PATTERN; write `{text.partition(':')[0]}` alone")
