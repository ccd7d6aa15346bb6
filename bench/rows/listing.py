"""Whether 10,000 stored sessions slow anything down: the list of sessions, and the start."""

from collections.abc import Iterator

from bench import stored
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "the same with 10 stored sessions"
FEW, MANY = 10, 10_000
FLAT = 1.25


def measure(setting: BenchContext) -> Iterator[Row]:
    few, many = setting.make_path("home"), setting.make_path("home")
    setting.print_progress(f"listing: writing {MANY:,} sessions")
    stored.write_sessions(few, FEW)
    stored.write_sessions(many, MANY)
    arguments = {"limit": FEW, "count": setting.scale_amount(1_000)}
    name = "list_sessions with 10,000 stored"
    with setting.start_daemon(many) as of_many, setting.start_daemon(few) as of_few:
        figures = setting.alternate_rounds(
            name,
            lambda: setting.run_load("listing", socket=of_many.socket, **arguments),
            lambda: setting.run_load("listing", socket=of_few.socket, **arguments),
            unit=" µs",
        )
    yield compare("listing", name, "µs", *figures, BASELINE, at_most=FLAT)

    def start(home: str) -> float:
        with setting.start_daemon(many if home == "many" else few) as server:
            return server.seconds_to_listening * 1_000

    name = "start with 10,000 stored sessions"
    figures = setting.alternate_rounds(name, lambda: start("many"), lambda: start("few"), unit=" ms")
    yield compare("listing", name, "ms", *figures, BASELINE, at_most=FLAT)
