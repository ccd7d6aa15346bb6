"""Judges shell commands, and the commands that start MCP servers."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from switchtower.core import events
from switchtower.core.policy import calls, commands, coverage, judging_files, paths, patterns
from switchtower.core.policy.judging_files import GIT_FILES, READ_ONLY
from switchtower.core.policy.profiles import ToolKind
from switchtower.core.policy.rulebook import PolicyRules, describe_rule, shorten
from switchtower.core.policy.rulings import Judgement, Ruling, allow, ask, deny

_STARTS_SERVER = "it starts an MCP server that the workspace names"
_HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def judge_command(args: Mapping[str, Any], book: PolicyRules, workspace: str) -> Judgement:
    text = calls.extract_command(args)
    if text is None:
        return book.refuse("it runs a command that is no text")
    seen = commands.analyze_command(text, workspace)
    judged = _judge_analysis(seen, book, workspace)
    if judged.ruling is not Ruling.ASK:
        return judged
    secret = (_describe_secret(seen.secret),) if seen.secret is not None else ()
    reasons = tuple(dict.fromkeys((judged.reason, *seen.destructive, *secret, *(f"it {doubt}" for doubt in seen.doubts))))
    return replace(judged, reasons=reasons) if len(reasons) > 1 else judged


def _judge_analysis(seen: commands.CommandAnalysis, book: PolicyRules, workspace: str) -> Judgement:
    if (restricted := _find_command_restriction("run", seen, book)) is not None:
        return restricted
    if seen.secret is not None:
        return ask(_describe_secret(seen.secret), destructive=bool(seen.destructive))
    if book.profile == "yolo":
        return _judge_in_yolo("run", seen, book)
    if seen.destructive:
        return ask(seen.destructive[0], destructive=True)
    if seen.doubts:
        return ask(f"it {seen.doubts[0]}")
    if not seen.script.commands:
        return ask("there is nothing in it to run")
    for file in seen.written:
        if (question := _find_write_question(file, seen, book, workspace)) is not None:
            return ask(question)
    if coverage.is_covered(seen, book.list_allowed_commands("run"), book.list_granted_commands("run")):
        return allow("a rule allows it")
    return ask("it runs a command", always=_make_always_rule("run", seen))


def judge_server(args: Mapping[str, Any], book: PolicyRules, workspace: str) -> Judgement:
    text = calls.extract_server_command(args, workspace)
    if text is None:
        return book.refuse("it starts an MCP server without saying how")
    seen = commands.analyze_command(text, workspace)
    if (restricted := _find_command_restriction("mcp_server", seen, book)) is not None:
        return restricted
    if book.profile == "yolo":
        return _judge_in_yolo("mcp_server", seen, book)
    if seen.destructive:
        return ask(seen.destructive[0], destructive=True)
    if seen.doubts:
        return ask(_STARTS_SERVER)
    servers = (*book.list_allowed_commands("mcp_server"), *book.list_granted_commands("mcp_server"))
    if any(_is_server(pattern, seen) for pattern in servers):
        return allow("a rule allows it")
    return ask(_STARTS_SERVER, always=_make_always_rule("mcp_server", seen))


def _describe_secret(file: str) -> str:
    return f"it runs a command that names `{shorten(file)}`, which may hold secrets"


def _find_command_restriction(tool: str, seen: commands.CommandAnalysis, book: PolicyRules) -> Judgement | None:
    destructive = bool(seen.destructive)
    if (rule := book.find_command_rule(Ruling.DENY, tool, seen)) is not None:
        return deny(describe_rule(rule), destructive=destructive)
    if book.profile == "read-only":
        return deny(READ_ONLY, destructive=destructive)
    if book.profile != "yolo" and any(_writes_git(file, seen) for file in seen.written):
        return deny(GIT_FILES, destructive=destructive)
    if (rule := book.find_command_rule(Ruling.ASK, tool, seen)) is not None:
        return ask(describe_rule(rule), destructive=destructive)
    return None


def _judge_in_yolo(tool: str, seen: commands.CommandAnalysis, book: PolicyRules) -> Judgement:
    destructive = bool(seen.destructive)
    if seen.doubts and book.has_restrictions(tool):
        return ask(f"it {seen.doubts[0]}, and there are rules that may be about it", destructive=destructive)
    if book.has_restrictions(tool) and (unknown := commands.find_unknown_git(seen)) is not None:
        return ask(f"it calls `git {shorten(unknown)}`, which may be an alias, and there are rules that may be about it")
    if book.restricts_paths(tool) and seen.place.lost:
        return ask("it changes to a folder that is not known, and there are rules about paths", destructive=destructive)
    if seen.script.unreadable and not seen.script.commands:
        return ask(f"it {seen.doubts[0]}", destructive=destructive)
    return allow("the profile `yolo` allows it", destructive=destructive)


def _writes_git(file: str, seen: commands.CommandAnalysis) -> bool:
    return any(map(paths.is_git_path, seen.place.locate_reachable(file)))


def _find_write_question(file: str, seen: commands.CommandAnalysis, book: PolicyRules, workspace: str) -> str | None:
    """A redirection writes a file as `write_file` does, and wants what that wants."""
    if file in _HARMLESS_DEVICES:
        return None
    located = seen.place.locate(file)
    if located is None:
        return f"it writes `{shorten(file)}`, which is outside the workspace"
    for parts in located:
        # As a rule sees it: a rule for this very file is a rule for `write_file`, not for whatever a command puts there.
        judged = judging_files.judge_files("write_file", ToolKind.WRITE, {"path": "/".join(parts)}, book, workspace)
        if judged.ruling is not Ruling.ALLOW or paths.is_steering_file(parts) or paths.can_make_repository(parts):
            return f"it writes `{shorten(file)}`"
    return None


def _is_server(pattern: patterns.CommandPattern, seen: commands.CommandAnalysis) -> bool:
    if pattern.is_any_command or pattern.text == seen.text:
        return True
    listed = seen.script.commands
    return len(listed) == 1 and not listed[0].assignments and patterns.match_command_exactly(pattern, listed[0].words) is not None


def _make_always_rule(tool: str, seen: commands.CommandAnalysis) -> events.Rule | None:
    pattern = coverage.make_exact_pattern(seen)
    return None if pattern is None else events.Rule(effect=Ruling.ALLOW.value, tool=tool, command=pattern)
