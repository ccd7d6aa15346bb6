"""Moves a store: sessions in the order of their `sid`, then receipts, the registry and secrets. Commits come between sessions, so
that a copy that was killed goes on where it was: a session that is in the target is whole.

One that changed in the source since, or is not there any more, is taken out and copied again.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS
from switchtower.stores.copying.ports import REGISTRY, TransferError, StoreSource, SessionRow, StoreTarget
from switchtower.stores.verifying import ReportProgress

FIRST = -(2**63)
"""Before every `sid`."""
_PAGE = 100
_COMMIT_BYTES = 8 * 1_048_576
_COMMIT_SESSIONS = 100
_NOT_OURS = (TypeError, ValueError, OverflowError, sqlite3.IntegrityError, sqlite3.InterfaceError)
"""What a value of another type ends in, besides the database's own classes 22 and 23: bad data, broken constraints."""


class TransferResult(Struct):
    sessions: int = 0
    already_there: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    secrets: int = 0


async def copy_store(source: StoreSource, target: StoreTarget, progress: ReportProgress = lambda *_: None) -> TransferResult:
    """Raises `CannotCopy`, `looking.CannotLook`, or what the target's disk or database did."""
    moved = await copy_journal(source, target, progress)
    moved.records = await copy_registry(source, target)
    secrets = await source.read_secrets()
    await target.put_secrets(secrets)
    await target.commit()
    moved.secrets = len(secrets)
    return moved


async def copy_journal(source: StoreSource, target: StoreTarget, progress: ReportProgress = lambda *_: None) -> TransferResult:
    moved = TransferResult()
    commits = _CommitBatcher(target)
    await _delete_changed_sessions(source, target)
    total = await source.count_sessions()
    after_sid = FIRST
    while sessions := await source.read_sessions(after_sid, _PAGE):
        for session in sessions:
            with _name_session_in_errors(session.session_id):
                await commits.add(await _copy_session(source, target, session, moved))
            progress("sessions", moved.sessions, max(total, moved.sessions))
        after_sid = sessions[-1].sid
    await target.clear_receipts()
    with _name_session_in_errors("a receipt"):
        async for receipts in source.read_receipts():
            await target.put_receipts(receipts)
            moved.receipts += len(receipts)
            await commits.add(sum(len(receipt[3]) for receipt in receipts))
            progress("receipts", moved.receipts, moved.receipts)
    await _copy_chain(source, target, SESSIONS)
    await target.commit()
    return moved


async def copy_registry(source: StoreSource, target: StoreTarget) -> int:
    """How many rows of users, logins, hosts and hubs."""
    moved = 0
    await target.clear_records()
    for table in REGISTRY:
        with _name_session_in_errors(table):
            async for records in source.read_records(table):
                await target.put_records(table, records)
                moved += len(records)
    await _copy_chain(source, target, ACCOUNTS)
    await target.commit()
    return moved


async def _copy_chain(source: StoreSource, target: StoreTarget, chain: str) -> None:
    """The audit is copied as it is, with what it has of sessions that were deleted."""
    await target.clear_chain(chain)
    with _name_session_in_errors("the audit"):
        async for links in source.read_links(chain):
            await target.put_links(chain, links)
        if (head := await source.read_chain_head(chain)) is not None:
            await target.put_chain_head(chain, *head)


class _CommitBatcher:
    """One now and then: not for each session, and not only at the end."""

    def __init__(self, target: StoreTarget) -> None:
        self._target = target
        self._bytes = self._times = 0

    async def add(self, size: int) -> None:
        self._bytes += size
        self._times += 1
        if self._bytes >= _COMMIT_BYTES or self._times >= _COMMIT_SESSIONS:
            await self._target.commit()
            self._bytes = self._times = 0


async def _delete_changed_sessions(source: StoreSource, target: StoreTarget) -> None:
    after_sid = FIRST
    while sessions := await target.read_sessions(after_sid, _PAGE):
        for session in sessions:
            if await source.find_session(session.session_id) != session:
                await target.delete_session(session.sid)
        after_sid = sessions[-1].sid
    await target.commit()


async def _copy_session(source: StoreSource, target: StoreTarget, session: SessionRow, moved: TransferResult) -> int:
    """How many bytes it took."""
    moved.sessions += 1
    if await target.find_session(session.session_id) is not None:
        moved.already_there += 1
        return 0
    size = len(session.card)
    async for rows in source.read_events(session.sid, -1):
        await target.put_events(session.sid, rows)
        moved.entries += sum(row[1] for row in rows)
        size += sum(len(row[5]) for row in rows)
    snapshot = None if session.snapshot_seq is None else await source.read_snapshot(session.sid)
    await target.put_session(session, snapshot)
    return size + len(snapshot or b"")


@contextmanager
def _name_session_in_errors(whose: str) -> Iterator[None]:
    """A file of SQLite's may hold any type in any column, and a database may not."""
    try:
        yield
    except Exception as problem:
        if not (isinstance(problem, _NOT_OURS) or str(getattr(problem, "sqlstate", ""))[:2] in ("22", "23")):
            raise
        raise TransferError(
            f"`{whose}` holds a value of another type than it should", hint="see what `tower journal verify` says of it"
        ) from problem
