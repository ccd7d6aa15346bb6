"""Judges calls about files, and calls of tools that nothing is known about but the files in their arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

from switchtower.core import events
from switchtower.core.policy import calls, globs, paths, rules, secrets
from switchtower.core.policy.profiles import ToolKind
from switchtower.core.policy.rulebook import PolicyRules, describe_rule, shorten
from switchtower.core.policy.rulings import Judgement, Ruling, allow, ask, deny

GIT_FILES = "files of git are not written by hand, because git runs some of them"
READ_ONLY = "the profile `read-only` allows nothing but reading"
_QUESTIONS = {ToolKind.WRITE: "it changes a file", ToolKind.COMMIT: "it makes a commit"}
_LOOK_THROUGH = frozenset({"search", "git_diff"})
"""Tools that read whatever lies below the folder that they are given."""


def judge_files(tool: str, kind: ToolKind, args: Mapping[str, Any], book: PolicyRules, workspace: str) -> Judgement:
    named = calls.extract_files(tool, kind, args)
    if (secret := _find_secret_question(tool, named.files, args)) is not None:
        return deny(f"`{shorten(secret)}` is a file that holds secrets")
    located = [(path, paths.locate_in_workspace(path, workspace)) for path in named.files]
    files = [parts for _, parts in located if parts is not None]
    if kind is ToolKind.WRITE and any(map(paths.is_git_path, files)):
        return deny(GIT_FILES)
    if (rule := book.find_file_rule(Ruling.DENY, tool, files, workspace)) is not None:
        return deny(describe_rule(rule))
    if book.default_ruling(kind) is Ruling.DENY:
        return deny(READ_ONLY)
    outside = next((path for path, parts in located if parts is None), None) if kind is not ToolKind.OTHER else None
    if book.profile == "read-only" and (named.odd is not None or outside is not None):
        # Before the rules that ask: they must not make a question of it.
        return deny("it reads something other than a file of the workspace")
    if (rule := book.find_file_rule(Ruling.ASK, tool, files, workspace)) is not None:
        return ask(describe_rule(rule))
    if tool in _LOOK_THROUGH and (rule := book.find_rule_below(tool, files, workspace)) is not None:
        return ask(f"it looks through files that the rule `{shorten(rules.format_rule(rule))}` is about")
    if named.odd is not None:
        return ask(f"it {named.odd}")
    if book.profile == "yolo":
        return allow("the profile `yolo` allows it")
    if outside is not None:
        return ask(f"`{shorten(outside)}` is outside the workspace")
    if kind is ToolKind.COMMIT and (allowing := book.list_commit_rules(tool, args.get("message"))):
        return allow(describe_rule(allowing[0]))
    return _judge_ordinary(tool, kind, files, book, workspace)


def _judge_ordinary(tool: str, kind: ToolKind, files: Sequence[paths.Parts], book: PolicyRules, workspace: str) -> Judgement:
    """What rules may allow, and the default where none does."""
    allowing = book.list_allowing_rules(tool, files, workspace)
    steering = next((parts for parts in files if _is_protected(kind, parts)), None)
    if steering is not None:
        if any(rules.has_literal_path(rule) for rule in allowing):
            return allow("a rule allows this very file")
        return ask(f"`{shorten('/'.join(steering))}` steers the agent, git or another tool, so each change to it is asked about")
    if allowing:
        return allow(describe_rule(allowing[0]))
    # A tool that writes but names no file may write anything.
    if book.default_ruling(kind) is Ruling.ALLOW and (kind is not ToolKind.WRITE or files):
        return allow(
            "reading inside the workspace is allowed" if kind is ToolKind.READ else f"the profile `{book.profile}` allows it"
        )
    path = globs.escape_glob("/".join(files[0])) if kind is ToolKind.WRITE and len(files) == 1 else None
    always = events.Rule(effect=Ruling.ALLOW.value, tool=globs.escape_glob(tool), path=path)
    return ask(_QUESTIONS.get(kind, f"nothing is known about the tool `{shorten(tool)}`"), always=always)


def _is_protected(kind: ToolKind, parts: paths.Parts) -> bool:
    if kind is ToolKind.READ:
        return False
    # What a tool of somebody else does with a file of git is not known.
    if kind is ToolKind.WRITE and paths.can_make_repository(parts):
        return True
    return paths.is_steering_file(parts) or (kind is ToolKind.OTHER and paths.is_git_path(parts))


def _find_secret_question(tool: str, files: Sequence[str], args: Mapping[str, Any]) -> str | None:
    is_search = tool == "search"
    for path in files:
        if secrets.is_secret(path) or (is_search and secrets.has_secrets(path)):
            return path
    wanted = args.get("glob") if is_search else None
    return wanted if isinstance(wanted, str) and secrets.is_secret(wanted) else None
