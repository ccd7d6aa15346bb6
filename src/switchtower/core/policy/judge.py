"""The judge: takes a tool call and returns a ruling. All other modules of the package provide evidence for it. Pure, and it
never raises. Arguments come from a model and may be anything.

Denials that cannot be loosened come first, then the rules that restrict, then what must be asked each time, then the rules
that allow, and the profile's default last. So a rule can turn a question into a yes, but never a denial into a question.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import events
from switchtower.core.policy import command_analysis, coverage, paths, patterns
from switchtower.core.policy import rules as policy_rules
from switchtower.core.policy.rules import Judgement, PolicyRules, Ruling, ToolKind, allow, ask, deny, describe_rule, shorten

_FOLDERS = frozenset({"list_dir", "search", "git_diff"})
"""Tools that read the whole workspace when no path is given."""
_FILE_KEY = re.compile(r"path|file|dir|folder|uri|src|dst|source|target|dest|root|cwd|location", re.IGNORECASE)
_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_MOST_VALUES = 2000
_LONGEST_PATH = 4096


class CallTargets(Struct, frozen=True):
    files: tuple[str, ...] = ()
    odd: str | None = None
    """The reason why the target of the call is uncertain; continues after "it"."""


def extract_files(tool: str, kind: ToolKind, args: Mapping[str, Any]) -> CallTargets:
    if kind is ToolKind.OTHER:
        return _find_files(args)
    path, more = args.get("path"), args.get("paths")
    named: list[object] = []
    if path is not None:
        named.append(path)
    elif tool in _FOLDERS:
        named.append(".")
    if isinstance(more, list | tuple):
        named.extend(more)
    elif more is not None:
        named.append(more)
    if len(named) > _MOST_VALUES:
        return CallTargets(odd="names too many files")
    files = tuple(one for one in named if isinstance(one, str))
    if len(files) < len(named):
        return CallTargets(files, odd="has a path that is no text")
    if any(len(one) > _LONGEST_PATH or "\0" in one for one in files):
        return CallTargets(files, odd="has a path that no file can have")
    return CallTargets(files)


def _find_files(args: Mapping[str, Any]) -> CallTargets:
    """Nothing is known about the tool, so a text counts when its key suggests a file or when it looks like a path."""
    files = []
    values = 0
    waiting: list[tuple[str, object]] = [("", args)]
    while waiting:
        key, value = waiting.pop()
        values += 1
        if isinstance(value, str):
            text = value.removeprefix("file://")
            if len(text) <= _LONGEST_PATH and not _URL.match(text) and (_FILE_KEY.search(key) or _looks_like_path(text)):
                files.append(text)
        elif isinstance(value, Mapping | list | tuple):
            if values + len(waiting) + len(value) > _MOST_VALUES:
                return CallTargets(tuple(files), odd="has too many arguments to look at")
            if isinstance(value, Mapping):
                waiting.extend((str(inner), one) for inner, one in value.items())
            else:
                waiting.extend((key, one) for one in value)
    return CallTargets(tuple(files))


def _looks_like_path(text: str) -> bool:
    return ("/" in text or text.startswith(".")) and not any(char.isspace() for char in text)


def extract_command(args: Mapping[str, Any]) -> str | None:
    """Returns the text that a shell will run; None when there is none to judge."""
    command = args.get("command")
    return command if isinstance(command, str) else None


def extract_server_command(args: Mapping[str, Any], workspace: str) -> str | None:
    """Returns how an MCP server is started or reached, as one command, with its variables, folder or headers, because they
    matter.
    """
    command, url, folder = args.get("command"), args.get("url"), args.get("folder")
    if isinstance(url, str):
        return patterns.quote_words([url, *(f"{name}: {value}" for name, value in _iterate_pairs(args.get("headers")))])
    words = [*command] if isinstance(command, list | tuple) else []
    more = args.get("args")
    words.extend(more if isinstance(more, list | tuple) else ())
    if not all(isinstance(word, str) for word in words):
        return None
    text = " ".join(part for part in (command if isinstance(command, str) else "", patterns.quote_words(words)) if part)
    if not text:
        return None
    if variables := [f"{name}={value}" for name, value in _iterate_pairs(args.get("env"))]:
        text = f"env {patterns.quote_words(variables)} {text}"
    if isinstance(folder, str) and folder not in ("", ".", workspace):
        text = f"cd {patterns.quote_words([folder])} && {text}"
    return text


def _iterate_pairs(value: object) -> list[tuple[object, object]]:
    return sorted(value.items(), key=str) if isinstance(value, Mapping) else []


GIT_FILES = "files of git are not written by hand, because git runs some of them"
READ_ONLY = "the profile `read-only` allows nothing but reading"
_QUESTIONS = {ToolKind.WRITE: "it changes a file", ToolKind.COMMIT: "it makes a commit"}
_LOOK_THROUGH = frozenset({"search", "git_diff"})
"""Tools that read everything below the folder that they are given."""


def judge_files(tool: str, kind: ToolKind, args: Mapping[str, Any], book: PolicyRules, workspace: str) -> Judgement:
    named = extract_files(tool, kind, args)
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
        # This comes before the rules that ask: they must not turn it into a question.
        return deny("it reads something other than a file of the workspace")
    if (rule := book.find_file_rule(Ruling.ASK, tool, files, workspace)) is not None:
        return ask(describe_rule(rule))
    if tool in _LOOK_THROUGH and (rule := book.find_rule_below(tool, files, workspace)) is not None:
        return ask(f"it looks through files that the rule `{shorten(policy_rules.format_rule(rule))}` is about")
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
    """Applies the rules that allow, and the default when there is none."""
    allowing = book.list_allowing_rules(tool, files, workspace)
    steering = next((parts for parts in files if _is_protected(kind, parts)), None)
    if steering is not None:
        if any(policy_rules.has_literal_path(rule) for rule in allowing):
            return allow("a rule allows this very file")
        return ask(f"`{shorten('/'.join(steering))}` steers the agent, git or another tool, so each change to it is asked about")
    if allowing:
        return allow(describe_rule(allowing[0]))
    # A tool that writes but names no file may write anything.
    if book.default_ruling(kind) is Ruling.ALLOW and (kind is not ToolKind.WRITE or files):
        return allow(
            "reading inside the workspace is allowed" if kind is ToolKind.READ else f"the profile `{book.profile}` allows it"
        )
    path = paths.escape_glob("/".join(files[0])) if kind is ToolKind.WRITE and len(files) == 1 else None
    always = events.Rule(effect=Ruling.ALLOW.value, tool=paths.escape_glob(tool), path=path)
    return ask(_QUESTIONS.get(kind, f"nothing is known about the tool `{shorten(tool)}`"), always=always)


def _is_protected(kind: ToolKind, parts: paths.Parts) -> bool:
    if kind is ToolKind.READ:
        return False
    # The effect of a third-party tool on a file of git is unknown.
    if kind is ToolKind.WRITE and paths.can_make_repository(parts):
        return True
    return paths.is_steering_file(parts) or (kind is ToolKind.OTHER and paths.is_git_path(parts))


def _find_secret_question(tool: str, files: Sequence[str], args: Mapping[str, Any]) -> str | None:
    is_search = tool == "search"
    for path in files:
        if paths.is_secret(path) or (is_search and paths.has_secrets(path)):
            return path
    wanted = args.get("glob") if is_search else None
    return wanted if isinstance(wanted, str) and paths.is_secret(wanted) else None


_STARTS_SERVER = "it starts an MCP server that the workspace names"
_HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def judge_command(args: Mapping[str, Any], book: PolicyRules, workspace: str) -> Judgement:
    text = extract_command(args)
    if text is None:
        return book.refuse("it runs a command that is no text")
    seen = command_analysis.analyze_command(text, workspace)
    judged = _judge_analysis(seen, book, workspace)
    if judged.ruling is not Ruling.ASK:
        return judged
    secret = (_describe_secret(seen.secret),) if seen.secret is not None else ()
    reasons = tuple(dict.fromkeys((judged.reason, *seen.destructive, *secret, *(f"it {doubt}" for doubt in seen.doubts))))
    return replace(judged, reasons=reasons) if len(reasons) > 1 else judged


def _judge_analysis(seen: command_analysis.CommandAnalysis, book: PolicyRules, workspace: str) -> Judgement:
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
    text = extract_server_command(args, workspace)
    if text is None:
        return book.refuse("it starts an MCP server without saying how")
    seen = command_analysis.analyze_command(text, workspace)
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


def _find_command_restriction(tool: str, seen: command_analysis.CommandAnalysis, book: PolicyRules) -> Judgement | None:
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


def _judge_in_yolo(tool: str, seen: command_analysis.CommandAnalysis, book: PolicyRules) -> Judgement:
    destructive = bool(seen.destructive)
    if seen.doubts and book.has_restrictions(tool):
        return ask(f"it {seen.doubts[0]}, and there are rules that may be about it", destructive=destructive)
    if book.has_restrictions(tool) and (unknown := command_analysis.find_unknown_git(seen)) is not None:
        return ask(f"it calls `git {shorten(unknown)}`, which may be an alias, and there are rules that may be about it")
    if book.restricts_paths(tool) and seen.place.lost:
        return ask("it changes to a folder that is not known, and there are rules about paths", destructive=destructive)
    if seen.script.unreadable and not seen.script.commands:
        return ask(f"it {seen.doubts[0]}", destructive=destructive)
    return allow("the profile `yolo` allows it", destructive=destructive)


def _writes_git(file: str, seen: command_analysis.CommandAnalysis) -> bool:
    return any(map(paths.is_git_path, seen.place.locate_reachable(file)))


def _find_write_question(file: str, seen: command_analysis.CommandAnalysis, book: PolicyRules, workspace: str) -> str | None:
    """A redirection writes a file as `write_file` does, and needs the same permission."""
    if file in _HARMLESS_DEVICES:
        return None
    located = seen.place.locate(file)
    if located is None:
        return f"it writes `{shorten(file)}`, which is outside the workspace"
    for parts in located:
        # A rule that allows this very file is for `write_file`, not for any content that a command writes there.
        judged = judge_files("write_file", ToolKind.WRITE, {"path": "/".join(parts)}, book, workspace)
        if judged.ruling is not Ruling.ALLOW or paths.is_steering_file(parts) or paths.can_make_repository(parts):
            return f"it writes `{shorten(file)}`"
    return None


def _is_server(pattern: patterns.CommandPattern, seen: command_analysis.CommandAnalysis) -> bool:
    if pattern.is_any_command or pattern.text == seen.text:
        return True
    listed = seen.script.commands
    return len(listed) == 1 and not listed[0].assignments and patterns.match_command_exactly(pattern, listed[0].words) is not None


def _make_always_rule(tool: str, seen: command_analysis.CommandAnalysis) -> events.Rule | None:
    pattern = coverage.make_exact_pattern(seen)
    return None if pattern is None else events.Rule(effect=Ruling.ALLOW.value, tool=tool, command=pattern)


class Policy(Struct, frozen=True):
    """A profile, the rules of the configuration, and those that decisions of this session have made."""

    profile: str
    rules: Sequence[events.Rule] = ()
    granted: Sequence[events.Rule] = ()

    def __post_init__(self) -> None:
        if self.profile not in policy_rules.PROFILES:
            known = ", ".join(f"`{name}`" for name in policy_rules.PROFILES)
            raise ValueError(f"there is no policy profile `{self.profile}`; there are {known}")

    def with_grant(self, rule: events.Rule) -> "Policy":
        return Policy(self.profile, self.rules, (*self.granted, rule))

    def judge(self, tool: str, args: Mapping[str, Any], effect: str | None = None, workspace: str = "") -> Judgement:
        """`effect` is what a tool declares (`read`, `write`, `execute`); None when it is unknown, as with MCP tools."""
        book = PolicyRules(self.profile, tuple(self.rules), tuple(self.granted))
        try:
            return _judge_call(tool, args if isinstance(args, Mapping) else {}, effect, book, workspace)
        except Exception as error:  # a bug here must not allow a call, and must not end a run either
            return book.refuse(f"it could not be judged ({type(error).__name__})")


def _judge_call(tool: str, args: Mapping[str, Any], effect: str | None, book: PolicyRules, workspace: str) -> Judgement:
    kind = policy_rules.classify_tool(tool, effect)
    if kind is ToolKind.COMMAND:
        return judge_command(args, book, workspace)
    if kind is ToolKind.SERVER:
        return judge_server(args, book, workspace)
    return judge_files(tool, kind, args, book, workspace)
