"""Backs up and restores a PostgreSQL store. The archive has the same form as that of a home with files, so that either can be
restored into the other."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from switchtower.cli.storage import backup_manifest, store_location
from switchtower.stores.postgres import database as postgres_database
from switchtower.stores.postgres import inspection as postgres_inspection
from switchtower.stores.sqlite import database, inspection
from switchtower.stores.transfer import ports, postgres, transfer
from switchtower.stores.transfer.ports import SECRET_FILES
from switchtower.stores.transfer.postgres import PostgresSource
from switchtower.stores.transfer.sqlite import SqliteTarget

SECRETS = {f"data/{file}": name for name, file in SECRET_FILES.items()}
"""The secrets that nodes share; in a backup they are files of a home."""
REGISTRY = "data/registry.db"


async def copy_from_database(dsn: str, folder: Path) -> dict[str, bytes]:
    """Creates a home's databases in the folder from one snapshot, while nodes may write. Returns the secrets by their names in a
    backup. Raises `StoreUnreadable` and `TransferError`."""
    target = SqliteTarget(folder)
    try:
        async with postgres_inspection.open_readonly(dsn) as connection, postgres_inspection.open_snapshot(connection):
            source = PostgresSource(connection)
            await transfer.copy_journal(source, target)
            await transfer.copy_registry(source, target)
            kept = await source.read_secrets()
        await target.activate()
    finally:
        target.close()
    return {name: kept[secret] for name, secret in SECRETS.items() if secret in kept}


async def has_existing_data(dsn: str) -> bool:
    """Raises `TransferError` while nodes are running, and `StoreUnreadable`."""
    async with postgres_inspection.open_database(dsn) as connection:
        place = postgres_database.mask_password(dsn)
        if not await postgres_inspection.read_schema_version(connection):
            return False
        await postgres_inspection.check_schema(connection, place)
        await postgres.check_no_live_nodes(connection, place)
        return await postgres.has_data(connection)


async def restore_into_database(dsn: str, staged: Mapping[str, Path], move_files: Callable[[], None]) -> str | None:
    """Replaces the store with the staged files, and keeps users and secrets that the backup does not have. Files are moved when
    nothing else can fail, so the restore is all or nothing. Returns the location of the old store, if there was one."""
    journal, registry = staged[backup_manifest.JOURNAL], staged.get(REGISTRY)
    for path, kind in ((journal, inspection.JOURNAL), (registry, inspection.REGISTRY)):
        if path is not None:
            _migrate_copy(path, kind)
    async with postgres.open_target(dsn, restart=True, replace=True) as target:
        with store_location.open_home_files(journal, registry) as source:
            await transfer.copy_journal(source, target)
            if registry is not None:
                await transfer.copy_registry(source, target)
            compared = await transfer.compare_stores(source, target, registry=registry is not None, secrets=False)
        if not compared.is_equal:
            raise ports.TransferError(
                f"what arrived differs: {compared.differences[0]}", hint="see `tower doctor`, and try again"
            )
        if registry is None:
            await _keep_registry(dsn, target)
        await target.put_secrets(
            {secret: staged[name].read_bytes().strip() for name, secret in SECRETS.items() if name in staged}
        )
        async with target.activate_with():
            move_files()
        return target.kept_aside


async def _keep_registry(dsn: str, target: postgres.PostgresTarget) -> None:
    async with postgres_inspection.open_database(dsn) as connection:
        if await postgres_inspection.read_schema_version(connection):
            await transfer.copy_registry(PostgresSource(connection), target)


def _migrate_copy(path: Path, kind: str) -> None:
    """Migrates our private copy, because an archive may be from an older version."""
    with closing(database.open_for_writing(path)) as connection:
        database.migrate(connection, kind)
        if kind == inspection.JOURNAL:
            inspection.adopt_past_decisions(connection)
