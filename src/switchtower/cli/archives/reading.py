"""Unpacks a backup into a folder of its own: only what its manifest names, only plain files, each with its digest checked.

The archive is a stranger's until it was checked. Nothing of it decides a path.
"""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from switchtower.cli.archives import manifest

_CHUNK = 1024 * 1024
_MAX_PADDING = 1024 * 1024
_DAMAGE_ERRORS = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError)


class _PlainTarInfo(tarfile.TarInfo):
    """Headers of any other kind are refused before the library acts on them: links, and records of any length."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise manifest.BackupCorrupt("it holds something that is no plain file; hint: it was not made by `tower backup`")
        return info


class BackupArchive:
    """`described` is there once the archive was opened."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._unzipped = gzip.GzipFile(fileobj=file, mode="rb")
            self._tar = tarfile.open(fileobj=self._unzipped, mode="r|", tarinfo=_PlainTarInfo)  # noqa: SIM115 - closed by its owner
            self._members = iter(self._tar)
            self.described = self._read_manifest()
        except _DAMAGE_ERRORS as problem:
            raise manifest.BackupCorrupt(
                f"it cannot be read ({_describe_problem(problem)}); hint: see whether it is a backup, and whole"
            ) from None

    def close(self) -> None:
        self._tar.close()

    def _read_manifest(self) -> manifest.BackupManifest:
        first = next(self._members, None)
        if first is None or first.name != manifest.MANIFEST_NAME or first.size > manifest.MAX_MANIFEST_BYTES:
            raise manifest.BackupCorrupt("it does not begin with a manifest; hint: it was not made by `tower backup`")
        return manifest.decode_manifest(b"".join(self._read_chunks(first)))

    def unpack(self, targets: dict[str, Path]) -> None:
        """Each member to its place, by its name in the manifest. Raises `Broken`; `OSError` is the disk's."""
        waiting = {member.stored: member for member in self.described.members}
        while (info := self._next_member()) is not None:
            member = waiting.pop(info.name, None)
            if member is None:
                raise manifest.BackupCorrupt(
                    f"it holds `{ascii(info.name[:80])[1:-1]}`, which its manifest does not name; hint: take another backup"
                )
            if info.size != member.size:
                raise manifest.BackupCorrupt(
                    f"`{member.name}` has another size than its manifest says; hint: take another backup"
                )
            digest = self._copy(info, targets[member.name], executable=member.executable)
            if digest != member.sha256:
                raise manifest.BackupCorrupt(f"`{member.name}` has changed since the backup was made; hint: take another backup")
        if waiting:
            raise manifest.BackupCorrupt(f"`{next(iter(waiting.values())).name}` is missing in it; hint: take another backup")
        self._read_to_the_end()

    def _read_to_the_end(self) -> None:
        """Behind the last member is padding and the checksum of it all; an archive that was cut off lacks that."""
        try:
            left = _MAX_PADDING
            while left > 0 and (piece := self._unzipped.read(min(left, _CHUNK))):
                left -= len(piece)
        except _DAMAGE_ERRORS as problem:
            raise manifest.BackupCorrupt(f"it is damaged ({_describe_problem(problem)}); hint: take another backup") from None
        if left <= 0:
            raise manifest.BackupCorrupt("something is behind its end; hint: it was not made by `tower backup`")

    def _next_member(self) -> tarfile.TarInfo | None:
        try:
            return next(self._members, None)
        except _DAMAGE_ERRORS as problem:
            raise manifest.BackupCorrupt(f"it is damaged ({_describe_problem(problem)}); hint: take another backup") from None

    def _copy(self, info: tarfile.TarInfo, place: Path, *, executable: bool) -> str:
        digest = hashlib.sha256()
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700 if executable else 0o600)
        with os.fdopen(descriptor, "wb") as out:
            pieces = self._read_chunks(info)
            while True:
                try:
                    piece = next(pieces, b"")
                except _DAMAGE_ERRORS as problem:
                    raise manifest.BackupCorrupt(
                        f"it is damaged ({_describe_problem(problem)}); hint: take another backup"
                    ) from None
                if not piece:
                    break
                digest.update(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        return digest.hexdigest()

    def _read_chunks(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        content = self._tar.extractfile(info)
        assert content is not None, "a plain file has content"
        while piece := content.read(_CHUNK):
            yield piece


def _describe_problem(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
