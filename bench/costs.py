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
from bench.model import COSTS, Costs, Figure
from bench.processes import Server
from bench.setting import Setting
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


class Meter:
    """The CPU that some nodes and the database took between two looks."""

    def __init__(self, server: PostgresServer, nodes: list[Server]) -> None:
        self._look: Callable[[], list[float]] = lambda: [
            *(node.cpu_seconds() for node in nodes),
            tower.database_cpu_seconds(server),
        ]
        self.spent: list[float] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        before = self._look()
        yield
        self.spent = [after - earlier for after, earlier in zip(self._look(), before, strict=True)]


def measure(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for part in (_database, _listeners, _turns, _events, _following, _mixed, _commands, _attaching, _connections):
        setting.say(f"costs: {part.__name__.strip('_')}")
        found |= part(setting, server, points)
    return found


def _database(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    """Appends of one session and of many: what a commit costs, and what each event in it adds."""
    dsn = tower.fresh_database(server)
    meter = Meter(server, [])

    def per_commit(sessions: int, appends: int) -> tuple[float, float, float]:
        with meter.running():
            told = setting.load("postgres", dsn=dsn, sessions=sessions, appends=appends, length=1, label=setting.path("c").name)
        return meter.spent[0] / told["commits"], sessions * appends / told["commits"], told["median_ms"] / 1_000

    per_commit(SESSIONS, 20)
    alone, _, commit = per_commit(1, setting.amount(2_000))
    log, size = tower.log_bytes(dsn), tower.stored_bytes(dsn)
    full, batch, _ = per_commit(SESSIONS, setting.amount(600))
    events = SESSIONS * setting.amount(600)
    event = (full - alone) / (batch - 1)
    how = f"CPU of the server, commits of 1 and of {batch:.0f} events of 300 bytes"
    return {
        "commit": Figure(commit, "s", "the journal's append of one event, nobody else writing, median"),
        "database_event": Figure(event, "s CPU", how),
        "database_commit": Figure(max(0.0, alone - event), "s CPU", how),
        "log_event": Figure((tower.log_bytes(dsn) - log) / events, "bytes", f"write-ahead log, commits of {batch:.0f} events"),
        "stored_event": Figure((tower.stored_bytes(dsn) - size) / events, "bytes", "tables and indexes, events of 300 bytes"),
    }


def _listeners(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    dsn = tower.fresh_database(server)
    meter = Meter(server, [])
    spent = {}
    for listeners in (0, *LISTENERS):
        with meter.running():
            told = setting.bare("notify", dsn=dsn, listeners=listeners, seconds=0.5 if setting.quick else 2.0, tell=True)
        spent[listeners] = meter.spent[0] / told["commits"]
    points["database CPU of a commit by listeners"] = spent
    slopes = [(spent[listeners] - spent[0]) / listeners for listeners in LISTENERS]
    how = f"CPU of the server, a commit with NOTIFY and {', '.join(map(str, LISTENERS))} listeners against none, median"
    return {"database_listener": Figure(median(slopes), "s CPU", how)}


def _turns(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    dsn = tower.fresh_database(server)
    told = setting.bare("notifiers", dsn=dsn, writers=WRITERS, seconds=0.5 if setting.quick else 2.0)
    how = f"{WRITERS} connections that commit and NOTIFY as fast as they can: time between two commits"
    return {"commit_turn": Figure(1 / told["per_second"], "s", how)}


def _events(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    """Through a whole node, from one session and from many: what a commit costs there, and what each event adds."""
    with tower.running(setting, server, 2) as (nodes, dsn):
        memory = nodes[1].resident_mb()
        meter = Meter(server, nodes)

        def per_event(sessions: int, each: int) -> tuple[float, float]:
            """Its cost, and how many share a commit."""
            path = setting.path("report.json")
            order = {"sessions": sessions, "order": f"each {each}", "report_paths": [str(path)]}
            before = tower.commits(dsn)
            with meter.running():
                setting.load("tower_bursts", sockets=[nodes[0].socket], **order)
            noted = commits.read(path).commits
            stored = sum(stretch.count for commit in noted for stretch in commit.stretches)
            streamed = commits.streaming(commits.Report(noted, []))
            points["events/s of one node"] = commits.events_per_second(streamed, [commit.at_ns for commit in streamed])
            return meter.spent[0] / stored, stored / (tower.commits(dsn) - before)

        per_event(SESSIONS, 20)
        alone, one = per_event(1, setting.amount(3_000))
        shared, many = per_event(SESSIONS, setting.amount(500))
        commit = max(0.0, (alone - shared) / (1 / one - 1 / many))
        connections = tower.connections_of(dsn) / 2
        notices = setting.amount(NOTICES)
        with meter.running():
            setting.load("notices", dsn=dsn, count=notices, sessions=NAMED)
        notice = mean(meter.spent[:2]) / notices
    how = f"CPU of a node, 1 and {SESSIONS} sessions whose engines wait for each event to be on the disk"
    return {
        "node_event": Figure(max(0.0, shared - commit / many), "s CPU", how),
        "node_commit": Figure(commit, "s CPU", how),
        "node_notice": Figure(notice, "s CPU", f"CPU of a node that hears of commits of {NAMED} sessions and follows none"),
        "node_memory": Figure(memory * 1_048_576, "bytes", "resident, a node at rest"),
        "node_connections": Figure(connections, "connections", "to the database, two nodes after some work"),
    }


def _following(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    """Slow streams, watched at their home, and watched at the other node: what it adds there, and at the database."""
    amount = {"sessions": 20, "events": setting.amount(500), "pause_us": 4_000}
    with tower.running(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = Meter(server, nodes)
        spent: dict[str, list[float]] = {}
        for title, watch, clients in (("warm", other, 1), ("alone", None, 0), ("near", home, CLIENTS), ("far", other, 1)):
            where = watch.socket if watch else None
            with meter.running():
                setting.load("watchers", socket=home.socket, far_socket=where, clients=clients, **amount)
            spent[title] = meter.spent
    events = amount["sessions"] * amount["events"]
    delivery = max(0.0, spent["near"][0] - spent["alone"][0]) / events / CLIENTS
    how = "20 sessions, an event each every 4 ms on average"
    return {
        "node_delivery": Figure(delivery, "s CPU", f"CPU of the home, {how}, with {CLIENTS} clients each, against nobody"),
        "node_followed": Figure(
            max(0.0, (spent["far"][1] - spent["alone"][1]) / events - delivery),
            "s CPU",
            f"CPU of another node, {how}, watched there, against nobody; without the delivery",
        ),
        "database_followed": Figure(
            max(0.0, spent["far"][2] - spent["alone"][2]) / events, "s CPU", f"CPU of the server, {how}, followed by another node"
        ),
    }


def _mixed(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    """Gives no cost: a load that none of them was taken from, for the model to foretell."""
    amount = {"sessions": MIXED, "events": setting.amount(1_000), "pause_us": 10_000}
    with tower.running(setting, server, 2) as (nodes, dsn), ThreadPoolExecutor(4) as pool:
        meter = Meter(server, nodes)
        before = tower.commits(dsn)
        ways = [(home.socket, watched_at.socket) for home in nodes for watched_at in nodes]
        began = time.monotonic()
        with meter.running():
            list(pool.map(lambda way: setting.load("watchers", socket=way[0], far_socket=way[1], **amount), ways))
        took = time.monotonic() - began
        made = tower.commits(dsn) - before
    points["two nodes, each watched session at home or at the other"] = {
        "sessions": len(ways) * MIXED,
        "events/s of a session": amount["events"] / took,
        "commits/s": made / took,
        "node CPU": mean(meter.spent[:2]) / took,
        "database CPU": meter.spent[2] / took,
    }
    return {}


def _commands(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    arguments: dict[str, Any] = {"what": "refused", "in_flight": 4, "seconds": 0.5 if setting.quick else 2.0}
    with tower.running(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = Meter(server, nodes)
        spent: dict[str, list[float]] = {}
        for title, far in (("warm", other), ("near", home), ("far", other)):
            with meter.running():
                told = setting.load("commands", socket=home.socket, far_socket=far.socket, **arguments)
            spent[title] = [cpu / told["count"] for cpu in meter.spent]
    how = "commands that are refused, four in flight"
    command = spent["near"][0]
    return {
        "node_command": Figure(command, "s CPU", f"CPU of a node, {how}, at their home"),
        "node_forwarding": Figure(max(0.0, spent["far"][1] - command), "s CPU", f"more than that where they are given, {how}"),
        "node_forwarded": Figure(spent["far"][0], "s CPU", f"at their home when they are given elsewhere, {how}"),
    }


def _attaching(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    count = setting.amount(LANES)
    with tower.running(setting, server, 2) as (nodes, _):
        home, other = nodes
        meter = Meter(server, [other])
        for amount in (50, count):  # the first only warms it up
            names = setting.load("begin", socket=home.socket, count=amount)
            with meter.running():
                grown = setting.load("lanes", socket=other.socket, names=names, pid=other.pid)
    how = f"{count:,} new sessions attached to at another node than their home's"
    return {
        "node_attach": Figure(meter.spent[0] / count, "s CPU", f"CPU of that node, {how}"),
        "node_lane_memory": Figure(grown / count, "bytes", f"resident, {how}, all at hand"),
        "database_attach": Figure(meter.spent[1] / count, "s CPU", f"CPU of the server, {how}"),
    }


def _connections(setting: Setting, server: PostgresServer, points: Points) -> dict[str, Figure]:
    count = setting.amount(CONNECTIONS)
    with tower.running(setting, server, 1) as (nodes, _):
        (node,) = nodes
        endpoints = node.endpoints()
        door = {"http": endpoints["http"], "token": endpoints["token"], "pid": node.pid}
        setting.load("crowd", count=50, **door)
        grown = setting.load("crowd", count=count, **door)
    how = f"resident, {count:,} WebSockets that speak push and wait"
    return {"node_connection_memory": Figure(grown / count, "bytes", how)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="whether it works; writes nothing")
    quick = parser.parse_args().quick
    if reason := servers.missing():
        raise SystemExit(reason)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tower-bench-", ignore_cleanup_errors=True) as folder, servers.running() as server:
        points: Points = {}
        found = measure(Setting(Path(folder), quick=quick), server, points)
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


def _write_docs(found: dict[str, Figure]) -> None:
    """The model's answer for a large tower, and what it was made from."""
    load = model.Load(sessions=1e6, clients=1e5)
    report = model.report(load, model.Limits(), model.costs_of(found))
    docs.put(docs.PAGE_OF_NODES, "model", f"```\n{report}\n```")
    for name, figures in (("assumed", model.ASSUMED), ("costs", found)):
        lines = [f"| `{key}` | {_readable(figure)} | {figure.source} |" for key, figure in figures.items()]
        docs.put(docs.PAGE_OF_NODES, name, "\n".join(["| name | value | what |", "|---|--:|---|", *lines]))


def _readable(figure: Figure) -> str:
    if figure.unit.startswith("s") and figure.unit != "sessions":
        micro = figure.value * 1e6
        return f"{micro:,.0f} µs{figure.unit[1:]}"
    return f"{figure.value:,.3g} {figure.unit}" if figure.value < 1_000 else f"{figure.value:,.0f} {figure.unit}"


if __name__ == "__main__":
    main()
