"""The contents of a backup: the known names and their locations, the manifest with a digest of each member, and the checksum.

A name that is not listed here is neither saved nor restored: sockets, locks and logs never are. The checksum at the end is a
SHA-256 of every byte before it, so that any change in the file is found. It is an empty gzip member with the digest in its extra
field, so `tar` and `gunzip` still read the file. gzip's own checksum covers only the unpacked content: a changed bit in the
compressed stream may unpack to the same content.
"""

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.stores.sqlite import inspection

JOURNAL = "data/journal.db"
DATABASES = {JOURNAL: inspection.JOURNAL, "data/registry.db": inspection.REGISTRY}
SECRETS = (
    *("data/owner.token", "data/jwt.secret", "data/host.json", "data/webpush.key", "data/webpush.json"),
    "config/service.env",
)
FILES = ("config/config.toml", "config/mcp.json", "config/prompts.toml", "config/AGENTS.md")
FOLDERS = ("config/presets", "config/prompts", "config/skills")
MAX_FILE_BYTES = 64 * 1024 * 1024
"""The maximum size of a file that is not a database."""
MAX_FILES = 20_000
MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""The maximum size of all those files together, because they are held in memory until they are written."""
MAX_NAME_LENGTH = 1_024
SEARCH_INDEX = "search.db"
"""The search index next to the journal, derived from it: after a restore it would belong to another journal."""


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
    """Yields the name, path and kind of each existing database."""
    for name, kind in DATABASES.items():
        if (path := resolve_path(name, settings)).exists():
            yield name, path, kind


def find_files(settings: config.Settings, *, with_secrets: bool) -> Iterator[BackupFile]:
    """Yields all files except the databases. A link counts as the file that it names; folders behind links are skipped."""
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


MANIFEST_NAME = "manifest.json"
BACKUP_FORMAT = 2
"""Format 2 added the checksum of the whole file."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_STORED_NAME = 100
"""The length that a tar header holds: longer names would need members of other kinds, which a restore should not trust."""


class BackupCorrupt(Exception):
    """The archive cannot be used; the message has the reason and a remedy."""


class BackupMember(Struct, frozen=True, kw_only=True):
    name: str
    stored: str
    """The name in the tar file."""
    size: int
    sha256: str
    executable: bool = False


class BackupManifest(Struct, frozen=True, kw_only=True):
    format: int
    version: str
    """The version of the program that made the backup."""
    created_at_ms: int
    secrets: bool
    schemas: dict[str, int]
    """The schema versions of the databases."""
    members: list[BackupMember]


def make_member_name(name: str, index: int) -> str:
    return name if len(name.encode()) <= _MAX_STORED_NAME else f"long/{index:05}"


def decode_manifest(content: bytes) -> BackupManifest:
    """Raises `BackupCorrupt` for anything that this program would not have written."""
    try:
        format_ = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format")
        if format_ is not None and (number := msgspec.json.decode(format_, type=int)) > BACKUP_FORMAT:
            raise BackupCorrupt(
                f"it is of format {number} and this program knows {BACKUP_FORMAT}; hint: use the newer program that made it"
            )
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BackupCorrupt(f"its manifest cannot be read: {problem}; hint: see whether it is a backup") from None
    names = [member.name for member in manifest.members]
    stored = [member.stored for member in manifest.members]
    if len(set(names)) != len(names) or len(set(stored)) != len(stored) or MANIFEST_NAME in stored:
        raise BackupCorrupt("its manifest names something twice; hint: it was not made by `tower backup`")
    for member in manifest.members:
        if not is_backup_name(member.name):
            raise BackupCorrupt(
                f"it holds `{_quote_name(member.name)}`, which no backup has; hint: it was not made by `tower backup`"
            )
        if member.size < 0 or (member.name not in DATABASES and member.size > MAX_FILE_BYTES):
            raise BackupCorrupt(f"`{_quote_name(member.name)}` has an impossible size; hint: it was not made by `tower backup`")
    return manifest


def _quote_name(name: str) -> str:
    return ascii(name[:80])[1:-1]


_CHECKSUM_CHUNK = 1024 * 1024
_FIELD_ID = b"ST"
_EXTRA_FIELD = 4
_HEADER = b"\x1f\x8b\x08" + bytes([_EXTRA_FIELD]) + bytes(5) + b"\xff"
_EMPTY_MEMBER = b"\x03\x00" + bytes(8)
"""Compressed empty content, its checksum and its length."""
CHECKSUM_SIZE = len(_HEADER) + 2 + len(_FIELD_ID) + 2 + hashlib.sha256().digest_size + len(_EMPTY_MEMBER)


def append_checksum(file: IO[bytes]) -> None:
    """Appends the checksum to a file that is open for reading and writing."""
    file.flush()
    digest = _compute_digest(file, file.seek(0, os.SEEK_END))
    file.seek(0, os.SEEK_END)
    file.write(_encode_checksum(digest))


def verify_checksum(file: IO[bytes]) -> bool:
    """Returns whether the file has a checksum; backups of format 1 have none. Reads every byte, and raises `BackupCorrupt` on a
    mismatch."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - CHECKSUM_SIZE))
    found = file.read(CHECKSUM_SIZE)
    digest = _compute_digest(file, max(0, size - CHECKSUM_SIZE))
    file.seek(0)
    if found == _encode_checksum(digest):
        return True
    if digest in found or found.startswith(_HEADER) or found.endswith(_EMPTY_MEMBER):
        raise BackupCorrupt("it has changed since it was made: its checksum does not fit; hint: take another backup")
    return False


def _encode_checksum(digest: bytes) -> bytes:
    field = _FIELD_ID + struct.pack("<H", len(digest)) + digest
    return _HEADER + struct.pack("<H", len(field)) + field + _EMPTY_MEMBER


def _compute_digest(file: IO[bytes], size: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (piece := file.read(min(size, _CHECKSUM_CHUNK))):
        digest.update(piece)
        size -= len(piece)
    return digest.digest()
