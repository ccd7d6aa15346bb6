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
LARGEST_FILE = 64 * 1024 * 1024
"""Of those that are no database."""
MOST_FILES = 20_000
MOST_BYTES = 256 * 1024 * 1024
"""Of all of them together: they are held until they are written."""
LONGEST_NAME = 1_024
SEARCH_INDEX = "search.db"
"""Beside the journal, and made from it: after a restore it is another journal's."""


class Found(NamedTuple):
    name: str
    path: Path
    executable: bool


def is_known(name: str) -> bool:
    if name in DATABASES or name in SECRETS or name in FILES:
        return True
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        return False
    parts = name.split("/")
    return len(parts) > 2 and "/".join(parts[:2]) in FOLDERS and all(_is_plain(part) for part in parts)


def place_of(name: str, settings: config.Settings) -> Path:
    root, _, rest = name.partition("/")
    return root_of(root, settings) / rest


def root_of(root: str, settings: config.Settings) -> Path:
    return {"data": settings.data_dir, "config": settings.folders.config}[root]


def databases(settings: config.Settings) -> Iterator[tuple[str, Path, str]]:
    """Name, path and kind of those that are there."""
    for name, kind in DATABASES.items():
        if (path := place_of(name, settings)).exists():
            yield name, path, kind


def files(settings: config.Settings, *, with_secrets: bool) -> Iterator[Found]:
    """All but the databases. A link counts as the file that it names; folders behind links are left alone."""
    for name in (*FILES, *(SECRETS if with_secrets else ())):
        path = place_of(name, settings)
        if path.is_file():
            yield Found(name, path, executable=False)
    for folder in FOLDERS:
        top = place_of(folder, settings)
        for where, below, names in os.walk(top):
            below.sort()
            for file in sorted(names):
                path = Path(where, file)
                name = f"{folder}/{path.relative_to(top).as_posix()}"
                if is_known(name) and path.is_file():
                    yield Found(name, path, executable=bool(path.stat().st_mode & stat.S_IXUSR))


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and "\\" not in part and part.isprintable()
