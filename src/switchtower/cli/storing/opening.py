"""A store for a command that needs it for itself: a home by its daemon's own lock, a database without a node that lives."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from switchtower import config
from switchtower.cli.storing import files, places
from switchtower.daemon.home import DaemonHome
from switchtower.stores import sqlite_look
from switchtower.stores.copying import postgres_writing, sqlite_writing
from switchtower.stores.copying.ports import TransferError, StoreSource, StoreTarget
from switchtower.stores.copying.postgres_reading import PostgresSource
from switchtower.stores.copying.sqlite_reading import translate_errors
from switchtower.stores.copying.sqlite_writing import SqliteTarget
from switchtower.stores.postgres_tools import look


@asynccontextmanager
async def open_for_reading(place: places.StoreLocation) -> AsyncIterator[StoreSource]:
    """Raises `CannotCopy`, `looking.CannotLook`, or `home.AlreadyRunning`."""
    if isinstance(place, places.DatabaseStore):
        async with look.open_readonly(place.dsn) as connection:
            await postgres_writing.check_no_live_nodes(connection, place.display_name)
            async with look.open_snapshot(connection):
                yield PostgresSource(connection)
        return
    settings = place.settings
    if not settings.journal_path.exists():
        raise TransferError(f"there is no journal in `{place.display_name}`", hint="name another home, or `postgresql://…`")
    with _claim_home(settings), files.open_home_files(settings.journal_path, settings.registry_path, settings.data_dir) as source:
        yield source


async def require_no_live_nodes(place: places.StoreLocation) -> None:
    """At the end of a copy: a node that was started since has written what was not read."""
    if isinstance(place, places.DatabaseStore):
        async with look.open_readonly(place.dsn) as connection:
            await postgres_writing.check_no_live_nodes(connection, place.display_name)


@asynccontextmanager
async def open_for_writing(place: places.StoreLocation, *, resume: bool, restart: bool) -> AsyncIterator[StoreTarget]:
    """An empty store, or what an interrupted copy left. Raises as `reading` does."""
    if isinstance(place, places.DatabaseStore):
        async with postgres_writing.open_target(place.dsn, resume=resume, anew=restart) as target:
            yield target
        return
    settings = place.settings
    with _claim_home(settings):
        await _require_empty(place)
        if restart:
            sqlite_writing.discard_partial_copy(settings.data_dir)
        if sqlite_writing.has_partial_copy(settings.data_dir) and not resume:
            raise TransferError(
                f"a copy into `{place.display_name}` was interrupted", hint="--resume goes on with it, --anew begins again"
            )
        made = SqliteTarget(settings.data_dir)
        try:
            yield made
        finally:
            made.close()


async def _require_empty(place: places.HomeStore) -> None:
    settings = place.settings
    begun = sqlite_writing.has_partial_copy(settings.data_dir)
    filled = False
    if settings.journal_path.exists():
        with sqlite_look.open_readonly(settings.journal_path) as connection, translate_errors():
            filled = bool(
                connection.execute("SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM receipts)").fetchone()[0]
            )
    if settings.registry_path.exists() and not begun:  # the registry takes its place before the journal
        with sqlite_look.open_readonly(settings.registry_path, sqlite_look.REGISTRY) as connection, translate_errors():
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
