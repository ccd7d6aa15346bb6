"""`kill -9` at any moment: whatever was acknowledged, or could be read, is there afterwards."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import NOON, make_delta, make_receipt

APPENDER = """
import asyncio, os, pathlib, sys
from switchtower.core.ports import journal
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import NOON, make_card as card, make_delta as delta, make_receipt as receipt

async def appender(store, session_id, length):
    page = await store.read(session_id, 0, 1_000_000)
    head = page[-1].seq if page else 0
    while True:
        entries = [delta(seq) for seq in range(head + 1, head + 1 + length)]
        head += length
        await store.append(journal.Append(
            session_id=session_id, epoch=1, entries=entries, receipts=[receipt(f"msg_{head}", session_id)],
            card=card(session_id), snapshot=b"%d" % head,
        ))
        os.write(1, f"{session_id} {head}\\n".encode())

async def onlooker(store, session_id):
    head = 0
    while True:
        page = await store.read(session_id, head, 1_000)
        if page:
            head = page[-1].seq
            os.write(1, f"{session_id} {head}\\n".encode())
        await asyncio.sleep(0.001)

async def main():
    store = SqliteJournal(pathlib.Path(sys.argv[1]))
    await store.open()
    await asyncio.gather(*(appender(store, f"sess_{n}", n) for n in range(1, 9)), onlooker(store, "sess_5"))

asyncio.run(main())
"""


async def read_until_killed(path: Path, after_lines: int) -> dict[str, int]:
    """The highest seq of each session that the process told of before it was killed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", APPENDER, str(path), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        told = [await process.stdout.readline() for _ in range(after_lines)]
        process.kill()
        told += (await process.stdout.read()).splitlines()
        await process.wait()
    heads: dict[str, int] = {}
    for line in told:
        session_id, seq = line.decode().split()
        heads[session_id] = max(heads.get(session_id, 0), int(seq))
    return heads


async def test_everything_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for round_number in range(10):
        heads = await read_until_killed(path, after_lines=1 + round_number * 23)
        store = SqliteJournal(path)
        await store.open()
        for session_id, head in heads.items():
            entries = await store.read(session_id, 0, 1_000_000)
            assert len(entries) >= head
            assert entries == [make_delta(seq) for seq in range(1, len(entries) + 1)]
            stored = await store.load(session_id)
            assert stored is not None
            assert (stored.snapshot_seq, stored.snapshot) == (len(entries), str(len(entries)).encode())
            assert await store.find_receipt(session_id, f"msg_{len(entries)}", NOON) == make_receipt(
                f"msg_{len(entries)}", session_id
            )
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
