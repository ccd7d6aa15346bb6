"""MiniCodex: from `hello` to the snapshot of a short and of a long session, and a stream to many sockets."""

from collections.abc import Iterator
from typing import Any

from bench import commits
from bench.row import Row, compare
from bench.setting import BenchContext

READY_MADE = "bare picows sending a ready-made text of the same size"
BROADCAST = "bare picows sending each event to each socket"
SUBSCRIBERS, DELTAS = 200, 5_000


def measure(setting: BenchContext) -> Iterator[Row]:
    for events in (10, 10_000):
        yield _measure_greeting(setting, events)
    yield _measure_fanout(setting)


def _measure_greeting(setting: BenchContext, events: int) -> Row:
    name = f"MiniCodex hello to snapshot, {events:,} events"
    found: dict[str, Any] = {"bytes": 0}
    with setting.start_daemon_under_test() as server:
        endpoints = server.read_endpoints()
        door = {"http": endpoints["http"], "token": endpoints["token"], "cwd": str(setting.folder)}

        def ours() -> float:
            found.update(setting.run_load("minicodex", order=f"stream {events}", times=20, **door))
            return float(found["ms"])

        def bare() -> float:
            port = setting.make_path("port")
            with setting.start_baseline("ready_made", port_file=str(port), size=found["bytes"]):
                return float(setting.run_load("answers", url=f"http://127.0.0.1:{port.read_text()}", times=20))

        figures = setting.alternate_rounds(name, ours, bare, unit=" ms")
    return compare("minicodex", name, "ms", *figures, READY_MADE, detail={"bytes": found["bytes"]})


def _measure_fanout(setting: BenchContext) -> Row:
    name = f"MiniCodex deliveries to {SUBSCRIBERS} WebSockets"
    deltas = setting.scale_amount(DELTAS)
    order = {"order": f"stream {deltas}", "deltas": deltas, "subscribers": SUBSCRIBERS}
    batches: list[int] = []
    with setting.start_daemon_under_test() as server:
        endpoints = server.read_endpoints()
        door = {"http": endpoints["http"], "token": endpoints["token"], "cwd": str(setting.folder)}

        def ours() -> float:
            nonlocal batches
            found = setting.run_load("minicodex", **order, **door)
            path = setting.make_path("report.json")
            setting.run_load("report", socket=server.socket, report_path=str(path))
            batches = [commit.deltas for commit in commits.select_streaming(commits.read(path))]
            return float(found["deliveries_per_second"])

        def bare() -> float:
            port = setting.make_path("port")
            with setting.start_baseline("websocket", port_file=str(port), batches=[*batches[:-1], batches[-1] + 1]):
                found = setting.run_load("fanout", http=f"http://127.0.0.1:{port.read_text()}", **order)
            return float(found["deliveries_per_second"])

        figures = setting.alternate_rounds(name, ours, bare)
    return compare("minicodex", name, "/s", *figures, BROADCAST, at_least=0.5)
