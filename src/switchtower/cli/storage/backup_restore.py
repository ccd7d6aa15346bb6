"""Restores a backup. Everything is unpacked into a separate folder and checked before the first file moves, and existing files
are kept aside.

The archive is untrusted until it is checked: only plain files that its manifest names are unpacked, each with its digest, and
nothing in it decides a path. The home is locked meanwhile, so no daemon can run or start.
"""

import asyncio
import gzip
import hashlib
import os
import secrets
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from msgspec import Struct

from switchtower import config
from switchtower.cli.storage import backup_database, backup_manifest
from switchtower.daemon.home import DaemonHome
from switchtower.stores.postgres import database
from switchtower.stores.sqlite import inspection

_CHUNK = 1024 * 1024
_MAX_PADDING = 1024 * 1024
_DAMAGE_ERRORS = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError)


class _PlainTarInfo(tarfile.TarInfo):
    """Refuses headers of any other kind, such as links and records of any length, before the library acts on them."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise backup_manifest.BackupCorrupt(
                "it holds something that is no plain file; hint: it was not made by `tower backup`"
            )
        return info


class BackupArchive:
    """An opened archive; `described` is its manifest."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._unzipped = gzip.GzipFile(fileobj=file, mode="rb")
            self._tar = tarfile.open(fileobj=self._unzipped, mode="r|", tarinfo=_PlainTarInfo)  # noqa: SIM115 - closed by its owner
            self._members = iter(self._tar)
            self.described = self._read_manifest()
        except _DAMAGE_ERRORS as problem:
            raise backup_manifest.BackupCorrupt(
                f"it cannot be read ({_describe_problem(problem)}); hint: see whether it is a backup, and whole"
            ) from None

    def close(self) -> None:
        self._tar.close()

    def _read_manifest(self) -> backup_manifest.BackupManifest:
        first = next(self._members, None)
        if first is None or first.name != backup_manifest.MANIFEST_NAME or first.size > backup_manifest.MAX_MANIFEST_BYTES:
            raise backup_manifest.BackupCorrupt("it does not begin with a manifest; hint: it was not made by `tower backup`")
        return backup_manifest.decode_manifest(b"".join(self._read_chunks(first)))

    def unpack(self, targets: dict[str, Path]) -> None:
        """Unpacks each member to its target by its name in the manifest. Raises `BackupCorrupt`, or `OSError` for a disk
        error."""
        waiting = {member.stored: member for member in self.described.members}
        while (info := self._next_member()) is not None:
            member = waiting.pop(info.name, None)
            if member is None:
                raise backup_manifest.BackupCorrupt(
                    f"it holds `{ascii(info.name[:80])[1:-1]}`, which its manifest does not name; hint: take another backup"
                )
            if info.size != member.size:
                raise backup_manifest.BackupCorrupt(
                    f"`{member.name}` has another size than its manifest says; hint: take another backup"
                )
            digest = self._copy(info, targets[member.name], executable=member.executable)
            if digest != member.sha256:
                raise backup_manifest.BackupCorrupt(
                    f"`{member.name}` has changed since the backup was made; hint: take another backup"
                )
        if waiting:
            raise backup_manifest.BackupCorrupt(
                f"`{next(iter(waiting.values())).name}` is missing in it; hint: take another backup"
            )
        self._read_to_the_end()

    def _read_to_the_end(self) -> None:
        """Reads the padding and the checksum after the last member; a truncated archive lacks them."""
        try:
            left = _MAX_PADDING
            while left > 0 and (piece := self._unzipped.read(min(left, _CHUNK))):
                left -= len(piece)
        except _DAMAGE_ERRORS as problem:
            raise backup_manifest.BackupCorrupt(
                f"it is damaged ({_describe_problem(problem)}); hint: take another backup"
            ) from None
        if left <= 0:
            raise backup_manifest.BackupCorrupt("something is behind its end; hint: it was not made by `tower backup`")

    def _next_member(self) -> tarfile.TarInfo | None:
        try:
            return next(self._members, None)
        except _DAMAGE_ERRORS as problem:
            raise backup_manifest.BackupCorrupt(
                f"it is damaged ({_describe_problem(problem)}); hint: take another backup"
            ) from None

    def _copy(self, info: tarfile.TarInfo, place: Path, *, executable: bool) -> str:
        digest = hashlib.sha256()
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700 if executable else 0o600)
        with os.fdopen(descriptor, "wb") as out:
            pieces = self._read_chunks(info)
            while True:
                try:
                    piece = next(pieces, b"")
                except _DAMAGE_ERRORS as problem:
                    raise backup_manifest.BackupCorrupt(
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


_STAGING = ".restore-"
_ROOTS = ("data", "config")
_DATABASE_SUFFIXES = ("-wal", "-shm", "-journal")


class RestoreError(Exception):
    """Nothing was restored; the message has the reason and a remedy."""


class RestoreSummary(Struct, frozen=True, kw_only=True):
    file: str
    version: str
    created_at_ms: int
    secrets: bool
    restored: list[str]
    unchanged: list[str]
    kept_aside: list[str]


def restore_backup(settings: config.Settings, file: Path, *, force: bool, store: str | None = None) -> RestoreSummary:
    """Restores a backup; with a `store`, the journal and its related data go into that database. Raises `RestoreError`,
    `BackupCorrupt`, `StoreUnreadable`, `TransferError`, `AlreadyRunning`, or `OSError` for a disk error."""
    home = DaemonHome(settings)
    home.claim()
    try:
        with file.open("rb") as content:
            has_checksum = backup_manifest.verify_checksum(content)
            archive = BackupArchive(content)
            try:
                if not has_checksum and archive.described.format > 1:
                    raise backup_manifest.BackupCorrupt(
                        "its checksum is missing; hint: see whether it is whole, or take another backup"
                    )
                with _create_staging_folders(settings) as folders:
                    return _restore_archive(settings, file, archive, folders, force=force, store=store)
            finally:
                archive.close()
    finally:
        home.release()


def _restore_archive(
    settings: config.Settings,
    file: Path,
    archive: BackupArchive,
    folders: dict[str, Path],
    *,
    force: bool,
    store: str | None,
) -> RestoreSummary:
    described = archive.described
    _check_free_space(settings, described)
    staged = {
        member.name: folders[member.name.partition("/")[0]] / f"{index:05}" for index, member in enumerate(described.members)
    }
    archive.unpack(staged)
    for name, kind in backup_manifest.DATABASES.items():
        if name in staged and (problems := inspection.check_copy(staged[name], kind)):
            raise RestoreError(f"`{name}` in it is damaged: {problems[0]}; hint: take another backup")
    into_store = _select_store_members(staged) if store is not None else {}
    unchanged = [
        name
        for name, place in staged.items()
        if name not in backup_manifest.DATABASES
        and name not in into_store
        and _is_same(place, backup_manifest.resolve_path(name, settings))
    ]
    wanted = {name: place for name, place in staged.items() if name not in unchanged and name not in into_store}
    in_the_way = [str(place) for name in wanted for place in _find_occupied(name, settings)]
    if store is not None and into_store and asyncio.run(backup_database.has_existing_data(store)):
        in_the_way.insert(0, database.mask_password(store))
    if in_the_way and not force:
        more = f" and {len(in_the_way) - 3} more" if len(in_the_way) > 3 else ""
        raise RestoreError(
            f"{', '.join(f'`{place}`' for place in in_the_way[:3])}{more} would be replaced;"
            " hint: --force does it, and keeps the old ones aside"
        )
    kept_aside: list[str] = []

    def move_files() -> None:
        kept_aside.extend(map(str, _move_in(settings, wanted)))

    if store is None or not into_store:
        move_files()
    elif (old := asyncio.run(backup_database.restore_into_database(store, into_store, move_files))) is not None:
        kept_aside.append(f"the schema `{old}` of {database.mask_password(store)}")
    return RestoreSummary(
        file=str(file),
        version=described.version,
        created_at_ms=described.created_at_ms,
        secrets=described.secrets,
        restored=[*into_store, *wanted],
        unchanged=unchanged,
        kept_aside=kept_aside,
    )


def _select_store_members(staged: dict[str, Path]) -> dict[str, Path]:
    """Returns the members that a database stores instead of files. An archive without databases leaves the database unchanged."""
    if backup_manifest.JOURNAL not in staged:
        if backup_database.REGISTRY in staged:
            raise RestoreError("it has users and no journal; hint: restore it into files with `--store sqlite`")
        return {}
    return {name: place for name, place in staged.items() if name in backup_manifest.DATABASES or name in backup_database.SECRETS}


@contextmanager
def _create_staging_folders(settings: config.Settings) -> Iterator[dict[str, Path]]:
    """Creates a folder next to each target, so that moving in is a rename. It removes what a killed restore left, which is safe
    because we hold the lock."""
    folders: dict[str, Path] = {}
    try:
        for root in _ROOTS:
            top = backup_manifest.resolve_base_folder(root, settings)
            top.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in top.glob(f"{_STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
            folders[root] = top / f"{_STAGING}{root}-{secrets.token_hex(4)}"
            folders[root].mkdir(mode=0o700)
        yield folders
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _check_free_space(settings: config.Settings, described: backup_manifest.BackupManifest) -> None:
    needed, free = sum(member.size for member in described.members), shutil.disk_usage(settings.data_dir).free
    if needed > free:
        raise RestoreError(f"it needs {needed} bytes and {free} are free at `{settings.data_dir}`; hint: make room")


def _is_same(staged: Path, place: Path) -> bool:
    """Returns whether the file already equals the backup's. Databases are not compared: they are large and have several files."""
    with suppress(OSError):
        return place.is_file() and staged.stat().st_size == place.stat().st_size and staged.read_bytes() == place.read_bytes()
    return False


def _find_occupied(name: str, settings: config.Settings) -> Iterator[Path]:
    """Yields the existing files at a member's path, and files next to it that would be taken for part of it."""
    place = backup_manifest.resolve_path(name, settings)
    if os.path.lexists(place):
        yield place
    if name in backup_manifest.DATABASES:
        yield from (beside for end in _DATABASE_SUFFIXES if (beside := place.with_name(place.name + end)).exists())


def _move_in(settings: config.Settings, wanted: dict[str, Path]) -> list[Path]:
    """Moves all files in, or restores the previous state."""
    now_ms = time.time_ns() // 1_000_000  # two restores in one second keep two old files
    mark = f".before-restore-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now_ms // 1000))}.{now_ms % 1000:03}Z"
    moved: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.rename(target)
        moved.append((source, target))

    kept: list[Path] = []
    try:
        for name, place in wanted.items():
            target = backup_manifest.resolve_path(name, settings)
            for old in _find_occupied(name, settings):
                # `journal.db-wal` stays next to `journal.db` under the new name too, so that it can be opened.
                kept.append(target.with_name(f"{target.name}{mark}{old.name.removeprefix(target.name)}"))
                move(old, kept[-1])
            move(place, target)
    except OSError:
        for source, target in reversed(moved):
            with suppress(OSError):
                target.rename(source)
        raise
    if backup_manifest.JOURNAL in wanted:
        for end in ("", *_DATABASE_SUFFIXES):
            (settings.data_dir / f"{backup_manifest.SEARCH_INDEX}{end}").unlink(missing_ok=True)
    for root in _ROOTS:
        _sync_folder(backup_manifest.resolve_base_folder(root, settings))
    return kept


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
