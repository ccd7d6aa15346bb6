"""Relay: a program's output to the journal, a host's events to the hub's, the drain of a spool, and a key there and back."""

from collections.abc import Iterator
from typing import Any

from bench.row import Row, compare
from bench.setting import Setting

BARE_READER = "a bare asyncio reader of the same program in a terminal"
BARE_HUB = "bare picows that inserts each read's frames into SQLite as one durable batch, then acknowledges"
BARE_PTY = "the terminal alone"
MEGABYTES, EVENTS, SPOOL, KEYS = 40, 50_000, 100_000, 200


def measure(setting: Setting) -> Iterator[Row]:
    yield _terminal(setting)
    yield _durable(setting)
    yield _drain(setting)
    yield _echo(setting)


def _terminal(setting: Setting) -> Row:
    name = "terminal output to the journal"
    megabytes = setting.amount(MEGABYTES)
    with setting.subject() as server:
        door = _door(server)

        def ours() -> float:
            found: float = setting.load("relay", what="flood", megabytes=megabytes, cwd=str(setting.folder), **door)
            return found

        def bare() -> float:
            found: float = setting.bare("terminal", what="flood", megabytes=megabytes)
            return found

        figures = setting.alternate(name, ours, bare, unit=" MB/s")
        memory = server.resident_mb()
    return compare("relay", name, "MB/s", *figures, BARE_READER, detail={"resident_mb": memory})


def _durable(setting: Setting) -> Row:
    name = "host to hub, durable events"
    events = setting.amount(EVENTS)

    def ours() -> float:
        with setting.subject() as server:
            found: float = setting.load("relay", what="report", events=events, http=server.endpoints()["http"])
        return found

    def bare() -> float:
        port = setting.path("port")
        with setting.baseline("hub", port_file=str(port), journal=str(setting.path("bare.db"))):
            found: float = setting.load("relay", what="report", events=events, http=f"http://127.0.0.1:{port.read_text()}")
        return found

    return compare("relay", name, "/s", *setting.alternate(name, ours, bare), BARE_HUB)


def _drain(setting: Setting) -> Row:
    name = f"spool drain of {SPOOL:,} events"
    events = setting.amount(SPOOL)

    def ours() -> float:
        # One port for all of it: the host dials it from the start, the hub comes when the spool is full.
        port = str(setting.load("relay", what="free_port"))
        host = setting.subject(TOWER_HTTP="off", TOWER_PI="off", TOWER_HUB=f"http://127.0.0.1:{port}", TOWER_HEARTBEAT="1")
        with host:
            setting.load("relay", what="fill", socket=host.socket, events=events, cwd=str(setting.folder))
            with setting.subject(TOWER_HTTP=f"127.0.0.1:{port}", TOWER_PI="off") as hub:
                found: float = setting.load("relay", what="drained", events=events, **_door(hub))
        return found

    def bare() -> float:
        port = setting.path("port")
        with setting.baseline("hub", port_file=str(port), journal=str(setting.path("bare.db"))):
            found: float = setting.load("relay", what="report", events=events, http=f"http://127.0.0.1:{port.read_text()}")
        return found

    return compare("relay", name, "/s", *setting.alternate(name, ours, bare), BARE_HUB)


def _echo(setting: Setting) -> Row:
    name = "key to echo through hub and host"
    keys = setting.amount(KEYS)
    with setting.subject() as hub:
        door = _door(hub)
        with setting.subject(TOWER_HTTP="off", TOWER_PI="off", TOWER_HUB=door["http"], TOWER_HOST_ID="bench-host"):

            def ours() -> float:
                found: float = setting.load(
                    "relay", what="echo", keys=keys, host_id="bench-host", cwd=str(setting.folder), **door
                )
                return found

            def bare() -> float:
                found: float = setting.bare("terminal", what="echo", keys=keys)
                return found

            figures = setting.alternate(name, ours, bare, unit=" ms")
    return compare("relay", name, "ms", *figures, BARE_PTY)


def _door(server: Any) -> dict[str, str]:
    endpoints = server.endpoints()
    return {"http": endpoints["http"], "token": endpoints["token"]}
