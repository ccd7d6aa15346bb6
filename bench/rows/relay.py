"""Relay: a program's output to the journal, a host's events to the hub's, the drain of a spool, and a key there and back."""

from collections.abc import Iterator

from bench.processes import Server
from bench.row import Row, compare
from bench.setting import BenchContext

BARE_READER = "a bare asyncio reader of the same program in a terminal"
BARE_HUB = "bare picows that inserts each read's frames into SQLite as one durable batch, then acknowledges"
BARE_PTY = "the terminal alone"
MEGABYTES, EVENTS, SPOOL, KEYS = 40, 50_000, 100_000, 200


def measure(setting: BenchContext) -> Iterator[Row]:
    yield _measure_terminal(setting)
    yield _measure_durable(setting)
    yield _drain(setting)
    yield _echo(setting)


def _measure_terminal(setting: BenchContext) -> Row:
    name = "terminal output to the journal"
    megabytes = setting.scale_amount(MEGABYTES)
    with setting.start_daemon_under_test() as server:
        door = _get_address(server)

        def ours() -> float:
            found: float = setting.run_load("relay", what="flood", megabytes=megabytes, cwd=str(setting.folder), **door)
            return found

        def bare() -> float:
            found: float = setting.run_baseline("terminal", what="flood", megabytes=megabytes)
            return found

        figures = setting.alternate_rounds(name, ours, bare, unit=" MB/s")
        memory = server.measure_resident_mb()
    return compare("relay", name, "MB/s", *figures, BARE_READER, detail={"resident_mb": memory})


def _measure_durable(setting: BenchContext) -> Row:
    name = "host to hub, durable events"
    events = setting.scale_amount(EVENTS)

    def ours() -> float:
        with setting.start_daemon_under_test() as server:
            found: float = setting.run_load("relay", what="report", events=events, http=server.read_endpoints()["http"])
        return found

    def bare() -> float:
        port = setting.make_path("port")
        with setting.start_baseline("hub", port_file=str(port), journal=str(setting.make_path("bare.db"))):
            found: float = setting.run_load("relay", what="report", events=events, http=f"http://127.0.0.1:{port.read_text()}")
        return found

    return compare("relay", name, "/s", *setting.alternate_rounds(name, ours, bare), BARE_HUB)


def _drain(setting: BenchContext) -> Row:
    name = f"spool drain of {SPOOL:,} events"
    events = setting.scale_amount(SPOOL)

    def ours() -> float:
        # One port for all of it: the host dials it from the start, the hub comes when the spool is full.
        port = str(setting.run_load("relay", what="free_port"))
        host = setting.start_daemon_under_test(
            TOWER_HTTP="off", TOWER_PI="off", TOWER_HUB=f"http://127.0.0.1:{port}", TOWER_HEARTBEAT="1"
        )
        with host:
            setting.run_load("relay", what="fill", socket=host.socket, events=events, cwd=str(setting.folder))
            with setting.start_daemon_under_test(TOWER_HTTP=f"127.0.0.1:{port}", TOWER_PI="off") as hub:
                found: float = setting.run_load("relay", what="drained", events=events, **_get_address(hub))
        return found

    def bare() -> float:
        port = setting.make_path("port")
        with setting.start_baseline("hub", port_file=str(port), journal=str(setting.make_path("bare.db"))):
            found: float = setting.run_load("relay", what="report", events=events, http=f"http://127.0.0.1:{port.read_text()}")
        return found

    return compare("relay", name, "/s", *setting.alternate_rounds(name, ours, bare), BARE_HUB)


def _echo(setting: BenchContext) -> Row:
    name = "key to echo through hub and host"
    keys = setting.scale_amount(KEYS)
    with setting.start_daemon_under_test() as hub:
        door = _get_address(hub)
        with setting.start_daemon_under_test(
            TOWER_HTTP="off", TOWER_PI="off", TOWER_HUB=door["http"], TOWER_HOST_ID="bench-host"
        ):

            def ours() -> float:
                found: float = setting.run_load(
                    "relay", what="echo", keys=keys, host_id="bench-host", cwd=str(setting.folder), **door
                )
                return found

            def bare() -> float:
                found: float = setting.run_baseline("terminal", what="echo", keys=keys)
                return found

            figures = setting.alternate_rounds(name, ours, bare, unit=" ms")
    return compare("relay", name, "ms", *figures, BARE_PTY)


def _get_address(server: Server) -> dict[str, str]:
    endpoints = server.read_endpoints()
    return {"http": endpoints["http"], "token": endpoints["token"]}
