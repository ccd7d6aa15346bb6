"""Deliveries over WebSockets: as over the Unix socket, engine and commit included."""

from collections.abc import Iterator

from bench import commits
from bench.row import Row, compare
from bench.setting import Setting

BASELINE = "bare picows sending each event to each socket"
SUBSCRIBERS, DELTAS = 200, 5_000


def measure(setting: Setting) -> Iterator[Row]:
    name = f"deliveries to {SUBSCRIBERS} WebSockets"
    deltas = setting.amount(DELTAS)
    batches: list[int] = []
    arguments = {"subscribers": SUBSCRIBERS, "order": f"stream {deltas}", "deltas": deltas}
    with setting.subject() as server:
        endpoints = server.endpoints()

        def ours() -> float:
            nonlocal batches
            found = setting.load("fanout", http=endpoints["http"], token=endpoints["token"], **arguments)
            path = setting.path("report.json")
            setting.load("report", socket=server.socket, report_path=str(path))
            batches = [commit.deltas for commit in commits.streaming(commits.read(path))]
            return float(found["deliveries_per_second"])

        def bare() -> float:
            port = setting.path("port")
            with setting.baseline("websocket", port_file=str(port), batches=[*batches[:-1], batches[-1] + 1]):
                found = setting.load("fanout", http=f"http://127.0.0.1:{port.read_text()}", **arguments)
            return float(found["deliveries_per_second"])

        figures = setting.alternate(name, ours, bare)
    yield compare("websocket", name, "/s", *figures, BASELINE)
