"""`python -m bench.costs`: measures what the model of several nodes (`bench/model.py`) needs, and writes `bench/costs.json`.

CPU is what the kernel counted for a process while it did a known amount of work, so that a busy machine makes it last longer but
hardly dearer. Small amounts are not told apart from none: the kernel counts in hundredths of a second.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench import commits, docs, model, results, tower
from bench.model import COSTS, Costs, MeasuredCost
from bench.processes import Server
from bench.setting import BenchContext
from switchtower.testing import postgres_server as servers
from switchtower.testing.postgres_server import PostgresServer

SESSIONS = 64
CONNECTIONS = 2_000
LANES = 1_000
LISTENERS = (1, 10, 30)
WRITERS = 8
NOTICES, NAMED = 5_000, 32
MIXED = 5
CLIENTS = 8


Points = dict[str, Any]
"""What was measured on the way, for the model to be held against."""


class CpuMeter:
    """The CPU that some nodes and the database took between two looks."""

    def __init__(self, server: PostgresServer, nodes: list[Server]) -> None:
        self._look: Callable[[], list[float]] = lambda: [
            *(node.measure_cpu_seconds() for node in nodes),
            tower.measure_database_cpu(server),
        ]
        self.spent: list[float] = []

    @contextmanager
    def measure(self) -> Iterator[None]:
        before = self._look()
        yield
        self.spent = [after - earlier for after, earlier in zip(self._look(), before, strict=True)]


def measure(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    found: dict[str, MeasuredCost] = {}
    for part in (
        _measure_database,
        _measure_listeners,
        _measure_turns,
        _measure_events,
        _measure_following,
        _measure_mixed,
        _measure_commands,
        _measure_attaching,
        _measure_connections,
    ):
        setting.print_progress(f"costs: {part.__name__.removeprefix('_measure_')}")
        found |= part(setting, server, points)
    return found


def _measure_database(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    """Appends of one session and of many: what a commit costs, and what each event in it adds."""
    dsn = tower.create_database(server)
    meter = CpuMeter(server, [])

    def per_commit(sessions: int, appends: int) -> tuple[float, float, float]:
        with meter.measure():
            told = setting.run_load(
                "postgres", dsn=dsn, sessions=sessions, appends=appends, length=1, label=setting.make_path("c").name
            )
        return meter.spent[0] / told["commits"], sessions * appends / told["commits"], told["median_ms"] / 1_000

    per_commit(SESSIONS, 20)
    alone, _, commit = per_commit(1, setting.scale_amount(2_000))
    log, size = tower.log_bytes(dsn), tower.measure_stored_bytes(dsn)
    full, batch, _ = per_commit(SESSIONS, setting.scale_amount(600))
    events = SESSIONS * setting.scale_amount(600)
    event = (full - alone) / (batch - 1)
    how = f"CPU of the server, commits of 1 and of {batch:.0f} events of 300 bytes"
    return {
        "commit": MeasuredCost(commit, "s", "the journal's append of one event, nobody else writing, median"),
        "database_event": MeasuredCost(event, "s CPU", how),
        "database_commit": MeasuredCost(max(0.0, alone - event), "s CPU", how),
        "log_event": MeasuredCost(
            (tower.log_bytes(dsn) - log) / events, "bytes", f"write-ahead log, commits of {batch:.0f} events"
        ),
        "stored_event": MeasuredCost(
            (tower.measure_stored_bytes(dsn) - size) / events, "bytes", "tables and indexes, events of 300 bytes"
        ),
    }


def _measure_listeners(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    dsn = tower.create_database(server)
    meter = CpuMeter(server, [])
    spent = {}
    for listeners in (0, *LISTENERS):
        with meter.measure():
            told = setting.run_baseline("notify", dsn=dsn, listeners=listeners, seconds=0.5 if setting.quick else 2.0, tell=True)
        spent[listeners] = meter.spent[0] / told["commits"]
    points["database CPU of a commit by listeners"] = spent
    slopes = [(spent[listeners] - spent[0]) / listeners for listeners in LISTENERS]
    how = f"CPU of the server, a commit with NOTIFY and {', '.join(map(str, LISTENERS))} listeners against none, median"
    return {"database_listener": MeasuredCost(median(slopes), "s CPU", how)}


def _measure_turns(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    dsn = tower.create_database(server)
    told = setting.run_baseline("notifiers", dsn=dsn, writers=WRITERS, seconds=0.5 if setting.quick else 2.0)
    how = f"{WRITERS} connections that commit and NOTIFY as fast as they can: time between two commits"
    return {"commit_turn": MeasuredCost(1 / told["per_second"], "s", how)}


def _measure_events(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    """Through a whole node, from one session and from many: what a commit costs there, and what each event adds."""
    with tower.run_nodes(setting, server, 2) as (nodes, dsn):
        memory = nodes[1].measure_resident_mb()
        meter = CpuMeter(server, nodes)

        def per_event(sessions: int, each: int) -> tuple[float, float]:
            """Its cost, and how many share a commit."""
            path = setting.make_path("report.json")
            order = {"sessions": sessions, "order": f"each {each}", "report_paths": [str(path)]}
            before = tower.count_commits(dsn)
            with meter.measure():
                setting.run_load("tower_bursts", sockets=[nodes[0].socket], **order)
            noted = commits.read(path).commits
            stored = sum(stretch.count for commit in noted for stretch in commit.stretches)
            streamed = commits.select_streaming(commits.Report(noted, []))
            points["events/s of one node"] = commits.compute_event_rate(streamed, [commit.at_ns for commit in streamed])
            return meter.spent[0] / stored, stored / (tower.count_commits(dsn) - before)

        per_event(SESSIONS, 20)
        alone, one = per_event(1, setting.scale_amount(3_000))
        shared, many = per_event(SESSIONS, setting.scale_amount(500))
        commit = max(0.0, (alone - shared) / (1 / one - 1 / many))
        connections = tower.count_connections(dsn) / 2
        notices = setting.scale_amount(NOTICES)
        with meter.measure():
            setting.run_load("notices", dsn=dsn, count=notices, sessions=NAMED)
        notice = mean(meter.spent[:2]) / notices
    how = f"CPU of a node, 1 and {SESSIONS} sessions whose engines wait for each event to be on the disk"
    return {
        "node_event": MeasuredCost(max(0.0, shared - commit / many), "s CPU", how),
        "node_commit": MeasuredCost(commit, "s CPU", how),
        "node_notice": MeasuredCost(notice, "s CPU", f"CPU of a node that hears of commits of {NAMED} sessions and follows none"),
        "node_memory": MeasuredCost(memory * 1_048_576, "bytes", "resident, a node at rest"),
        "node_connections": MeasuredCost(connections, "connections", "to the database, two nodes after some work"),
    }


def _measure_following(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    """Slow streams, watched at their home, and watched at the other node: what it adds there, and at the database."""
    amount = {"sessions": 20, "events": setting.scale_amount(500), "pause_us": 4_000}
    with tower.run_nodes(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = CpuMeter(server, nodes)
        spent: dict[str, list[float]] = {}
        for title, watch, clients in (("warm", other, 1), ("alone", None, 0), ("near", home, CLIENTS), ("far", other, 1)):
            where = watch.socket if watch else None
            with meter.measure():
                setting.run_load("watchers", socket=home.socket, far_socket=where, clients=clients, **amount)
            spent[title] = meter.spent
    events = amount["sessions"] * amount["events"]
    delivery = max(0.0, spent["near"][0] - spent["alone"][0]) / events / CLIENTS
    how = "20 sessions, an event each every 4 ms on average"
    return {
        "node_delivery": MeasuredCost(delivery, "s CPU", f"CPU of the home, {how}, with {CLIENTS} clients each, against nobody"),
        "node_followed": MeasuredCost(
            max(0.0, (spent["far"][1] - spent["alone"][1]) / events - delivery),
            "s CPU",
            f"CPU of another node, {how}, watched there, against nobody; without the delivery",
        ),
        "database_followed": MeasuredCost(
            max(0.0, spent["far"][2] - spent["alone"][2]) / events, "s CPU", f"CPU of the server, {how}, followed by another node"
        ),
    }


def _measure_mixed(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    """Gives no cost: a load that none of them was taken from, for the model to foretell."""
    amount = {"sessions": MIXED, "events": setting.scale_amount(1_000), "pause_us": 10_000}
    with tower.run_nodes(setting, server, 2) as (nodes, dsn), ThreadPoolExecutor(4) as pool:
        meter = CpuMeter(server, nodes)
        before = tower.count_commits(dsn)
        ways = [(home.socket, watched_at.socket) for home in nodes for watched_at in nodes]
        began = time.monotonic()
        with meter.measure():
            list(pool.map(lambda way: setting.run_load("watchers", socket=way[0], far_socket=way[1], **amount), ways))
        took = time.monotonic() - began
        made = tower.count_commits(dsn) - before
    points["two nodes, each watched session at home or at the other"] = {
        "sessions": len(ways) * MIXED,
        "events/s of a session": amount["events"] / took,
        "commits/s": made / took,
        "node CPU": mean(meter.spent[:2]) / took,
        "database CPU": meter.spent[2] / took,
    }
    return {}


def _measure_commands(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    arguments: dict[str, Any] = {"what": "refused", "in_flight": 4, "seconds": 0.5 if setting.quick else 2.0}
    with tower.run_nodes(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = CpuMeter(server, nodes)
        spent: dict[str, list[float]] = {}
        for title, far in (("warm", other), ("near", home), ("far", other)):
            with meter.measure():
                told = setting.run_load("commands", socket=home.socket, far_socket=far.socket, **arguments)
            spent[title] = [cpu / told["count"] for cpu in meter.spent]
    how = "commands that are refused, four in flight"
    command = spent["near"][0]
    return {
        "node_command": MeasuredCost(command, "s CPU", f"CPU of a node, {how}, at their home"),
        "node_forwarding": MeasuredCost(
            max(0.0, spent["far"][1] - command), "s CPU", f"more than that where they are given, {how}"
        ),
        "node_forwarded": MeasuredCost(spent["far"][0], "s CPU", f"at their home when they are given elsewhere, {how}"),
    }


def _measure_attaching(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    count = setting.scale_amount(LANES)
    with tower.run_nodes(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = CpuMeter(server, [other])
        for amount in (50, count):  # the first only warms it up
            names = setting.run_load("begin", socket=home.socket, count=amount)
            with meter.measure():
                grown = setting.run_load("lanes", socket=other.socket, names=names, pid=other.pid)
    how = f"{count:,} new sessions attached to at another node than their home's"
    return {
        "node_attach": MeasuredCost(meter.spent[0] / count, "s CPU", f"CPU of that node, {how}"),
        "node_lane_memory": MeasuredCost(grown / count, "bytes", f"resident, {how}, all at hand"),
        "database_attach": MeasuredCost(meter.spent[1] / count, "s CPU", f"CPU of the server, {how}"),
    }


def _measure_connections(setting: BenchContext, server: PostgresServer, points: Points) -> dict[str, MeasuredCost]:
    count = setting.scale_amount(CONNECTIONS)
    with tower.run_nodes(setting, server, 1) as (nodes, _):
        (node,) = nodes
        endpoints = node.read_endpoints()
        door = {"http": endpoints["http"], "token": endpoints["token"], "pid": node.pid}
        setting.run_load("crowd", count=50, **door)
        grown = setting.run_load("crowd", count=count, **door)
    how = f"resident, {count:,} WebSockets that speak push and wait"
    return {"node_connection_memory": MeasuredCost(grown / count, "bytes", how)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="whether it works; writes nothing")
    quick = parser.parse_args().quick
    if reason := servers.find_missing_reason():
        raise SystemExit(reason)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tower-bench-", ignore_cleanup_errors=True) as folder, servers.run_server() as server:
        points: Points = {}
        found = measure(BenchContext(Path(folder), quick=quick), server, points)
    found = {name: found[name] for name in Costs._fields}
    about = results.collect([], quick=quick, seconds=time.monotonic() - began)
    written = {
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": about.machine | {"cores": str(os.cpu_count())},
        "commit": about.commit,
        "points": points,
        "costs": {name: figure._asdict() for name, figure in found.items()},
    }
    text = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
    print(text)
    if not quick:
        COSTS.write_text(text)
        _write_docs(found)


def _write_docs(found: dict[str, MeasuredCost]) -> None:
    """The model's answer for a large tower, and what it was made from."""
    load = model.ClusterLoad(sessions=1e6, clients=1e5)
    report = model.report(load, model.MachineLimits(), model.make_costs(found))
    docs.put(docs.PAGE_OF_NODES, "model", f"```\n{report}\n```")
    for name, figures in (("assumed", model.ASSUMED), ("costs", found)):
        lines = [f"| `{key}` | {_format_figure(figure)} | {figure.source} |" for key, figure in figures.items()]
        docs.put(docs.PAGE_OF_NODES, name, "\n".join(["| name | value | what |", "|---|--:|---|", *lines]))


def _format_figure(figure: MeasuredCost) -> str:
    if figure.unit.startswith("s") and figure.unit != "sessions":
        micro = figure.value * 1e6
        return f"{micro:,.0f} µs{figure.unit[1:]}"
    return f"{figure.value:,.3g} {figure.unit}" if figure.value < 1_000 else f"{figure.value:,.0f} {figure.unit}"


if __name__ == "__main__":
    main()
