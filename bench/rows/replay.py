"""Replay: a client attaches at the beginning of a long session and is sent all of it."""

from collections.abc import Iterator

from bench import stored, wire
from bench.row import Row, compare
from bench.setting import Setting

BASELINE = "bare SELECT of ready-made frames, 500 a page, + socket write"
EVENTS = 100_000


def measure(setting: Setting) -> Iterator[Row]:
    events = setting.amount(EVENTS)
    name = f"replay of {events:,} events"
    home = setting.path("home")
    setting.say("replay: writing the session")
    stored.with_events(home, events)
    variables = {"TOWER_RETENTION_ENTRIES": "0"}
    with (
        setting.daemon(home, **variables) as ours,
        setting.baseline("replay", journal=str(setting.path("frames.db")), events=events) as bare,
    ):
        arguments = {"session_id": wire.SESSION_ID, "events": events}
        figures = setting.alternate(
            name,
            lambda: setting.load("replay", socket=ours.socket, **arguments),
            lambda: setting.load("replay", socket=bare.socket, **arguments),
        )
    yield compare("replay", name, "events/s", *figures, BASELINE, at_least=0.5)
