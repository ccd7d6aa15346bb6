"""The first member of a backup: what is in it, with the digest of each part. Pure."""

import msgspec
from msgspec import Struct

from switchtower.cli.archives import contents

MANIFEST_NAME = "manifest.json"
BACKUP_FORMAT = 2
"""Since 2 a backup ends with a checksum of the whole file."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_STORED_NAME = 100
"""What a tar header holds by itself: longer names would need members of other kinds, which nobody should have to trust."""


class BackupCorrupt(Exception):
    """Why an archive cannot be used, with a remedy."""


class BackupMember(Struct, frozen=True, kw_only=True):
    name: str
    stored: str
    """Its name in the tar file."""
    size: int
    sha256: str
    executable: bool = False


class BackupManifest(Struct, frozen=True, kw_only=True):
    format: int
    version: str
    """Of the program that made it."""
    created_at_ms: int
    secrets: bool
    schemas: dict[str, int]
    """Of the databases."""
    members: list[BackupMember]


def make_member_name(name: str, index: int) -> str:
    return name if len(name.encode()) <= _MAX_STORED_NAME else f"long/{index:05}"


def decode_manifest(content: bytes) -> BackupManifest:
    """Raises `Broken` for anything that we would not have written."""
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
        if not contents.is_backup_name(member.name):
            raise BackupCorrupt(
                f"it holds `{_quote_name(member.name)}`, which no backup has; hint: it was not made by `tower backup`"
            )
        if member.size < 0 or (member.name not in contents.DATABASES and member.size > contents.MAX_FILE_BYTES):
            raise BackupCorrupt(f"`{_quote_name(member.name)}` has an impossible size; hint: it was not made by `tower backup`")
    return manifest


def _quote_name(name: str) -> str:
    return ascii(name[:80])[1:-1]
