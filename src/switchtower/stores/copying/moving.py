"""Moves a store: sessions in the order of their `sid`, then receipts, the registry and secrets. Commits come between sessions, so
that a copy that was killed goes on where it was: a session that is in the target is whole.

One that changed in the source since, or is not there any more, is taken out and copied again.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS
from switchtower.stores.copying.ports import REGISTRY, CannotCopy, Reading, Session, Writing
from switchtower.stores.verifying import Progress

FIRST = -(2**63)
"""Before every `sid`."""
_PAGE = 100
_COMMIT_BYTES = 8 * 1_048_576
_COMMIT_SESSIONS = 100
_NOT_OURS = (TypeError, ValueError, OverflowError, sqlite3.IntegrityError, sqlite3.InterfaceError)
"""What a value of another type ends in, besides the database's own classes 22 and 23: bad data, broken constraints."""


class Moved(Struct):
    sessions: int = 0
    already_there: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    secrets: int = 0


async def move_all(source: Reading, target: Writing, progress: Progress = lambda *_: None) -> Moved:
    """Raises `CannotCopy`, `looking.CannotLook`, or what the target's disk or database did."""
    moved = await move_journal(source, target, progress)
    moved.records = await move_registry(source, target)
    secrets = await source.secrets()
    await target.put_secrets(secrets)
    await target.commit()
    moved.secrets = len(secrets)
    return moved


async def move_journal(source: Reading, target: Writing, progress: Progress = lambda *_: None) -> Moved:
    moved = Moved()
    commits = _Commits(target)
    await _take_out_what_changed(source, target)
    total = await source.count()
    after_sid = FIRST
    while sessions := await source.sessions(after_sid, _PAGE):
        for session in sessions:
            with _naming(session.session_id):
                await commits.add(await _move_session(source, target, session, moved))
            progress("sessions", moved.sessions, max(total, moved.sessions))
        after_sid = sessions[-1].sid
    await target.clear_receipts()
    with _naming("a receipt"):
        async for receipts in source.receipts():
            await target.put_receipts(receipts)
            moved.receipts += len(receipts)
            await commits.add(sum(len(receipt[3]) for receipt in receipts))
            progress("receipts", moved.receipts, moved.receipts)
    await _move_chain(source, target, SESSIONS)
    await target.commit()
    return moved


async def move_registry(source: Reading, target: Writing) -> int:
    """How many rows of users, logins, hosts and hubs."""
    moved = 0
    await target.clear_records()
    for table in REGISTRY:
        with _naming(table):
            async for records in source.records(table):
                await target.put_records(table, records)
                moved += len(records)
    await _move_chain(source, target, ACCOUNTS)
    await target.commit()
    return moved


async def _move_chain(source: Reading, target: Writing, chain: str) -> None:
    """The audit is copied as it is, with what it has of sessions that were deleted."""
    await target.clear_chain(chain)
    with _naming("the audit"):
        async for links in source.links(chain):
            await target.put_links(chain, links)
        if (head := await source.chain_head(chain)) is not None:
            await target.put_chain_head(chain, *head)


class _Commits:
    """One now and then: not for each session, and not only at the end."""

    def __init__(self, target: Writing) -> None:
        self._target = target
        self._bytes = self._times = 0

    async def add(self, size: int) -> None:
        self._bytes += size
        self._times += 1
        if self._bytes >= _COMMIT_BYTES or self._times >= _COMMIT_SESSIONS:
            await self._target.commit()
            self._bytes = self._times = 0


async def _take_out_what_changed(source: Reading, target: Writing) -> None:
    after_sid = FIRST
    while sessions := await target.sessions(after_sid, _PAGE):
        for session in sessions:
            if await source.session(session.session_id) != session:
                await target.drop(session.sid)
        after_sid = sessions[-1].sid
    await target.commit()


async def _move_session(source: Reading, target: Writing, session: Session, moved: Moved) -> int:
    """How many bytes it took."""
    moved.sessions += 1
    if await target.session(session.session_id) is not None:
        moved.already_there += 1
        return 0
    size = len(session.card)
    async for rows in source.events(session.sid, -1):
        await target.put_events(session.sid, rows)
        moved.entries += sum(row[1] for row in rows)
        size += sum(len(row[5]) for row in rows)
    snapshot = None if session.snapshot_seq is None else await source.snapshot(session.sid)
    await target.put_session(session, snapshot)
    return size + len(snapshot or b"")


@contextmanager
def _naming(whose: str) -> Iterator[None]:
    """A file of SQLite's may hold any type in any column, and a database may not."""
    try:
        yield
    except Exception as problem:
        if not (isinstance(problem, _NOT_OURS) or str(getattr(problem, "sqlstate", ""))[:2] in ("22", "23")):
            raise
        raise CannotCopy(
            f"`{whose}` holds a value of another type than it should", hint="see what `tower journal verify` says of it"
        ) from problem
