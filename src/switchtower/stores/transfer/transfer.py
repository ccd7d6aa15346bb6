"""Copies a store: sessions in the order of their `sid`, then receipts, the registry and secrets; and compares two stores, each
session with a digest of its entries, receipts, users, logins and hosts.

Commits come between sessions, so that a copy that was killed can be resumed: a session that exists in the target is complete.
A session that has changed in the source since, or no longer exists there, is removed and copied again. The comparison only
reads, and ignores how entries are packed into rows and the order of unordered rows.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.stores import packed_rows
from switchtower.stores.audit import ACCOUNTS, SESSIONS
from switchtower.stores.transfer.ports import REGISTRY, SECRET_FILES, SessionRow, StoreSource, StoreTarget, TransferError
from switchtower.stores.verification import ReportProgress

FIRST = -(2**63)
"""A value before every `sid`."""
_PAGE = 100
_COMMIT_BYTES = 8 * 1_048_576
_COMMIT_SESSIONS = 100
_NOT_OURS = (TypeError, ValueError, OverflowError, sqlite3.IntegrityError, sqlite3.InterfaceError)
"""The errors that a value of another type causes, besides the database's own classes 22 and 23: bad data, violated
constraints.
"""


class TransferResult(Struct):
    sessions: int = 0
    already_there: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    secrets: int = 0


async def copy_store(source: StoreSource, target: StoreTarget, progress: ReportProgress = lambda *_: None) -> TransferResult:
    """Raises `TransferError`, `StoreUnreadable`, or an error of the target's disk or database."""
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
    """Returns the number of rows of users, logins, hosts and hubs."""
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
    """The audit is copied unchanged, including its links of deleted sessions."""
    await target.clear_chain(chain)
    with _name_session_in_errors("the audit"):
        async for links in source.read_links(chain):
            await target.put_links(chain, links)
        if (head := await source.read_chain_head(chain)) is not None:
            await target.put_chain_head(chain, *head)


class _CommitBatcher:
    """Commits at intervals: not for each session, and not only at the end."""

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
    """Returns the number of bytes."""
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
    """An SQLite file may hold any type in any column, and a database may not."""
    try:
        yield
    except Exception as problem:
        if not (isinstance(problem, _NOT_OURS) or str(getattr(problem, "sqlstate", ""))[:2] in ("22", "23")):
            raise
        raise TransferError(
            f"`{whose}` holds a value of another type than it should", hint="see what `tower journal verify` says of it"
        ) from problem


MAX_DIFFERENCES = 100
_COMPARE_PAGE = 100


class ComparisonResult(Struct):
    sessions: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    differences: list[str] = []
    """Each difference names its session or its table."""
    more_differences: int = 0

    @property
    def is_equal(self) -> bool:
        return not self.differences

    def add_difference(self, what: str) -> None:
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(what)
        else:
            self.more_differences += 1


async def compare_stores(
    source: StoreSource,
    target: StoreSource,
    progress: ReportProgress = lambda *_: None,
    *,
    registry: bool = True,
    secrets: bool = True,
) -> ComparisonResult:
    compared = ComparisonResult()
    await _compare_sessions(source, target, compared, progress)
    await _find_extra_sessions(source, target, compared)
    compared.receipts = await _compare_as_sets("receipts", source.read_receipts(), target.read_receipts(), compared)
    await _compare_as_sets("the audit of sessions", source.read_links(SESSIONS), target.read_links(SESSIONS), compared)
    if registry:
        for table in REGISTRY:
            compared.records += await _compare_as_sets(table, source.read_records(table), target.read_records(table), compared)
        await _compare_as_sets("the audit of accounts", source.read_links(ACCOUNTS), target.read_links(ACCOUNTS), compared)
    if secrets:
        ours, theirs = await source.read_secrets(), await target.read_secrets()
        for name in SECRET_FILES:
            if name in ours and ours[name] != theirs.get(name):
                compared.add_difference(f"{name}: it is another one")
    return compared


async def _compare_sessions(
    source: StoreSource, target: StoreSource, compared: ComparisonResult, progress: ReportProgress
) -> None:
    total = await source.count_sessions()
    after_sid = FIRST
    while sessions := await source.read_sessions(after_sid, _COMPARE_PAGE):
        for session in sessions:
            compared.sessions += 1
            other = await target.find_session(session.session_id)
            if other is None:
                compared.add_difference(f"{session.session_id}: it is missing")
            else:
                try:
                    await _compare_session(source, target, session, other, compared)
                except (TypeError, AttributeError, ValueError):
                    compared.add_difference(f"{session.session_id}: it holds values of other types than it should")
            progress("sessions compared", compared.sessions, max(total, compared.sessions))
        after_sid = sessions[-1].sid


async def _compare_session(
    source: StoreSource, target: StoreSource, ours: SessionRow, theirs: SessionRow, compared: ComparisonResult
) -> None:
    differing = [name for name in SessionRow.__struct_fields__ if name != "sid" and getattr(ours, name) != getattr(theirs, name)]
    if differing:
        compared.add_difference(f"{ours.session_id}: {', '.join(differing)} differ")
    if await source.read_snapshot(ours.sid) != await target.read_snapshot(theirs.sid):
        compared.add_difference(f"{ours.session_id}: its snapshot differs")
    (count, digest), (their_count, their_digest) = (
        await _digest_pages(source.read_events(ours.sid, -1)),
        await _digest_pages(target.read_events(theirs.sid, -1)),
    )
    compared.entries += count
    if count != their_count:
        compared.add_difference(f"{ours.session_id}: it has {their_count:,} entries and not {count:,}")
    elif digest != their_digest:
        compared.add_difference(f"{ours.session_id}: its entries differ")


async def _digest_pages(pages: AsyncIterator[list[packed_rows.PackedRow]]) -> tuple[int, bytes]:
    """Computes a digest over each entry: its seq, time, run, kind and data."""
    digest = hashlib.sha256()
    count = 0
    async for rows in pages:
        for last, entries, ts_ms, run_id, kind, data in rows:
            pieces = data.split(b"\n") if entries != 1 else [data]
            for seq, piece in enumerate(pieces, last - entries + 1):
                digest.update(f"{seq} {ts_ms} {run_id!r} {kind!r} {len(piece)} ".encode(errors="surrogatepass"))
                digest.update(piece)
            count += len(pieces)
    return count, digest.digest()


async def _find_extra_sessions(source: StoreSource, target: StoreSource, compared: ComparisonResult) -> None:
    after_sid = FIRST
    while sessions := await target.read_sessions(after_sid, _COMPARE_PAGE):
        for session in sessions:
            if await source.find_session(session.session_id) is None:
                compared.add_difference(f"{session.session_id}: it is there and should not be")
        after_sid = sessions[-1].sid


async def _compare_as_sets(
    name: str, ours: AsyncIterator[list[Any]], theirs: AsyncIterator[list[Any]], compared: ComparisonResult
) -> int:
    (count, total), (their_count, their_total) = await _sum_pages(ours), await _sum_pages(theirs)
    if count != their_count:
        compared.add_difference(f"{name}: there are {their_count:,} and not {count:,}")
    elif total != their_total:
        compared.add_difference(f"{name}: they differ")
    return count


async def _sum_pages(pages: AsyncIterator[list[Any]]) -> tuple[int, int]:
    """Returns the sum of the rows' digests: it is the same in any order."""
    count = total = 0
    async for rows in pages:
        count += len(rows)
        total += sum(_digest_rows(rows))
    return count, total % 2**256


def _digest_rows(rows: Iterable[Any]) -> Iterable[int]:
    return (int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(tuple(row))).digest()) for row in rows)
