"""The checksum at the end of a backup: a SHA-256 of every byte before it, so that a change anywhere in the file is found.

It is an empty gzip member with the digest in its extra field, so `tar` and `gunzip` still read the file. The checksum of gzip
itself covers the unpacked content only: another bit in the compressed stream may unpack to the same.
"""

import hashlib
import os
import struct
from typing import IO

from switchtower.cli.archives import manifest

_CHUNK = 1024 * 1024
_FIELD = b"ST"
_EXTRA_FIELD = 4
_HEADER = b"\x1f\x8b\x08" + bytes([_EXTRA_FIELD]) + bytes(5) + b"\xff"
_EMPTY = b"\x03\x00" + bytes(8)
"""A compressed nothing, its checksum and its length."""
SIZE = len(_HEADER) + 2 + len(_FIELD) + 2 + hashlib.sha256().digest_size + len(_EMPTY)


def append(file: IO[bytes]) -> None:
    """To a file that is open for reading and writing."""
    file.flush()
    digest = _digest(file, file.seek(0, os.SEEK_END))
    file.seek(0, os.SEEK_END)
    file.write(_encode(digest))


def verify(file: IO[bytes]) -> bool:
    """Whether the file has a checksum; backups of format 1 have none. Raises `Broken` when it does not fit; reads every byte."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - SIZE))
    found = file.read(SIZE)
    digest = _digest(file, max(0, size - SIZE))
    file.seek(0)
    if found == _encode(digest):
        return True
    if digest in found or found.startswith(_HEADER) or found.endswith(_EMPTY):
        raise manifest.Broken("it has changed since it was made: its checksum does not fit; hint: take another backup")
    return False


def _encode(digest: bytes) -> bytes:
    field = _FIELD + struct.pack("<H", len(digest)) + digest
    return _HEADER + struct.pack("<H", len(field)) + field + _EMPTY


def _digest(file: IO[bytes], size: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (piece := file.read(min(size, _CHUNK))):
        digest.update(piece)
        size -= len(piece)
    return digest.digest()
