"""Judges calls about files, and calls of tools that nothing is known about but the files in their arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

from switchtower.core import events
from switchtower.core.policy import calls, globs, paths, rules, secrets
from switchtower.core.policy.profiles import Kind
from switchtower.core.policy.rulebook import Rulebook, said_by, shortened
from switchtower.core.policy.rulings import Judgement, Ruling, allow, ask, deny

GIT_FILES = "files of git are not written by hand, because git runs some of them"
READ_ONLY = "the profile `read-only` allows nothing but reading"
_QUESTIONS = {Kind.WRITE: "it changes a file", Kind.COMMIT: "it makes a commit"}
_LOOK_THROUGH = frozenset({"search", "git_diff"})
"""Tools that read whatever lies below the folder that they are given."""


def judge(tool: str, kind: Kind, args: Mapping[str, Any], book: Rulebook, workspace: str) -> Judgement:
    named = calls.files_of(tool, kind, args)
    if (secret := _secret(tool, named.files, args)) is not None:
        return deny(f"`{shortened(secret)}` is a file that holds secrets")
    located = [(path, paths.inside(path, workspace)) for path in named.files]
    files = [parts for _, parts in located if parts is not None]
    if kind is Kind.WRITE and any(map(paths.belongs_to_git, files)):
        return deny(GIT_FILES)
    if (rule := book.of_files(Ruling.DENY, tool, files, workspace)) is not None:
        return deny(said_by(rule))
    if book.default(kind) is Ruling.DENY:
        return deny(READ_ONLY)
    outside = next((path for path, parts in located if parts is None), None) if kind is not Kind.OTHER else None
    if book.profile == "read-only" and (named.odd is not None or outside is not None):
        # Before the rules that ask: they must not make a question of it.
        return deny("it reads something other than a file of the workspace")
    if (rule := book.of_files(Ruling.ASK, tool, files, workspace)) is not None:
        return ask(said_by(rule))
    if tool in _LOOK_THROUGH and (rule := book.of_files_below(tool, files, workspace)) is not None:
        return ask(f"it looks through files that the rule `{shortened(rules.shown(rule))}` is about")
    if named.odd is not None:
        return ask(f"it {named.odd}")
    if book.profile == "yolo":
        return allow("the profile `yolo` allows it")
    if outside is not None:
        return ask(f"`{shortened(outside)}` is outside the workspace")
    if kind is Kind.COMMIT and (allowing := book.allowing_commit(tool, args.get("message"))):
        return allow(said_by(allowing[0]))
    return _judge_ordinary(tool, kind, files, book, workspace)


def _judge_ordinary(tool: str, kind: Kind, files: Sequence[paths.Parts], book: Rulebook, workspace: str) -> Judgement:
    """What rules may allow, and the default where none does."""
    allowing = book.allowing_files(tool, files, workspace)
    steering = next((parts for parts in files if _is_protected(kind, parts)), None)
    if steering is not None:
        if any(rules.names_one_file(rule) for rule in allowing):
            return allow("a rule allows this very file")
        return ask(
            f"`{shortened('/'.join(steering))}` steers the agent, git or another tool, so each change to it is asked about"
        )
    if allowing:
        return allow(said_by(allowing[0]))
    # A tool that writes but names no file may write anything.
    if book.default(kind) is Ruling.ALLOW and (kind is not Kind.WRITE or files):
        return allow(
            "reading inside the workspace is allowed" if kind is Kind.READ else f"the profile `{book.profile}` allows it"
        )
    path = globs.escape("/".join(files[0])) if kind is Kind.WRITE and len(files) == 1 else None
    always = events.Rule(effect=Ruling.ALLOW.value, tool=globs.escape(tool), path=path)
    return ask(_QUESTIONS.get(kind, f"nothing is known about the tool `{shortened(tool)}`"), always=always)


def _is_protected(kind: Kind, parts: paths.Parts) -> bool:
    if kind is Kind.READ:
        return False
    # What a tool of somebody else does with a file of git is not known.
    if kind is Kind.WRITE and paths.may_make_a_repository(parts):
        return True
    return paths.steers_the_agent(parts) or (kind is Kind.OTHER and paths.belongs_to_git(parts))


def _secret(tool: str, files: Sequence[str], args: Mapping[str, Any]) -> str | None:
    is_search = tool == "search"
    for path in files:
        if secrets.is_secret(path) or (is_search and secrets.holds_secrets(path)):
            return path
    wanted = args.get("glob") if is_search else None
    return wanted if isinstance(wanted, str) and secrets.is_secret(wanted) else None
