"""Brings a backup back. Everything is unpacked and checked before the first file moves; what was there is kept aside. The home
is locked meanwhile, so no daemon can run or start."""

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from switchtower import config
from switchtower.cli.archives import checksum, contents, manifest, reading, store_parts
from switchtower.daemon.home import DaemonHome
from switchtower.stores import sqlite_copy
from switchtower.stores.postgres_tools import addresses

_STAGING = ".restore-"
_ROOTS = ("data", "config")
_DATABASE_SUFFIXES = ("-wal", "-shm", "-journal")


class RestoreError(Exception):
    """Why nothing was restored, with a remedy."""


class RestoreSummary(Struct, frozen=True, kw_only=True):
    file: str
    version: str
    created_at_ms: int
    secrets: bool
    restored: list[str]
    unchanged: list[str]
    kept_aside: list[str]


def restore_backup(settings: config.Settings, file: Path, *, force: bool, store: str | None = None) -> RestoreSummary:
    """With a `store`, the journal and what belongs to it go into that database. Raises `CannotRestore`, `manifest.Broken`,
    `looking.CannotLook`, `ports.CannotCopy`, `home.AlreadyRunning`, or the disk's `OSError`."""
    home = DaemonHome(settings)
    home.claim()
    try:
        with file.open("rb") as content:
            has_checksum = checksum.verify_checksum(content)
            archive = reading.BackupArchive(content)
            try:
                if not has_checksum and archive.described.format > 1:
                    raise manifest.BackupCorrupt("its checksum is missing; hint: see whether it is whole, or take another backup")
                with _create_staging_folders(settings) as folders:
                    return _restore_archive(settings, file, archive, folders, force=force, store=store)
            finally:
                archive.close()
    finally:
        home.release()


def _restore_archive(
    settings: config.Settings,
    file: Path,
    archive: reading.BackupArchive,
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
    for name, kind in contents.DATABASES.items():
        if name in staged and (problems := sqlite_copy.check_copy(staged[name], kind)):
            raise RestoreError(f"`{name}` in it is damaged: {problems[0]}; hint: take another backup")
    into_store = _select_store_members(staged) if store is not None else {}
    unchanged = [
        name
        for name, place in staged.items()
        if name not in contents.DATABASES and name not in into_store and _is_same(place, contents.resolve_path(name, settings))
    ]
    wanted = {name: place for name, place in staged.items() if name not in unchanged and name not in into_store}
    in_the_way = [str(place) for name in wanted for place in _find_occupied(name, settings)]
    if store is not None and into_store and asyncio.run(store_parts.has_existing_data(store)):
        in_the_way.insert(0, addresses.mask_password(store))
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
    elif (old := asyncio.run(store_parts.restore_into_database(store, into_store, move_files))) is not None:
        kept_aside.append(f"the schema `{old}` of {addresses.mask_password(store)}")
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
    """What a database holds in place of files. An archive without databases leaves it alone."""
    if contents.JOURNAL not in staged:
        if store_parts.REGISTRY in staged:
            raise RestoreError("it has users and no journal; hint: restore it into files with `--store sqlite`")
        return {}
    return {name: place for name, place in staged.items() if name in contents.DATABASES or name in store_parts.SECRETS}


@contextmanager
def _create_staging_folders(settings: config.Settings) -> Iterator[dict[str, Path]]:
    """A folder beside each target, so that moving in is a rename. What a killed restore left goes first: we hold the lock."""
    folders: dict[str, Path] = {}
    try:
        for root in _ROOTS:
            top = contents.resolve_base_folder(root, settings)
            top.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in top.glob(f"{_STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
            folders[root] = top / f"{_STAGING}{root}-{secrets.token_hex(4)}"
            folders[root].mkdir(mode=0o700)
        yield folders
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _check_free_space(settings: config.Settings, described: manifest.BackupManifest) -> None:
    needed, free = sum(member.size for member in described.members), shutil.disk_usage(settings.data_dir).free
    if needed > free:
        raise RestoreError(f"it needs {needed} bytes and {free} are free at `{settings.data_dir}`; hint: make room")


def _is_same(staged: Path, place: Path) -> bool:
    """A file that is already as the backup has it is not in the way. Databases are more than one file, and large."""
    with suppress(OSError):
        return place.is_file() and staged.stat().st_size == place.stat().st_size and staged.read_bytes() == place.read_bytes()
    return False


def _find_occupied(name: str, settings: config.Settings) -> Iterator[Path]:
    """What stands where a member belongs, and beside it what would be taken for its own."""
    place = contents.resolve_path(name, settings)
    if os.path.lexists(place):
        yield place
    if name in contents.DATABASES:
        yield from (beside for end in _DATABASE_SUFFIXES if (beside := place.with_name(place.name + end)).exists())


def _move_in(settings: config.Settings, wanted: dict[str, Path]) -> list[Path]:
    """All of it, or as it was."""
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
            target = contents.resolve_path(name, settings)
            for old in _find_occupied(name, settings):
                # `journal.db-wal` stays beside `journal.db` under the new name too, so that it can be opened.
                kept.append(target.with_name(f"{target.name}{mark}{old.name.removeprefix(target.name)}"))
                move(old, kept[-1])
            move(place, target)
    except OSError:
        for source, target in reversed(moved):
            with suppress(OSError):
                target.rename(source)
        raise
    if contents.JOURNAL in wanted:
        for end in ("", *_DATABASE_SUFFIXES):
            (settings.data_dir / f"{contents.SEARCH_INDEX}{end}").unlink(missing_ok=True)
    for root in _ROOTS:
        _sync_folder(contents.resolve_base_folder(root, settings))
    return kept


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
