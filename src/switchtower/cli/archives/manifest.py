"""The first member of a backup: what is in it, with the digest of each part. Pure."""

import msgspec
from msgspec import Struct

from switchtower.cli.archives import contents

NAME = "manifest.json"
FORMAT = 2
"""Since 2 a backup ends with a checksum of the whole file."""
LARGEST = 16 * 1024 * 1024
_LONGEST_STORED = 100
"""What a tar header holds by itself: longer names would need members of other kinds, which nobody should have to trust."""


class Broken(Exception):
    """Why an archive cannot be used, with a remedy."""


class Member(Struct, frozen=True, kw_only=True):
    name: str
    stored: str
    """Its name in the tar file."""
    size: int
    sha256: str
    executable: bool = False


class Manifest(Struct, frozen=True, kw_only=True):
    format: int
    version: str
    """Of the program that made it."""
    created_at_ms: int
    secrets: bool
    schemas: dict[str, int]
    """Of the databases."""
    members: list[Member]


def stored_name(name: str, index: int) -> str:
    return name if len(name.encode()) <= _LONGEST_STORED else f"long/{index:05}"


def read(content: bytes) -> Manifest:
    """Raises `Broken` for anything that we would not have written."""
    try:
        format_ = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format")
        if format_ is not None and (number := msgspec.json.decode(format_, type=int)) > FORMAT:
            raise Broken(f"it is of format {number} and this program knows {FORMAT}; hint: use the newer program that made it")
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Broken(f"its manifest cannot be read: {problem}; hint: see whether it is a backup") from None
    names = [member.name for member in manifest.members]
    stored = [member.stored for member in manifest.members]
    if len(set(names)) != len(names) or len(set(stored)) != len(stored) or NAME in stored:
        raise Broken("its manifest names something twice; hint: it was not made by `tower backup`")
    for member in manifest.members:
        if not contents.is_known(member.name):
            raise Broken(f"it holds `{_printable(member.name)}`, which no backup has; hint: it was not made by `tower backup`")
        if member.size < 0 or (member.name not in contents.DATABASES and member.size > contents.LARGEST_FILE):
            raise Broken(f"`{_printable(member.name)}` has an impossible size; hint: it was not made by `tower backup`")
    return manifest


def _printable(name: str) -> str:
    return ascii(name[:80])[1:-1]
