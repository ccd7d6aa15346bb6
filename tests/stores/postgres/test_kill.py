"""`kill -9` of the server, or of the node, at any moment: whatever was acknowledged is there afterwards, once and in order."""

import asyncio
import sys

from tests.stores.postgres.conftest import make_database

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.testing.postgres_server import PostgresServer
from switchtower.testing.session_driver import NOON, make_card, make_delta, make_receipt

ROUNDS = 5


def make_append(session_id: str, first: int, length: int) -> journal.Append:
    last = first + length - 1
    return journal.Append(
        session_id=session_id,
        epoch=1,
        entries=[make_delta(seq) for seq in range(first, last + 1)],
        receipts=[make_receipt(f"msg_{last}", session_id)],
        card=make_card(session_id),
        snapshot=b"%d" % last,
    )


async def check(store: journal.Journal, session_id: str, acknowledged: int) -> int:
    entries: list[journal.Entry] = []
    while page := await store.read(session_id, len(entries), 100_000):
        entries += page
    head = len(entries)
    assert head >= acknowledged
    assert entries == [make_delta(seq) for seq in range(1, head + 1)]
    stored = await store.load(session_id)
    if head:
        assert stored == journal.StoredSession(session_id, 1, head, b"%d" % head)
        assert await store.find_receipt(session_id, f"msg_{head}", NOON) == make_receipt(f"msg_{head}", session_id)
    return head


async def test_everything_acknowledged_outlives_kill_9_of_the_server_and_the_appends_go_on(
    dedicated_server: PostgresServer,
) -> None:
    """The node lives through it: it finds out what became of the appends that were under way, and goes on by itself."""
    dsn = await make_database(dedicated_server, "killed")
    store = PostgresJournal(dsn, node_id="node_a", timeout=60)
    await store.open()
    heads = {f"sess_{length}": 0 for length in range(1, 9)}
    enough = False

    async def appender(session_id: str, length: int) -> None:
        while not enough:
            await store.append(make_append(session_id, heads[session_id] + 1, length))
            heads[session_id] += length

    async with asyncio.timeout(180):
        appending = asyncio.gather(*(appender(f"sess_{length}", length) for length in range(1, 9)))
        for turn in range(ROUNDS):
            before = sum(heads.values())
            while sum(heads.values()) <= before + 40 * turn:
                await asyncio.sleep(0)
                assert not appending.done(), "no append fails while the server is expected back"
            if turn % 2:
                await asyncio.to_thread(dedicated_server.kill)
            else:
                await asyncio.to_thread(dedicated_server.stop)
            await asyncio.to_thread(dedicated_server.start)
        before = sum(heads.values())
        while sum(heads.values()) == before:
            await asyncio.sleep(0)
        enough = True
        await appending
        for session_id, head in heads.items():
            assert await check(store, session_id, head) == head
    await store.close()


async def test_when_the_server_stays_away_appends_are_refused_and_what_was_refused_is_not_there(
    dedicated_server: PostgresServer,
) -> None:
    dsn = await make_database(dedicated_server, "killed")
    store = PostgresJournal(dsn, timeout=0.3)
    await store.open()
    await store.append(make_append("sess_1", 1, 1))
    async with asyncio.timeout(120):
        await asyncio.to_thread(dedicated_server.kill)
        while True:  # until the node has noticed
            try:
                await store.load("sess_1")
            except errors.JournalUnavailable:
                break
        refused = await asyncio.gather(
            *(store.append(make_append(f"sess_{number}", 1, 1)) for number in range(2, 30)), return_exceptions=True
        )
        assert {type(result) for result in refused} == {errors.JournalUnavailable}
        await asyncio.to_thread(dedicated_server.start)
        await store.append(make_append("sess_1", 2, 1))
        assert [listed.session_id for listed in await store.list_cards(limit=100)] == ["sess_1"]
        assert await check(store, "sess_1", 2) == 2
    await store.close()


APPENDER = """
import asyncio, os, sys
from switchtower.stores.postgres.journal import PostgresJournal
from tests.stores.postgres.test_kill import make_append

async def appender(store, session_id, length):
    head = 0
    while page := await store.read(session_id, head, 100_000):
        head = page[-1].seq
    while True:
        await store.append(make_append(session_id, head + 1, length))
        head += length
        os.write(1, f"{session_id} {head}\\n".encode())

async def main():
    store = PostgresJournal(sys.argv[1], node_id="node_a")
    await store.open()
    await asyncio.gather(*(appender(store, f"sess_{n}", n) for n in range(1, 9)))

asyncio.run(main())
"""


async def test_everything_acknowledged_outlives_kill_9_of_the_node(dsn: str) -> None:
    store = PostgresJournal(dsn)
    await store.open()
    for turn in range(4):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", APPENDER, dsn, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            told = [await process.stdout.readline() for _ in range(1 + turn * 37)]
            process.kill()
            told += (await process.stdout.read()).splitlines()
            await process.wait()
        heads: dict[str, int] = {}
        for line in told:
            session_id, seq = line.decode().split()
            heads[session_id] = max(heads.get(session_id, 0), int(seq))
        for session_id, head in heads.items():
            await check(store, session_id, head)
    await store.close()
