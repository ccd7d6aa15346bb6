"""The files of the built page: their paths, types and compressed variants. It reads a folder and opens no socket."""

import hashlib
import time
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

INDEX = "/index.html"
ASSETS = "/assets/"
"""Names in this folder change with their content."""
RESCAN_INTERVAL = 1.0
MAX_FILE_BYTES = 32 * 1_048_576
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
COMPRESSED_SUFFIXES = MappingProxyType({"br": ".br", "gzip": ".gz"})
"""Content codings in our order of preference, with their file suffixes."""
IDENTITY = ""


class PageFile(Struct, frozen=True):
    content: bytes
    type: str
    etag: str
    coding: str


class PageFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index_version: tuple[int, int] | None = None
        self._scanned_at = 0.0
        self._files: dict[str, dict[str, Path]] = {}
        """Per path of the address: the file in each coding."""

    def find(self, path: str, codings: frozenset[str]) -> PageFile | None:
        """Returns None when the file does not exist. A page that was rebuilt is found, too."""
        self._rescan()
        twins = self._files.get(path)
        if twins is None and "." in path and self._index_version and time.monotonic() - self._scanned_at > RESCAN_INTERVAL:
            self._index_version = None  # the rest of a page that is being built may have been written after its first file
            self._rescan()
            twins = self._files.get(path)
        if twins is None:
            return None
        coding = next((coding for coding in COMPRESSED_SUFFIXES if coding in codings and coding in twins), IDENTITY)
        file = twins[coding]
        try:
            content = file.read_bytes()
        except OSError:
            self._index_version = None  # it is being rebuilt
            return None
        suffix = Path(path).suffix.lower()
        return PageFile(content, TYPES.get(suffix, "application/octet-stream"), _make_etag(content), coding)

    def _rescan(self) -> None:
        try:
            index = (self._folder / INDEX[1:]).stat()
        except OSError:
            self._index_version, self._files = None, {}
            return
        seen = (index.st_mtime_ns, index.st_ino)
        if seen != self._index_version:
            self._files = _list_files(self._folder)
            self._index_version, self._scanned_at = seen, time.monotonic()


def _make_etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _list_files(folder: Path) -> dict[str, dict[str, Path]]:
    names = {
        "/" + file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink() and not _is_hidden(file, folder) and file.stat().st_size <= MAX_FILE_BYTES
    }
    found: dict[str, dict[str, Path]] = {}
    for name, file in names.items():
        if not name.endswith(tuple(COMPRESSED_SUFFIXES.values())):
            twins = {coding: names[name + end] for coding, end in COMPRESSED_SUFFIXES.items() if name + end in names}
            found[name] = {IDENTITY: file, **twins}
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
