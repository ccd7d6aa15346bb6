"""The daemon under test: the real one, composed by its own `app`, with two parts exchanged for the bench.

Its engine streams text as fast as it is allowed to, so that no model's cost is in a figure, and through the same desk as
any engine. And each commit is noted (when, and which events), so that a baseline can repeat exactly those commits; of a node on
PostgreSQL, each append. The engine takes its orders as messages, and `report FILE` writes down what was noted.
"""

import asyncio
import random
import sqlite3
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from bench.commits import Commit, EventRange, Report
from switchtower import config
from switchtower.core import events
from switchtower.core.ports import engine, journal
from switchtower.daemon import agent_parts, app
from switchtower.stores.sqlite.batch import SqliteBatch

TEXT = "lorem "
_EVENT_WIDTH = 7
_SESSION_WIDTH = 8

_Noted = tuple[int, list[int], list[int], list[int], int, int]
_commits: list[_Noted] = []
_appends: list[tuple[int, int, int, int]] = []
_emitted_ns: list[int] = []


class BurstEngine:
    """Orders: `stream N`; `burst N` and `each N`, which wait for the next report's starting shot; `paced N MICROSECONDS`, and
    `random N MICROSECONDS` with pauses of that length on average, so that sessions do not fall into step."""

    def __init__(self, *parts: object) -> None:
        self._start = asyncio.Event()
        self._at_work = 0
        self._all_done = asyncio.Event()

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        match task.messages[-1].text.split():
            case ["report", path]:
                await self._report(Path(path))
            case [("burst" | "each") as order, count]:
                await self._start_together(order, int(count), context)
            case ["stream", count]:
                await _stream(int(count), context)
            case ["paced", count, pause_us]:
                await _emit_paced([int(pause_us) / 1e6] * int(count), context)
            case ["random", count, pause_us]:
                await _emit_paced([random.expovariate(1e6 / int(pause_us)) for _ in range(int(count))], context)
            case unknown:
                raise ValueError(f"no such order: {unknown}")
        return engine.RunResult(events.Outcome.SUCCESS, "done")

    async def _start_together(self, order: str, count: int, context: engine.RunContext) -> None:
        self._at_work += 1
        self._all_done.clear()
        await self._start.wait()
        await (_stream(count, context) if order == "burst" else _emit_each(count, context))
        await context.flush()
        self._at_work -= 1
        if not self._at_work:
            self._start.clear()
            self._all_done.set()

    async def _report(self, path: Path) -> None:
        if self._at_work:
            self._start.set()
            await self._all_done.wait()
        noted = [_commit(*commit) for commit in _commits] + [_append(*append) for append in _appends]
        path.write_bytes(msgspec.json.encode(Report(commits=noted, emitted_ns=_emitted_ns)))
        _commits.clear()
        _appends.clear()
        _emitted_ns.clear()


async def _stream(count: int, context: engine.RunContext) -> None:
    delta = events.TextDelta(TEXT)
    for _ in range(count):
        await context.emit(delta)


async def _emit_each(count: int, context: engine.RunContext) -> None:
    """One in flight: the next is said when the last is on the disk."""
    delta = events.TextDelta(TEXT)
    for _ in range(count):
        await context.emit(delta)
        await context.flush()


async def _emit_paced(pauses: list[float], context: engine.RunContext) -> None:
    delta = events.TextDelta(TEXT)
    for pause in pauses:
        await asyncio.sleep(pause)
        _emitted_ns.append(time.monotonic_ns())
        await context.emit(delta)
        await context.flush()


def _commit(at_ns: int, sids: list[int], seqs: list[int], counts: list[int], deltas: int, sessions: int) -> Commit:
    stretches = []
    for sid, grouped in groupby(range(len(sids)), key=sids.__getitem__):
        places = list(grouped)
        first = places[0]
        stretches.append(EventRange(sid, seqs[first] - counts[first] + 1, sum(counts[place] for place in places)))
    return Commit(at_ns, stretches, deltas, sessions)


def _append(at_ns: int, last_seq: int, count: int, deltas: int) -> Commit:
    return Commit(at_ns, [EventRange(0, last_seq - count + 1, count)], deltas, int(last_seq == count))


def _note_appends() -> None:
    from switchtower.stores.postgres.journal import PostgresJournal

    append = PostgresJournal.append

    def noted(store: PostgresJournal, wanted: journal.Append) -> asyncio.Future[None]:
        stored = append(store, wanted)
        if entries := wanted.entries:
            deltas = sum(entry.kind == events.TextDelta.kind for entry in entries)
            place = entries[-1].seq, len(entries), deltas

            def note(done: asyncio.Future[None]) -> None:
                if not done.cancelled() and done.exception() is None:
                    _appends.append((time.monotonic_ns(), *place))

            stored.add_done_callback(note)
        return stored

    PostgresJournal.append = noted  # type: ignore[method-assign]


def _note_commits() -> None:
    write = SqliteBatch.write

    def noted(group: SqliteBatch, connection: sqlite3.Connection) -> None:
        values: list[Any] = group._events
        write(group, connection)
        _commits.append(
            (
                time.monotonic_ns(),
                values[::_EVENT_WIDTH],
                values[1::_EVENT_WIDTH],
                values[2::_EVENT_WIDTH],
                sum(
                    count
                    for count, kind in zip(values[2::_EVENT_WIDTH], values[5::_EVENT_WIDTH], strict=True)
                    if kind == events.TextDelta.kind
                ),
                len(group._sessions) // _SESSION_WIDTH,
            )
        )

    SqliteBatch.write = noted  # type: ignore[method-assign,assignment]


def main() -> None:
    settings = config.load()
    if settings.store is None:
        _note_commits()
    else:
        _note_appends()
    agent_parts.AgentEngine = BurstEngine  # type: ignore[attr-defined,assignment]
    app.run_daemon(settings)


if __name__ == "__main__":
    main()
