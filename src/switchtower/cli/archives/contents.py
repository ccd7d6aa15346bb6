"""What a backup may hold, by its names in there, and where each belongs. A name that is not known here goes in nowhere and
comes out nowhere: sockets, locks and logs are none of it.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from switchtower import config
from switchtower.stores import sqlite_look

JOURNAL = "data/journal.db"
DATABASES = {JOURNAL: sqlite_look.JOURNAL, "data/registry.db": sqlite_look.REGISTRY}
SECRETS = (
    *("data/owner.token", "data/jwt.secret", "data/host.json", "data/webpush.key", "data/webpush.json"),
    "config/service.env",
)
FILES = ("config/config.toml", "config/mcp.json", "config/prompts.toml", "config/AGENTS.md")
FOLDERS = ("config/presets", "config/prompts", "config/skills")
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Of those that are no database."""
MAX_FILES = 20_000
MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""Of all of them together: they are held until they are written."""
MAX_NAME_LENGTH = 1_024
SEARCH_INDEX = "search.db"
"""Beside the journal, and made from it: after a restore it is another journal's."""


class BackupFile(NamedTuple):
    name: str
    path: Path
    executable: bool


def is_backup_name(name: str) -> bool:
    if name in DATABASES or name in SECRETS or name in FILES:
        return True
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_LENGTH:
        return False
    parts = name.split("/")
    return len(parts) > 2 and "/".join(parts[:2]) in FOLDERS and all(_is_plain_name(part) for part in parts)


def resolve_path(name: str, settings: config.Settings) -> Path:
    root, _, rest = name.partition("/")
    return resolve_base_folder(root, settings) / rest


def resolve_base_folder(root: str, settings: config.Settings) -> Path:
    return {"data": settings.data_dir, "config": settings.folders.config}[root]


def find_databases(settings: config.Settings) -> Iterator[tuple[str, Path, str]]:
    """Name, path and kind of those that are there."""
    for name, kind in DATABASES.items():
        if (path := resolve_path(name, settings)).exists():
            yield name, path, kind


def find_files(settings: config.Settings, *, with_secrets: bool) -> Iterator[BackupFile]:
    """All but the databases. A link counts as the file that it names; folders behind links are left alone."""
    for name in (*FILES, *(SECRETS if with_secrets else ())):
        path = resolve_path(name, settings)
        if path.is_file():
            yield BackupFile(name, path, executable=False)
    for folder in FOLDERS:
        top = resolve_path(folder, settings)
        for where, below, names in os.walk(top):
            below.sort()
            for file in sorted(names):
                path = Path(where, file)
                name = f"{folder}/{path.relative_to(top).as_posix()}"
                if is_backup_name(name) and path.is_file():
                    yield BackupFile(name, path, executable=bool(path.stat().st_mode & stat.S_IXUSR))


def _is_plain_name(part: str) -> bool:
    return part not in ("", ".", "..") and "\\" not in part and part.isprintable()
