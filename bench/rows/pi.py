"""The pi protocol: commands over WebSockets against a bare echo of the same frames, new sessions, a prompt's stream, and what
an idle connection costs."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench import processes
from bench.row import Row, compare
from bench.setting import BenchContext

ECHO = "bare picows sending the same four frames for each command"
NO_LIMITS = {
    "TOWER_PI": "127.0.0.1:0",
    "TOWER_PI_SESSION_RATE": "0",
    "TOWER_PI_CLIENT_RATE": "0",
    "TOWER_PI_MAX_SESSIONS": "100000",
}
INFO = (
    '{"sessionId":"sess_01M7H87BCHAT9MESSQGYJ6PPSA","sessionFile":"/root/.pi/agent/sessions/switchtower/'
    'sess_01M7H87BCHAT9MESSQGYJ6PPSA.jsonl","model":{"id":"demo","name":"demo","api":"demo","provider":"demo","baseUrl":"",'
    '"reasoning":true,"input":["text","image"],"cost":{"input":0.0,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0},'
    '"contextWindow":128000,"maxTokens":16384},"thinkingLevel":"off","isStreaming":false,"messageCount":0,'
    '"createdAt":"2026-11-16T04:00:42.897Z"}'
)
SHAPES = (("1 connection, sequential", 1, 1), ("1 connection, 100 in flight", 1, 100), ("20 connections, 5 in flight", 20, 5))
DELTAS = 3_000


def measure(setting: BenchContext) -> Iterator[Row]:
    seconds = 0.3 if setting.quick else 1.0
    yield from _measure_commands(setting, "list_sessions", f'{{"sessions":[{INFO}]}}', seconds)
    yield from _measure_commands(setting, "get_state", INFO, seconds)
    yield from _measure_idle(setting, seconds)
    yield from _measure_new_sessions(setting, seconds)
    yield from _measure_streams(setting)
    yield from _measure_startup(setting)


def _measure_commands(setting: BenchContext, type_: str, data: str, seconds: float) -> Iterator[Row]:
    port = setting.make_path("port")
    with setting.start_daemon_under_test(**NO_LIMITS) as ours, setting.start_baseline("pi_echo", port_file=str(port), data=data):
        arguments = {"type_": type_, "seconds": seconds, "cwd": str(setting.folder)}
        load = partial(_load, setting, ours.read_endpoints()["pi"])
        load(**arguments, connections=1, in_flight=1)  # a session to list
        bare_url = f"ws://127.0.0.1:{port.read_text()}"
        for title, connections, in_flight in SHAPES:
            name = f"pi {type_}, {title}"
            shape = {"connections": connections, "in_flight": in_flight}
            cpu = ours.measure_cpu_seconds()
            asked = 0.0

            def measured(shape: dict[str, int] = shape) -> float:
                nonlocal asked
                rate = float(load(**arguments, **shape))
                asked += rate * seconds
                return rate

            def bare(shape: dict[str, int] = shape) -> float:
                return float(_load(setting, bare_url, **arguments, **shape))

            figures = setting.alternate_rounds(name, measured, bare)
            spent = {"cpu_us_per_command": round((ours.measure_cpu_seconds() - cpu) / max(asked, 1.0) * 1e6, 1)}
            yield compare("pi", name, "/s", *figures, ECHO, at_least=0.25, detail=spent)


def _load(setting: BenchContext, url: str, **arguments: Any) -> Any:
    return setting.run_load("pi", url=url, **arguments)


def _measure_idle(setting: BenchContext, seconds: float) -> Iterator[Row]:
    """What 500 silent connections cost one that works; the baseline is ours without them."""
    shape = {"type_": "list_sessions", "connections": 1, "in_flight": 100, "seconds": seconds, "cwd": str(setting.folder)}
    with setting.start_daemon_under_test(**NO_LIMITS) as server:
        url = server.read_endpoints()["pi"]
        for title, query in (("each told of every command", ""), ("that opted out", "?lifecycle=off")):
            name = f"pi list_sessions beside 500 idle connections {title}"
            figures = setting.alternate_rounds(
                name,
                lambda query=query: float(setting.run_load("pi", url=url, idle=500, query=query, **shape)),
                lambda query=query: float(setting.run_load("pi", url=url, query=query, **shape)),
            )
            yield compare("pi", name, "/s", *figures, "the same without idle connections")


def _measure_new_sessions(setting: BenchContext, seconds: float) -> Iterator[Row]:
    port = setting.make_path("port")
    data = f'{{"sessionId":"sess_01M7H87BCHAT9MESSQGYJ6PPSA","sessionInfo":{INFO}}}'
    arguments = {"type_": "create_session", "connections": 1, "in_flight": 1, "seconds": seconds, "cwd": str(setting.folder)}
    with setting.start_daemon_under_test(**NO_LIMITS) as ours, setting.start_baseline("pi_echo", port_file=str(port), data=data):
        url = ours.read_endpoints()["pi"]
        figures = setting.alternate_rounds(
            "pi create_session, sequential",
            lambda: float(setting.run_load("pi", url=url, **arguments)),
            lambda: float(setting.run_load("pi", url=f"ws://127.0.0.1:{port.read_text()}", **arguments)),
        )
    yield compare("pi", "pi create_session, sequential", "/s", *figures, ECHO)


def _measure_streams(setting: BenchContext) -> Iterator[Row]:
    deltas = setting.scale_amount(DELTAS)
    arguments = {"order": f"stream {deltas}", "deltas": deltas, "cwd": str(setting.folder)}
    for subscribers in (1, 20):
        name = f"pi prompt streaming to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
        found: dict[str, Any] = {}
        with setting.start_daemon_under_test(**NO_LIMITS) as server:
            endpoints = server.read_endpoints()

            def ours(url: str = endpoints["pi"], subscribers: int = subscribers, found: dict[str, Any] = found) -> float:
                found.update(setting.run_load("pi", url=url, subscribers=subscribers, **arguments))
                return float(found["updates_per_second"])

            def push(endpoints: dict[str, Any] = endpoints, subscribers: int = subscribers) -> float:
                ready = {"http": endpoints["http"], "token": endpoints["token"]}
                order = {"order": arguments["order"], "deltas": deltas}
                return float(setting.run_load("fanout", subscribers=subscribers, **order, **ready)["deliveries_per_second"])

            figures = setting.alternate_rounds(name, ours, push)
        detail = {"bytes_per_subscriber": found["bytes"], "tokens": deltas}
        yield compare("pi", name, "/s", *figures, "the same stream over push's WebSocket", detail=detail)


def _measure_startup(setting: BenchContext) -> Iterator[Row]:
    """From starting `pi-server` to its first line, as an existing client waits for it."""

    def ours() -> float:
        environment = {"TOWER_HOME": str(setting.make_path("home")), "TOWER_HTTP": "127.0.0.1:0", "TOWER_PI": "127.0.0.1:0"}
        program = "from switchtower.cli.main import pi_server; raise SystemExit(pi_server())"
        return processes.measure_first_line(["-c", program], environment) * 1_000

    def bare() -> float:
        began = time.perf_counter()
        processes.ask(["-c", "import uvloop, msgspec, asyncio; print('1')"])
        return (time.perf_counter() - began) * 1_000

    figures = setting.alternate_rounds("pi-server to server_ready", ours, bare, unit=" ms")
    yield compare("pi", "pi-server to server_ready", "ms", *figures, "bare Python importing uvloop and msgspec")
