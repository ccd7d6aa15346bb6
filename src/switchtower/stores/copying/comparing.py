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
from switchtower.stores.copying.ports import REGISTRY, SECRET_FILES, Reading, Session
from switchtower.stores.verifying import Progress

MOST_TOLD = 100
_PAGE = 100


class Compared(Struct):
    sessions: int = 0
    entries: int = 0
    receipts: int = 0
    records: int = 0
    differences: list[str] = []
    """Each with the session, or the table, that it is about."""
    more_differences: int = 0

    @property
    def same(self) -> bool:
        return not self.differences

    def add(self, what: str) -> None:
        if len(self.differences) < MOST_TOLD:
            self.differences.append(what)
        else:
            self.more_differences += 1


async def compare(
    source: Reading, target: Reading, progress: Progress = lambda *_: None, *, registry: bool = True, secrets: bool = True
) -> Compared:
    compared = Compared()
    await _sessions(source, target, compared, progress)
    await _strangers(source, target, compared)
    compared.receipts = await _as_sets("receipts", source.receipts(), target.receipts(), compared)
    await _as_sets("the audit of sessions", source.links(SESSIONS), target.links(SESSIONS), compared)
    if registry:
        for table in REGISTRY:
            compared.records += await _as_sets(table, source.records(table), target.records(table), compared)
        await _as_sets("the audit of accounts", source.links(ACCOUNTS), target.links(ACCOUNTS), compared)
    if secrets:
        ours, theirs = await source.secrets(), await target.secrets()
        for name in SECRET_FILES:
            if name in ours and ours[name] != theirs.get(name):
                compared.add(f"{name}: it is another one")
    return compared


async def _sessions(source: Reading, target: Reading, compared: Compared, progress: Progress) -> None:
    total = await source.count()
    after_sid = FIRST
    while sessions := await source.sessions(after_sid, _PAGE):
        for session in sessions:
            compared.sessions += 1
            other = await target.session(session.session_id)
            if other is None:
                compared.add(f"{session.session_id}: it is missing")
            else:
                try:
                    await _session(source, target, session, other, compared)
                except (TypeError, AttributeError, ValueError):
                    compared.add(f"{session.session_id}: it holds values of other types than it should")
            progress("sessions compared", compared.sessions, max(total, compared.sessions))
        after_sid = sessions[-1].sid


async def _session(source: Reading, target: Reading, ours: Session, theirs: Session, compared: Compared) -> None:
    differing = [name for name in Session.__struct_fields__ if name != "sid" and getattr(ours, name) != getattr(theirs, name)]
    if differing:
        compared.add(f"{ours.session_id}: {', '.join(differing)} differ")
    if await source.snapshot(ours.sid) != await target.snapshot(theirs.sid):
        compared.add(f"{ours.session_id}: its snapshot differs")
    (count, digest), (their_count, their_digest) = (
        await _digest(source.events(ours.sid, -1)),
        await _digest(target.events(theirs.sid, -1)),
    )
    compared.entries += count
    if count != their_count:
        compared.add(f"{ours.session_id}: it has {their_count:,} entries and not {count:,}")
    elif digest != their_digest:
        compared.add(f"{ours.session_id}: its entries differ")


async def _digest(pages: AsyncIterator[list[strips.Row]]) -> tuple[int, bytes]:
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


async def _strangers(source: Reading, target: Reading, compared: Compared) -> None:
    after_sid = FIRST
    while sessions := await target.sessions(after_sid, _PAGE):
        for session in sessions:
            if await source.session(session.session_id) is None:
                compared.add(f"{session.session_id}: it is there and should not be")
        after_sid = sessions[-1].sid


async def _as_sets(name: str, ours: AsyncIterator[list[Any]], theirs: AsyncIterator[list[Any]], compared: Compared) -> int:
    (count, total), (their_count, their_total) = await _sum(ours), await _sum(theirs)
    if count != their_count:
        compared.add(f"{name}: there are {their_count:,} and not {count:,}")
    elif total != their_total:
        compared.add(f"{name}: they differ")
    return count


async def _sum(pages: AsyncIterator[list[Any]]) -> tuple[int, int]:
    """The digests of the rows added up: the same in any order."""
    count = total = 0
    async for rows in pages:
        count += len(rows)
        total += sum(_digests(rows))
    return count, total % 2**256


def _digests(rows: Iterable[Any]) -> Iterable[int]:
    return (int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(tuple(row))).digest()) for row in rows)
