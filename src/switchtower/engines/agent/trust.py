"""The folders that the owner trusts. Until a folder is trusted, nothing in it counts as an instruction: not its `AGENTS.md`, its
skills, prompts and presets, nor the MCP servers that it configures.

Decisions are stored by real path in a file that belongs to the owner; trust in a folder covers everything below it. The calls
block.
"""

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import msgspec
from msgspec import Struct

from switchtower.engines.agent.prompts import files, system_prompt, templates

MOST_NAMED = 50
_PRESETS = ".tower/presets"
_SERVERS = ".mcp.json"


class TrustRecord(Struct, frozen=True):
    path: str
    since_ms: int = 0
    by: str = ""


class _TrustFile(Struct):
    folders: list[TrustRecord] = []


class FolderTrust:
    def __init__(self, file: Path, configured: Iterable[str] = ()) -> None:
        """`configured` are path patterns: `*` matches any name, and a leading `~` is the home folder."""
        self._file = file
        self.configure(configured)
        self._worktrees: dict[str, str] = {}
        self._refused: set[str] = set()

    def configure(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(str(Path(pattern).expanduser()) for pattern in patterns)

    def is_trusted(self, folder: str) -> bool:
        real = os.path.realpath(folder)
        real = self._worktrees.get(real, real)
        above = (real, *map(str, PurePath(real).parents))
        known = {trusted.path for trusted in self.list_trusted()}
        return any(path in known or self._is_configured(path) for path in above)

    def list_trusted(self) -> list[TrustRecord]:
        """Lists the decisions, oldest first. A file that cannot be read trusts nothing."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_TrustFile).folders
        except (OSError, msgspec.MsgspecError):
            return []

    def add(self, folder: str, *, by: str, now_ms: int) -> str:
        """Trusts the folder and everything below it; returns its real path."""
        real = os.path.realpath(folder)
        real = self._worktrees.get(real, real)
        kept = [trusted for trusted in self.list_trusted() if trusted.path != real]
        self._write([*kept, TrustRecord(real, now_ms, by)])
        return real

    def remove(self, folder: str) -> bool:
        """Returns whether a decision had trusted the folder. Folders that the settings trust stay trusted."""
        real = os.path.realpath(folder)
        before = self.list_trusted()
        kept = [trusted for trusted in before if trusted.path not in (real, folder)]
        if len(kept) == len(before):
            return False
        self._write(kept)
        return True

    def register_worktree(self, root: str, origin: str) -> None:
        """Trusts a worktree that was made for a session as much as its repository is trusted."""
        self._worktrees[os.path.realpath(root)] = os.path.realpath(origin)

    def record_refusal(self, session_id: str) -> None:
        """Records that the session must not be asked again."""
        self._refused.add(session_id)

    def is_refused(self, session_id: str) -> bool:
        return session_id in self._refused

    def _is_configured(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self._patterns)

    def _write(self, folders: list[TrustRecord]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._file.with_name(f".{self._file.name}.new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(_TrustFile(folders))))
        temporary.replace(self._file)


def find_instructions(folder: str) -> tuple[str, ...]:
    """Returns the files of a folder that would count as instructions, by their paths in it."""
    named = [name for name in (*system_prompt.NAMES, _SERVERS) if os.path.lexists(f"{folder}/{name}")]
    named += [template.path for template in templates.load_catalog(folder, None).templates.values()]
    try:
        presets = files.list_folder(files.PromptFolder(folder), _PRESETS, most=MOST_NAMED).entries
    except files.PromptFileError:
        presets = ()
    named += [f"{_PRESETS}/{entry.name}" for entry in presets]
    named += system_prompt.list_nested_instructions(folder)
    return tuple(named[:MOST_NAMED])
