"""The files of the built page: which there are, of what type, and their smaller twins. Reads a folder and opens no socket."""

import hashlib
import time
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

INDEX = "/index.html"
ASSETS = "/assets/"
"""Names in there change with their content."""
LOOK_AGAIN = 1.0
LARGEST = 32 * 1_048_576
TYPES = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".ico": "image/x-icon",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".map": "application/json",
        ".mjs": "text/javascript; charset=utf-8",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
        ".wasm": "application/wasm",
        ".webmanifest": "application/manifest+json",
        ".webp": "image/webp",
        ".woff2": "font/woff2",
    }
)
SMALLER = MappingProxyType({"br": ".br", "gzip": ".gz"})
"""Content codings in the order in which we like them, and how files in them are named."""
IDENTITY = ""


class Served(Struct, frozen=True):
    content: bytes
    type: str
    etag: str
    coding: str


class PageFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._looked_at = 0.0
        self._files: dict[str, dict[str, Path]] = {}
        """By the path in the address: the file in each coding."""

    def find(self, path: str, codings: frozenset[str]) -> Served | None:
        """None when there is no such file. A page that was built anew is found, too."""
        self._look()
        twins = self._files.get(path)
        if twins is None and "." in path and self._seen and time.monotonic() - self._looked_at > LOOK_AGAIN:
            self._seen = None  # the rest of a page that is being built may have come after its first file
            self._look()
            twins = self._files.get(path)
        if twins is None:
            return None
        coding = next((coding for coding in SMALLER if coding in codings and coding in twins), IDENTITY)
        file = twins[coding]
        try:
            content = file.read_bytes()
        except OSError:
            self._seen = None  # it is being built anew
            return None
        suffix = Path(path).suffix.lower()
        return Served(content, TYPES.get(suffix, "application/octet-stream"), _etag(content), coding)

    def _look(self) -> None:
        try:
            index = (self._folder / INDEX[1:]).stat()
        except OSError:
            self._seen, self._files = None, {}
            return
        seen = (index.st_mtime_ns, index.st_ino)
        if seen != self._seen:
            self._files = _listed(self._folder)
            self._seen, self._looked_at = seen, time.monotonic()


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _listed(folder: Path) -> dict[str, dict[str, Path]]:
    names = {
        "/" + file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink() and not _is_hidden(file, folder) and file.stat().st_size <= LARGEST
    }
    found: dict[str, dict[str, Path]] = {}
    for name, file in names.items():
        if not name.endswith(tuple(SMALLER.values())):
            twins = {coding: names[name + end] for coding, end in SMALLER.items() if name + end in names}
            found[name] = {IDENTITY: file, **twins}
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
