"""A store for a command that needs it for itself: a home by its daemon's own lock, a database without a node that lives."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from switchtower import config
from switchtower.cli.storing import files, places
from switchtower.daemon.home import Home
from switchtower.stores import sqlite_look
from switchtower.stores.copying import postgres_writing, sqlite_writing
from switchtower.stores.copying.ports import CannotCopy, Reading, Writing
from switchtower.stores.copying.postgres_reading import PostgresReading
from switchtower.stores.copying.sqlite_reading import telling
from switchtower.stores.copying.sqlite_writing import SqliteWriting
from switchtower.stores.postgres_tools import look


@asynccontextmanager
async def reading(place: places.Place) -> AsyncIterator[Reading]:
    """Raises `CannotCopy`, `looking.CannotLook`, or `home.AlreadyRunning`."""
    if isinstance(place, places.Database):
        async with look.opened(place.dsn) as connection:
            await postgres_writing.refuse_nodes(connection, place.shown)
            async with look.one_moment(connection):
                yield PostgresReading(connection)
        return
    settings = place.settings
    if not settings.journal_path.exists():
        raise CannotCopy(f"there is no journal in `{place.shown}`", hint="name another home, or `postgresql://…`")
    with _claimed(settings), files.opened(settings.journal_path, settings.registry_path, settings.data_dir) as source:
        yield source


async def refuse_company(place: places.Place) -> None:
    """At the end of a copy: a node that was started since has written what was not read."""
    if isinstance(place, places.Database):
        async with look.opened(place.dsn) as connection:
            await postgres_writing.refuse_nodes(connection, place.shown)


@asynccontextmanager
async def writing(place: places.Place, *, resume: bool, anew: bool) -> AsyncIterator[Writing]:
    """An empty store, or what an interrupted copy left. Raises as `reading` does."""
    if isinstance(place, places.Database):
        async with postgres_writing.opened(place.dsn, resume=resume, anew=anew) as target:
            yield target
        return
    settings = place.settings
    with _claimed(settings):
        await _refuse_filled(place)
        if anew:
            sqlite_writing.throw_away(settings.data_dir)
        if sqlite_writing.is_begun(settings.data_dir) and not resume:
            raise CannotCopy(f"a copy into `{place.shown}` was interrupted", hint="--resume goes on with it, --anew begins again")
        made = SqliteWriting(settings.data_dir)
        try:
            yield made
        finally:
            made.close()


async def _refuse_filled(place: places.Home) -> None:
    settings = place.settings
    begun = sqlite_writing.is_begun(settings.data_dir)
    filled = False
    if settings.journal_path.exists():
        with sqlite_look.opened(settings.journal_path) as connection, telling():
            filled = bool(
                connection.execute("SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM receipts)").fetchone()[0]
            )
    if settings.registry_path.exists() and not begun:  # the registry takes its place before the journal
        with sqlite_look.opened(settings.registry_path, sqlite_look.REGISTRY) as connection, telling():
            filled |= bool(
                connection.execute("SELECT EXISTS (SELECT 1 FROM users) OR EXISTS (SELECT 1 FROM hosts)").fetchone()[0]
            )
    if filled:
        raise CannotCopy(f"`{place.shown}` is not empty", hint="name another home; `TOWER_HOME` or a folder makes a new one")


@contextmanager
def _claimed(settings: config.Settings) -> Iterator[None]:
    home = Home(settings)
    home.claim()
    try:
        yield
    finally:
        home.release()
