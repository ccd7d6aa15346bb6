"""Creates a backup: a snapshot of each database while a daemon may write it, and the files as they are, in one tar.gz."""

import asyncio
import hashlib
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from switchtower import __version__, config
from switchtower.cli.storage import backup_database, backup_manifest
from switchtower.stores.postgres import database
from switchtower.stores.sqlite import inspection


class BackupError(Exception):
    """No backup was made; the message has the reason and a remedy."""


class BackupResult(Struct, frozen=True, kw_only=True):
    file: str
    bytes: int
    secrets: bool
    members: list[backup_manifest.BackupMember]
    left_out: list[str]
    """Files that are too large, or could not be read."""


def write_backup(
    settings: config.Settings,
    target: Path,
    *,
    with_secrets: bool,
    force: bool,
    store: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> BackupResult:
    """Creates a backup; with a `store`, the journal and its related data come from that database. Raises `BackupError`,
    `StoreUnreadable` or `TransferError`, or `OSError` when it cannot be written."""
    if target.is_dir():
        raise BackupError(f"`{target}` is a folder; hint: name a file in it, such as `{target / 'tower.tar.gz'}`")
    if target.exists() and not force:
        raise BackupError(f"`{target}` is there already; hint: choose another name, or --force to replace it")
    if not target.parent.is_dir():
        raise BackupError(f"there is no folder `{target.parent}`; hint: make it first")
    # The temporary folder is next to the target: that disk needs the space in any case, and the owner chose it.
    with tempfile.TemporaryDirectory(prefix=".tower-backup-", dir=target.parent) as folder:
        parts = _BackupParts(Path(folder))
        if store is None:
            for name, path, kind in backup_manifest.find_databases(settings):
                on_progress(f"copying {path}")
                parts.add_database(name, path, kind)
            shared: Mapping[str, object] = {}
        else:
            shared = backup_database.SECRETS
            parts.add_store(store, with_secrets=with_secrets, on_progress=on_progress)
        for found in backup_manifest.find_files(settings, with_secrets=with_secrets):
            if found.name not in shared:
                parts.add_file(found)
        if not parts.members:
            raise BackupError(f"there is nothing to back up in `{settings.data_dir}`; hint: is `TOWER_HOME` the one you mean?")
        described = backup_manifest.BackupManifest(
            format=backup_manifest.BACKUP_FORMAT,
            version=__version__,
            created_at_ms=time.time_ns() // 1_000_000,
            secrets=with_secrets,
            schemas=parts.schemas,
            members=parts.members,
        )
        on_progress(f"writing {target}")
        _write_archive(target, described, parts)
    return BackupResult(
        file=str(target), bytes=target.stat().st_size, secrets=with_secrets, members=parts.members, left_out=parts.left_out
    )


class _BackupParts:
    """The members of a backup: each database as a copy, each file as the bytes that were read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes: dict[str, bytes] = {}
        self._held = 0
        self._copies: dict[str, Path] = {}
        self.members: list[backup_manifest.BackupMember] = []
        self.schemas: dict[str, int] = {}
        self.left_out: list[str] = []

    def add_database(self, name: str, path: Path, kind: str) -> None:
        copy = self._folder / Path(name).name
        self._add_copy(name, copy, inspection.copy_file(path, copy, kind))

    def add_store(self, dsn: str, *, with_secrets: bool, on_progress: Callable[[str], None]) -> None:
        on_progress(f"copying {database.mask_password(dsn)}")
        shared = asyncio.run(backup_database.copy_from_database(dsn, self._folder))
        for name, kind in backup_manifest.DATABASES.items():
            copy = self._folder / Path(name).name
            with inspection.open_readonly(copy, kind) as connection:
                schema = inspection.read_schema_version(connection)
            self._add_copy(name, copy, schema)
        for name, secret in shared.items() if with_secrets else ():
            self._bytes[name] = secret
            self._add(name, len(secret), hashlib.sha256(secret).hexdigest())

    def _add_copy(self, name: str, copy: Path, schema: int) -> None:
        self.schemas[name] = schema
        self._copies[name] = copy
        with copy.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        self._add(name, copy.stat().st_size, digest)

    def add_file(self, found: backup_manifest.BackupFile) -> None:
        if len(self.members) >= backup_manifest.MAX_FILES:
            raise BackupError(
                f"there are more than {backup_manifest.MAX_FILES} files; hint: see what is in your prompts and skills"
            )
        try:
            with found.path.open("rb") as file:
                content = file.read(backup_manifest.MAX_FILE_BYTES + 1)
        except OSError as problem:
            self.left_out.append(f"{found.name}: {problem.strerror}")
            return
        if len(content) > backup_manifest.MAX_FILE_BYTES:
            self.left_out.append(f"{found.name}: larger than {backup_manifest.MAX_FILE_BYTES} bytes")
            return
        self._held += len(content)
        if self._held > backup_manifest.MAX_TOTAL_BYTES:
            raise BackupError(
                f"your files have more than {backup_manifest.MAX_TOTAL_BYTES} bytes; hint: see what is in your prompts and skills"
            )
        self._bytes[found.name] = content
        self._add(found.name, len(content), hashlib.sha256(content).hexdigest(), executable=found.executable)

    def _add(self, name: str, size: int, digest: str, *, executable: bool = False) -> None:
        stored = backup_manifest.make_member_name(name, len(self.members))
        self.members.append(
            backup_manifest.BackupMember(name=name, stored=stored, size=size, sha256=digest, executable=executable)
        )

    def open_part(self, name: str) -> IO[bytes]:
        return io.BytesIO(self._bytes[name]) if name in self._bytes else self._copies[name].open("rb")


def _write_archive(target: Path, described: backup_manifest.BackupManifest, parts: _BackupParts) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "w+b") as out:
            # GNU headers support files beyond 8 GiB without members of other kinds.
            with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6, format=tarfile.GNU_FORMAT) as tar:
                for info, content in _iterate_members(described, parts):
                    with content:
                        tar.addfile(info, content)
            backup_manifest.append_checksum(out)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _iterate_members(
    described: backup_manifest.BackupManifest, parts: _BackupParts
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    text = msgspec.json.format(msgspec.json.encode(described))
    yield _make_tar_info(backup_manifest.MANIFEST_NAME, len(text), described), io.BytesIO(text)
    for member in described.members:
        yield _make_tar_info(member.stored, member.size, described, executable=member.executable), parts.open_part(member.name)


def _make_tar_info(
    name: str, size: int, described: backup_manifest.BackupManifest, *, executable: bool = False
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o700 if executable else 0o600
    info.mtime = described.created_at_ms // 1000
    return info
