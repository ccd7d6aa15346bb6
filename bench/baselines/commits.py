"""Bare SQLite: repeats the daemon's own commits, the same rows in the same batches into the same tables, with nothing around it.

The file is opened with the journal's own pragmas. `executemany` inside one transaction: with a single thread it is as quick
as anything.
"""

import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.baselines import tables
from bench.commits import Commit, ReplayPlan
from switchtower.stores import packed_rows
from switchtower.stores.sqlite import database

_EVENTS = "INSERT INTO events (sid, seq, ts_ms, run_id, kind, data) VALUES (?, ?, ?, ?, ?, ?)"
_SESSIONS = (
    "INSERT INTO sessions (sid, session_id, epoch, state, created_at_ms, updated_at_ms, card) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_Rows = list[tuple[Any, ...]]


def _read_rows(source: sqlite3.Connection, commit: Commit) -> tuple[_Rows, _Rows]:
    events: _Rows = []
    sessions: _Rows = []
    for stretch in commit.stretches:
        stored = source.execute(
            "SELECT seq, count, ts_ms, run_id, kind, data FROM events WHERE sid = ? AND seq >= ? ORDER BY seq",
            (stretch.sid, stretch.first_seq),
        )
        events += [(stretch.sid, *entry) for entry in packed_rows.unpack(stored, stretch.first_seq - 1, stretch.count)]
        if commit.sessions and stretch.first_seq == 1:
            sessions += source.execute(
                "SELECT sid, session_id, epoch, state, created_at_ms, updated_at_ms, card FROM sessions WHERE sid = ?",
                (stretch.sid,),
            )
    return events, sessions


def main(plan: ReplayPlan) -> list[int]:
    """When each commit was on the disk."""
    source = database.open_for_reading(Path(plan.source))
    batches = [_read_rows(source, commit) for commit in plan.commits]
    target = database.open_for_writing(Path(plan.target))
    tables.make(target)
    at_ns = []
    for events, sessions in batches:
        target.execute("BEGIN")
        if sessions:
            target.executemany(_SESSIONS, sessions)
        target.executemany(_EVENTS, events)
        target.execute("COMMIT")
        at_ns.append(time.monotonic_ns())
    return at_ns


if __name__ == "__main__":
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ReplayPlan)
    sys.stdout.buffer.write(msgspec.json.encode(main(plan)))
