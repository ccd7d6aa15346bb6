"""The checksum at the end of a backup: a SHA-256 of every byte before it, so that a change anywhere in the file is found.

It is an empty gzip member with the digest in its extra field, so `tar` and `gunzip` still read the file. The checksum of gzip
itself covers the unpacked content only: another bit in the compressed stream may unpack to the same.
"""

import hashlib
import os
import struct
from typing import IO

from switchtower.cli.archives import manifest

_CHECKSUM_CHUNK = 1024 * 1024
_FIELD_ID = b"ST"
_EXTRA_FIELD = 4
_HEADER = b"\x1f\x8b\x08" + bytes([_EXTRA_FIELD]) + bytes(5) + b"\xff"
_EMPTY_MEMBER = b"\x03\x00" + bytes(8)
"""A compressed nothing, its checksum and its length."""
CHECKSUM_SIZE = len(_HEADER) + 2 + len(_FIELD_ID) + 2 + hashlib.sha256().digest_size + len(_EMPTY_MEMBER)


def append_checksum(file: IO[bytes]) -> None:
    """To a file that is open for reading and writing."""
    file.flush()
    digest = _compute_digest(file, file.seek(0, os.SEEK_END))
    file.seek(0, os.SEEK_END)
    file.write(_encode_checksum(digest))


def verify_checksum(file: IO[bytes]) -> bool:
    """Whether the file has a checksum; backups of format 1 have none. Raises `Broken` when it does not fit; reads every byte."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - CHECKSUM_SIZE))
    found = file.read(CHECKSUM_SIZE)
    digest = _compute_digest(file, max(0, size - CHECKSUM_SIZE))
    file.seek(0)
    if found == _encode_checksum(digest):
        return True
    if digest in found or found.startswith(_HEADER) or found.endswith(_EMPTY_MEMBER):
        raise manifest.BackupCorrupt("it has changed since it was made: its checksum does not fit; hint: take another backup")
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
