"""Pings over the socket: what a request costs that needs no session."""

from collections.abc import Iterator
from functools import partial

from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "uvloop protocol that decodes and encodes the same frames with msgspec"


def measure(setting: BenchContext) -> Iterator[Row]:
    seconds = 0.3 if setting.quick else 1.0
    with setting.start_daemon_under_test() as ours, setting.start_baseline("echo") as bare:
        for title, in_flight, target in (("100 in flight", 100, 0.5), ("sequential", 1, 0.6)):
            name = f"ping, {title}"
            arguments = {"in_flight": in_flight, "seconds": seconds}
            figures = setting.alternate_rounds(
                name,
                partial(setting.run_load, "ping", socket=ours.socket, **arguments),
                partial(setting.run_load, "ping", socket=bare.socket, **arguments),
            )
            yield compare("ping", name, "/s", *figures, BASELINE, at_least=target)
