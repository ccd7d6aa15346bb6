"""What the arguments of a call name: files, a command. Arguments come from a model and may be anything."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.core.policy import patterns
from switchtower.core.policy.profiles import ToolKind

_FOLDERS = frozenset({"list_dir", "search", "git_diff"})
"""Tools that look at the whole workspace when no path is given."""
_FILE_KEY = re.compile(r"path|file|dir|folder|uri|src|dst|source|target|dest|root|cwd|location", re.IGNORECASE)
_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_MOST_VALUES = 2000
_LONGEST_PATH = 4096


class CallTargets(Struct, frozen=True):
    files: tuple[str, ...] = ()
    odd: str | None = None
    """Why it cannot be known what the call is about; goes on from "it"."""


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
    """Nothing is known about the tool, so a text counts that stands under a telling name or looks like a path."""
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
    """The text that a shell will run; None when there is none to judge."""
    command = args.get("command")
    return command if isinstance(command, str) else None


def extract_server_command(args: Mapping[str, Any], workspace: str) -> str | None:
    """How an MCP server is started or reached, as one command: with its variables, its folder or its headers, for they matter."""
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
