"""Replay: a client attaches at the beginning of a long session and is sent all of it."""

from collections.abc import Iterator

from bench import stored, wire
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare SELECT of ready-made frames, 500 a page, + socket write"
EVENTS = 100_000


def measure(setting: BenchContext) -> Iterator[Row]:
    events = setting.scale_amount(EVENTS)
    name = f"replay of {events:,} events"
    home = setting.make_path("home")
    setting.print_progress("replay: writing the session")
    stored.write_long_session(home, events)
    variables = {"TOWER_RETENTION_ENTRIES": "0"}
    with (
        setting.start_daemon(home, **variables) as ours,
        setting.start_baseline("replay", journal=str(setting.make_path("frames.db")), events=events) as bare,
    ):
        arguments = {"session_id": wire.SESSION_ID, "events": events}
        figures = setting.alternate_rounds(
            name,
            lambda: setting.run_load("replay", socket=ours.socket, **arguments),
            lambda: setting.run_load("replay", socket=bare.socket, **arguments),
        )
    yield compare("replay", name, "events/s", *figures, BASELINE, at_least=0.5)
