"""What a tool call needs before it runs: nothing, a person's yes, or it never runs. Pure; it looks at words, not at files.

The list of files that hold secrets lives here and only here. `tools/scope.py` asks it again about the path that a name
really leads to, because a link can carry an innocent one.
"""

import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

READS = frozenset({"list_dir", "read_file"})
WRITES = frozenset({"write_file"})
COMMANDS = frozenset({"run"})

SECRET_NAMES = (
    ".env*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".git-credentials",
    "id_*",
)
SECRET_FOLDERS = frozenset({".ssh"})
SECRET_PLACES = frozenset({(".aws", "credentials"), (".docker", "config.json")})


class Ruling(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Judgement(Struct, frozen=True):
    """A ruling, and why in words that a person or a model can read."""

    ruling: Ruling
    reason: str


def is_secret(path: str) -> bool:
    """Whether a file of this name is kept from tools. Upper and lower case count as one, as they do on some disks."""
    parts = PurePosixPath(path.casefold()).parts
    if not parts:
        return False
    return (
        not SECRET_FOLDERS.isdisjoint(parts)
        or parts[-2:] in SECRET_PLACES
        or any(fnmatchcase(parts[-1], pattern) for pattern in SECRET_NAMES)
    )


def judge(tool: str, args: Mapping[str, Any]) -> Judgement:
    path = args.get("path")
    if isinstance(path, str) and is_secret(path):
        return Judgement(Ruling.DENY, f"`{path}` is a file that holds secrets")
    if tool in READS:
        return Judgement(Ruling.ALLOW, "reading inside the workspace is allowed")
    if tool in WRITES:
        return Judgement(Ruling.ASK, "it changes a file")
    if tool in COMMANDS:
        named = next(_secrets_named(args.get("command")), None)
        return Judgement(
            Ruling.ASK, f"it runs a command that names `{named}`, which may hold secrets" if named else "it runs a command"
        )
    return Judgement(Ruling.ASK, f"nothing is known about the tool `{tool}`")


def _secrets_named(command: object) -> Iterator[str]:
    """A hint for the person who decides, no more: a shell has endless ways to spell a path."""
    if not isinstance(command, str):
        return
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    yield from (word for word in words if is_secret(word))
