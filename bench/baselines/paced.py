"""Bare SQLite: one event a commit, with a pause before each; how long each commit took, in microseconds."""

import sys
import time
from pathlib import Path

import msgspec

from bench.baselines import tables
from switchtower.stores.sqlite import database


def main(target: str, count: int, pause_us: int) -> list[float]:
    connection = database.open_for_writing(Path(target))
    tables.make(connection)
    row = (int(time.time()), "run_01JCQ0000000000000000000000", "text.delta", b'{"text":"lorem "}')
    sid = time.time_ns()
    durations = []
    for seq in range(1, count + 1):
        time.sleep(pause_us / 1e6)
        began = time.monotonic_ns()
        connection.execute("INSERT INTO events (sid, seq, ts_ms, run_id, kind, data) VALUES (?, ?, ?, ?, ?, ?)", (sid, seq, *row))
        durations.append((time.monotonic_ns() - began) / 1_000)
    return durations


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(**msgspec.json.decode(sys.argv[1]))))
