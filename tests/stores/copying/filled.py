"""Stores of both kinds with something of everything in them."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from tests.contracts import registry as contracts_registry

from switchtower.core import codec, events
from switchtower.core.fold import encode_snapshot, make_card
from switchtower.core.ports import journal
from switchtower.core.ports.registry import HostState
from switchtower.stores.postgres import inspection as postgres_inspection
from switchtower.stores.sqlite import inspection
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.stores.sqlite.registry import SqliteRegistry
from switchtower.stores.transfer import ports
from switchtower.stores.transfer.postgres import PostgresSource
from switchtower.stores.transfer.sqlite import SqliteSource
from switchtower.testing.session_driver import NOON, SessionDriver, make_delta, make_deltas, make_receipt, make_warning
from switchtower.testing.session_driver import make_card as make_stored_card

SECRETS = {ports.OWNER_TOKEN: b"owner's", ports.JWT_SECRET: b"0123456789abcdef"}


def make_session_append(session_id: str, *, words: int = 40, epoch: int = 1) -> journal.Append:
    """A session that a run was in, as the runtime stores it."""
    table = SessionDriver(session_id=session_id)
    run_id = table.send("count")
    for number in range(words):
        table.emit(run_id, events.TextDelta(text=f"word {number} "))
    table.emit(run_id, events.MessageCompleted(message_id="msg_1", text="all the words"))
    return journal.Append(
        session_id=session_id,
        epoch=epoch,
        entries=table.entries,
        receipts=[make_receipt("key", session_id), make_receipt("a\0key\\", session_id, expires_at_ms=NOON + 10**15)],
        card=make_card(table.session),
        snapshot=encode_snapshot(table.session),
    )


async def fill(store: journal.Journal, *, sessions: int = 3) -> None:
    """Among them a pruned one, one with odd names, one that is loaded, and a receipt of the server's."""
    for number in range(sessions):
        await store.append(make_session_append(f"sess_{number}", epoch=number + 1))
    long = [*make_deltas(1, 1_500), make_warning(1_501)]
    await store.append(
        journal.Append(session_id="sess_pruned", epoch=1, entries=long, card=make_stored_card("sess_pruned"), snapshot=b"{}")
    )
    await store.prune(journal.Retention(keep_entries=700, keep_ms=0), NOON, "sess_pruned")
    odd = "sess_\\odd\0näme"
    entries = [
        journal.Entry(
            1, NOON, "run\0\\0", events.WarningRaised.kind, codec.encode(events.WarningRaised("CODE", "nul \0 and \\"))
        ),
        make_delta(2),
    ]
    loaded = journal.Card(
        **{**{name: getattr(make_stored_card(odd), name) for name in journal.Card.__struct_fields__}, "loaded": True}
    )
    await store.append(
        journal.Append(session_id=odd, epoch=9, entries=entries, card=loaded, receipts=[make_receipt("key", "server", run="x")])
    )


async def make_home(folder: Path, *, sessions: int = 3) -> Path:
    """The data folder of a home."""
    store, registry = SqliteJournal(folder / "journal.db"), SqliteRegistry(folder / "registry.db")
    await store.open()
    await fill(store, sessions=sessions)
    await store.close()
    await registry.open()
    await fill_registry(registry)
    await registry.close()
    return folder


async def make_empty_registry(path: Path) -> None:
    registry = SqliteRegistry(path)
    await registry.open()
    await registry.close()


async def fill_registry(registry: SqliteRegistry) -> None:
    await registry.add_user(contracts_registry.make_user("ann"))
    await registry.add_user(contracts_registry.make_user("bob", "$argon2id$two"))
    for number in range(3):
        await registry.add_token(contracts_registry.make_token(f"tok_{number}"))
    await registry.revoke_token("tok_1", NOON + 1)
    await registry.record_contact(contracts_registry.make_contact("host_\\1"), first_state=HostState.PENDING, most=10)
    await registry.record_hub("https://hub.example", NOON)
    await registry.store_acknowledgements("https://hub.example", [(f"sess_{number}", number, NOON) for number in range(700)])


@contextmanager
def read_home(folder: Path) -> Iterator[SqliteSource]:
    with (
        inspection.open_readonly(folder / "journal.db") as journal_file,
        inspection.open_readonly(folder / "registry.db", inspection.REGISTRY) as registry_file,
    ):
        yield SqliteSource(journal_file, registry_file, SECRETS)


@asynccontextmanager
async def read_database(dsn: str) -> AsyncIterator[PostgresSource]:
    async with postgres_inspection.open_readonly(dsn) as connection, postgres_inspection.open_snapshot(connection):
        yield PostgresSource(connection)


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()
