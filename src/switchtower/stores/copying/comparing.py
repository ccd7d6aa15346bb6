"""Whether two stores hold the same: each session with a digest of its entries, receipts, users, logins and hosts. Reads only.

How entries are packed into rows plays no part, and neither does the order of what has none.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.stores import strips
from switchtower.stores.audit_chain import ACCOUNTS, SESSIONS
from switchtower.stores.copying.moving import FIRST
from switchtower.stores.copying.ports import REGISTRY, SECRET_FILES, StoreSource, SessionRow
from switchtower.stores.verifying import ReportProgress

MAX_DIFFERENCES = 100
_COMPARE_PAGE = 100


class ComparisonResult(Struct):
    sessions: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    differences: list[str] = []
    """Each with the session, or the table, that it is about."""
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


async def _digest_pages(pages: AsyncIterator[list[strips.PackedRow]]) -> tuple[int, bytes]:
    """Over each entry: its seq, time, run, kind and data."""
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
    """The digests of the rows added up: the same in any order."""
    count = total = 0
    async for rows in pages:
        count += len(rows)
        total += sum(_digest_rows(rows))
    return count, total % 2**256


def _digest_rows(rows: Iterable[Any]) -> Iterable[int]:
    return (int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(tuple(row))).digest()) for row in rows)
