"""Homes with sessions already in them, written through the store itself."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from bench import wire
from switchtower.core.fold import encode_snapshot, fold_entries, make_card
from switchtower.core.ports import journal
from switchtower.core.session import Session
from switchtower.stores.sqlite.journal import SqliteJournal

_PIECE = 1_000


def write_sessions(home: Path, count: int) -> None:
    """Short sessions, each with one finished run."""
    entries = wire.make_entries(5)
    ids = [f"sess_01JCQ{number:022d}" for number in range(count)]
    asyncio.run(_write(home, [_write_appends(session_id, entries) for session_id in ids]))


def write_long_session(home: Path, count: int) -> None:
    """One long session, `wire.SESSION_ID`."""
    asyncio.run(_write(home, [_write_appends(wire.SESSION_ID, wire.make_entries(count - 3))]))


def _write_appends(session_id: str, entries: list[journal.Entry]) -> list[journal.Append]:
    session = Session(id=session_id)
    appends = []
    for start in range(0, len(entries), _PIECE):
        piece = entries[start : start + _PIECE]
        fold_entries(session, piece)
        appends.append(journal.Append(session_id, 1, piece, card=make_card(session)))
    return [*appends[:-1], replace(appends[-1], snapshot=encode_snapshot(session))]


async def _write(home: Path, sessions: list[list[journal.Append]]) -> None:
    store = SqliteJournal(home / "data" / "journal.db")
    await store.open()
    for start in range(0, len(sessions), _PIECE):
        for number in range(max(map(len, sessions))):
            piece = [appends[number] for appends in sessions[start : start + _PIECE] if number < len(appends)]
            await asyncio.gather(*(store.append(append) for append in piece))
    await store.close()
