"""The rows of the table, by group. Each module measures one group and yields its rows."""

from collections.abc import Callable, Iterator

from bench.row import Row
from bench.rows import (
    agent,
    command,
    deliveries,
    durable,
    latency,
    listing,
    minicodex,
    nodes,
    pi,
    ping,
    policy,
    redaction,
    relay,
    rep,
    replay,
    sessions,
    startup,
    websocket,
)
from bench.setting import BenchContext

GROUPS: dict[str, Callable[[BenchContext], Iterator[Row]]] = {
    "ping": ping.measure,
    "durable": durable.measure,
    "deliveries": deliveries.measure,
    "replay": replay.measure,
    "sessions": sessions.measure,
    "latency": latency.measure,
    "startup": startup.measure,
    "listing": listing.measure,
    "websocket": websocket.measure,
    "command": command.measure,
    "agent": agent.measure,
    "policy": policy.measure,
    "pi": pi.measure,
    "minicodex": minicodex.measure,
    "redaction": redaction.measure,
    "relay": relay.measure,
    "rep": rep.measure,
    "nodes": nodes.measure,
}
