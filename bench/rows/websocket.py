"""Deliveries over WebSockets: as over the Unix socket, engine and commit included."""

from collections.abc import Iterator

from bench import commits
from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "bare picows sending each event to each socket"
SUBSCRIBERS, DELTAS = 200, 5_000


def measure(setting: BenchContext) -> Iterator[Row]:
    name = f"deliveries to {SUBSCRIBERS} WebSockets"
    deltas = setting.scale_amount(DELTAS)
    batches: list[int] = []
    arguments = {"subscribers": SUBSCRIBERS, "order": f"stream {deltas}", "deltas": deltas}
    with setting.start_daemon_under_test() as server:
        endpoints = server.read_endpoints()

        def ours() -> float:
            nonlocal batches
            found = setting.run_load("fanout", http=endpoints["http"], token=endpoints["token"], **arguments)
            path = setting.make_path("report.json")
            setting.run_load("report", socket=server.socket, report_path=str(path))
            batches = [commit.deltas for commit in commits.select_streaming(commits.read(path))]
            return float(found["deliveries_per_second"])

        def bare() -> float:
            port = setting.make_path("port")
            with setting.start_baseline("websocket", port_file=str(port), batches=[*batches[:-1], batches[-1] + 1]):
                found = setting.run_load("fanout", http=f"http://127.0.0.1:{port.read_text()}", **arguments)
            return float(found["deliveries_per_second"])

        figures = setting.alternate_rounds(name, ours, bare)
    yield compare("websocket", name, "/s", *figures, BASELINE)
