"""Opens a store for a command's exclusive use: a home through its daemon's lock, a database only while no node is running."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from switchtower import config
from switchtower.cli.storage import store_location
from switchtower.daemon.home import DaemonHome
from switchtower.stores.postgres import inspection as postgres_inspection
from switchtower.stores.sqlite import inspection
from switchtower.stores.transfer import postgres, sqlite
from switchtower.stores.transfer.ports import StoreSource, StoreTarget, TransferError
from switchtower.stores.transfer.postgres import PostgresSource
from switchtower.stores.transfer.sqlite import SqliteTarget, translate_errors


@asynccontextmanager
async def open_for_reading(place: store_location.StoreLocation) -> AsyncIterator[StoreSource]:
    """Raises `TransferError`, `StoreUnreadable`, or `AlreadyRunning`."""
    if isinstance(place, store_location.DatabaseStore):
        async with postgres_inspection.open_readonly(place.dsn) as connection:
            await postgres.check_no_live_nodes(connection, place.display_name)
            async with postgres_inspection.open_snapshot(connection):
                yield PostgresSource(connection)
        return
    settings = place.settings
    if not settings.journal_path.exists():
        raise TransferError(f"there is no journal in `{place.display_name}`", hint="name another home, or `postgresql://…`")
    with (
        _claim_home(settings),
        store_location.open_home_files(settings.journal_path, settings.registry_path, settings.data_dir) as source,
    ):
        yield source


async def require_no_live_nodes(place: store_location.StoreLocation) -> None:
    """Checks again at the end of a copy: a node that was started since may have written data that was not read."""
    if isinstance(place, store_location.DatabaseStore):
        async with postgres_inspection.open_readonly(place.dsn) as connection:
            await postgres.check_no_live_nodes(connection, place.display_name)


@asynccontextmanager
async def open_for_writing(place: store_location.StoreLocation, *, resume: bool, restart: bool) -> AsyncIterator[StoreTarget]:
    """Opens an empty store, or the result of an interrupted copy. Raises the same errors as `open_for_reading`."""
    if isinstance(place, store_location.DatabaseStore):
        async with postgres.open_target(place.dsn, resume=resume, restart=restart) as target:
            yield target
        return
    settings = place.settings
    with _claim_home(settings):
        await _require_empty(place)
        if restart:
            sqlite.discard_partial_copy(settings.data_dir)
        if sqlite.has_partial_copy(settings.data_dir) and not resume:
            raise TransferError(
                f"a copy into `{place.display_name}` was interrupted", hint="--resume goes on with it, --restart begins again"
            )
        made = SqliteTarget(settings.data_dir)
        try:
            yield made
        finally:
            made.close()


async def _require_empty(place: store_location.HomeStore) -> None:
    settings = place.settings
    begun = sqlite.has_partial_copy(settings.data_dir)
    filled = False
    if settings.journal_path.exists():
        with inspection.open_readonly(settings.journal_path) as connection, translate_errors():
            filled = bool(
                connection.execute("SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM receipts)").fetchone()[0]
            )
    if settings.registry_path.exists() and not begun:  # the registry is moved into place before the journal
        with inspection.open_readonly(settings.registry_path, inspection.REGISTRY) as connection, translate_errors():
            filled |= bool(
                connection.execute("SELECT EXISTS (SELECT 1 FROM users) OR EXISTS (SELECT 1 FROM hosts)").fetchone()[0]
            )
    if filled:
        raise TransferError(
            f"`{place.display_name}` is not empty", hint="name another home; `TOWER_HOME` or a folder makes a new one"
        )


@contextmanager
def _claim_home(settings: config.Settings) -> Iterator[None]:
    home = DaemonHome(settings)
    home.claim()
    try:
        yield
    finally:
        home.release()
