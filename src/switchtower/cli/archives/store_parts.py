"""A database's part of a backup. In the archive it is what a home of files has, so that one can be restored into the other."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from switchtower.cli.archives import contents
from switchtower.cli.storing import files
from switchtower.stores import connections, migrations, sqlite_chain, sqlite_look
from switchtower.stores.copying import comparing, moving, ports, postgres_writing
from switchtower.stores.copying.ports import SECRET_FILES
from switchtower.stores.copying.postgres_reading import PostgresReading
from switchtower.stores.copying.sqlite_writing import SqliteWriting
from switchtower.stores.postgres_tools import addresses, look

SECRETS = {f"data/{file}": name for name, file in SECRET_FILES.items()}
"""Those that nodes share: in a backup they are files of a home."""
REGISTRY = "data/registry.db"


async def write(dsn: str, folder: Path) -> dict[str, bytes]:
    """Makes a home's databases in the folder, as of one moment, while nodes may write. Returns the secrets, by their names in a
    backup. Raises `looking.CannotLook` and `ports.CannotCopy`."""
    target = SqliteWriting(folder)
    try:
        async with look.opened(dsn) as connection, look.one_moment(connection):
            source = PostgresReading(connection)
            await moving.move_journal(source, target)
            await moving.move_registry(source, target)
            kept = await source.secrets()
        await target.take_place()
    finally:
        target.close()
    return {name: kept[secret] for name, secret in SECRETS.items() if secret in kept}


async def would_replace(dsn: str) -> bool:
    """Raises `ports.CannotCopy` while nodes are alive, and `looking.CannotLook`."""
    async with look.reached(dsn) as connection:
        place = addresses.shown(dsn)
        if not await look.schema_version(connection):
            return False
        await look.check(connection, place)
        await postgres_writing.refuse_nodes(connection, place)
        return await postgres_writing.is_filled(connection)


async def restore(dsn: str, staged: Mapping[str, Path], move_files: Callable[[], None]) -> str | None:
    """What was staged becomes the store; users and secrets that it does not have stay. Files are moved when nothing else can
    fail. All of it, or as it was. Returns where the old store is kept, when there was one."""
    journal, registry = staged[contents.JOURNAL], staged.get(REGISTRY)
    for path, kind in ((journal, sqlite_look.JOURNAL), (registry, sqlite_look.REGISTRY)):
        if path is not None:
            _bring_up_to_date(path, kind)
    async with postgres_writing.opened(dsn, anew=True, replace=True) as target:
        with files.opened(journal, registry) as source:
            await moving.move_journal(source, target)
            if registry is not None:
                await moving.move_registry(source, target)
            compared = await comparing.compare(source, target, registry=registry is not None, secrets=False)
        if not compared.same:
            raise ports.CannotCopy(f"what arrived differs: {compared.differences[0]}", hint="see `tower doctor`, and try again")
        if registry is None:
            await _keep_registry(dsn, target)
        await target.put_secrets(
            {secret: staged[name].read_bytes().strip() for name, secret in SECRETS.items() if name in staged}
        )
        async with target.taking_place():
            move_files()
        return target.kept_aside


async def _keep_registry(dsn: str, target: postgres_writing.PostgresWriting) -> None:
    async with look.reached(dsn) as connection:
        if await look.schema_version(connection):
            await moving.move_registry(PostgresReading(connection), target)


def _bring_up_to_date(path: Path, kind: str) -> None:
    """A copy that is ours alone. An archive may be of an older version."""
    with closing(connections.for_writing(path)) as connection:
        migrations.migrate(connection, kind)
        if kind == sqlite_look.JOURNAL:
            sqlite_chain.adopt(connection)
