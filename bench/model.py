"""What a tower of several nodes needs under a given load: `python -m bench.model --sessions 1e6 --clients 1e5`.

Plain arithmetic over costs that were measured (`bench/costs.json`, written by `python -m bench.costs`) and assumptions that are
named below as data, with their units. It measures nothing itself, and knows nothing of queues: a resource that is used up to
`headroom` is taken for full, so that waiting stays short. docs/scaling.md tells how to read it.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

COSTS = Path(__file__).with_name("costs.json")
MOST_NODES = 2_000


class MeasuredCost(NamedTuple):
    value: float
    unit: str
    source: str
    """Where it came from."""


ASSUMED = {
    "active": MeasuredCost(0.01, "of all sessions", "has a run under way; the rest wait for people or are done"),
    "events": MeasuredCost(
        2.0, "/s", "of an active session on average: it streams some of the time, and waits for tools and models"
    ),
    "watching": MeasuredCost(
        0.1, "of all clients", "look at a session that is active; each at another one, which is the worst case"
    ),
    "commands": MeasuredCost(1 / 60, "/s", "of a client: one a minute"),
    "attaches": MeasuredCost(1 / 300, "/s", "of a client: it opens a session, or comes back, every five minutes"),
    "headroom": MeasuredCost(0.6, "of a resource", "is used at most, so that waiting stays short and a lost node can be borne"),
    "node_memory_gb": MeasuredCost(4.0, "GB", "for one node; a node is one process and uses about one core"),
    "database_cores": MeasuredCost(32.0, "cores", "of a large database server, each as fast as one here; they scale as if alone"),
    "database_log_mb": MeasuredCost(200.0, "MB/s", "of write-ahead log that its disk and its standbys keep up with"),
    "database_connections": MeasuredCost(500.0, "connections", "that the server is set to take"),
    "rows_in_commit": MeasuredCost(512.0, "rows", "that a node writes at once at most: `MOST_ROWS` of its writer"),
}


class ClusterLoad(NamedTuple):
    """Who is there, and what they do."""

    sessions: float
    clients: float
    active: float = ASSUMED["active"].value
    events: float = ASSUMED["events"].value
    watching: float = ASSUMED["watching"].value
    commands: float = ASSUMED["commands"].value
    attaches: float = ASSUMED["attaches"].value


class MachineLimits(NamedTuple):
    """The machines."""

    headroom: float = ASSUMED["headroom"].value
    node_memory_gb: float = ASSUMED["node_memory_gb"].value
    database_cores: float = ASSUMED["database_cores"].value
    database_log_mb: float = ASSUMED["database_log_mb"].value
    database_connections: float = ASSUMED["database_connections"].value
    rows_in_commit: float = ASSUMED["rows_in_commit"].value


class Costs(NamedTuple):
    """Measured. CPU in seconds of one core, memory in bytes."""

    node_event: float
    node_commit: float
    node_delivery: float
    node_followed: float
    node_notice: float
    node_command: float
    node_forwarding: float
    node_forwarded: float
    node_attach: float
    node_memory: float
    node_connection_memory: float
    node_lane_memory: float
    node_connections: float
    commit: float
    """Time on the clock, not CPU: so long one node waits for one commit."""
    commit_turn: float
    """So long a commit keeps all other nodes from theirs: one that tells of itself by NOTIFY holds a lock of the server."""
    database_event: float
    database_commit: float
    database_listener: float
    """For each commit and each node that listens."""
    database_followed: float
    database_attach: float
    log_event: float
    """Bytes of write-ahead log."""
    stored_event: float
    """Bytes of tables and indexes."""


class ResourceUse(NamedTuple):
    resource: str
    used: float
    limit: float
    unit: str

    @property
    def share(self) -> float:
        return self.used / self.limit


class Sizing(NamedTuple):
    nodes: int
    uses: list[ResourceUse]
    events: float
    commits: float
    commit_wait: float
    stored_gb_a_day: float

    @property
    def first(self) -> ResourceUse:
        """What saturates first."""
        return max(self.uses, key=lambda use: use.share)

    def is_within(self, headroom: float, whose: str = "") -> bool:
        return all(use.share <= headroom for use in self.uses if use.resource.startswith(whose))


def compute_sizing(load: ClusterLoad, limits: MachineLimits, costs: Costs, nodes: int) -> Sizing:
    """What so many nodes and their database would use. Homes and clients are spread evenly and independently of each other."""
    active = load.sessions * load.active
    events = active * load.events
    watchers = load.clients * load.watching
    deliveries = watchers * load.events
    # The chance that a session's home is not the node that its client is connected to.
    far = (nodes - 1) / nodes
    # A node follows a session once, however many of its clients watch it.
    followed = far * min(watchers, active * nodes) * load.events
    commands, attaches = load.clients * load.commands, load.clients * load.attaches

    # Whatever comes while one commit runs goes into the next: one event and those. All nodes' commits take turns, because they
    # NOTIFY.
    commit_wait = max(costs.commit, nodes * costs.commit_turn)
    rows_in_commit = 1 + events / nodes * commit_wait
    commits = events / rows_in_commit

    node_cpu = (
        events * costs.node_event
        + commits * costs.node_commit
        + deliveries * costs.node_delivery
        + followed * costs.node_followed
        + commands * costs.node_command
        + commands * far * (costs.node_forwarding + costs.node_forwarded)
        + attaches * costs.node_attach
    ) / nodes + commits * far * costs.node_notice
    # A session is in memory at its home, and once more where it is looked at from afar.
    lanes = active + load.clients * (1 + far)
    node_memory = costs.node_memory + (load.clients * costs.node_connection_memory + lanes * costs.node_lane_memory) / nodes
    database_cpu = (
        events * costs.database_event
        + commits * (costs.database_commit + costs.database_listener * nodes)
        + followed * costs.database_followed
        + attaches * costs.database_attach
    )
    uses = [
        ResourceUse("node CPU", node_cpu, 1.0, "cores of one node"),
        ResourceUse("node memory", node_memory / 1e9, limits.node_memory_gb, "GB of one node"),
        ResourceUse("node commits", rows_in_commit, limits.rows_in_commit, "rows a commit"),
        ResourceUse("database CPU", database_cpu, limits.database_cores, "cores"),
        ResourceUse("database log", events * costs.log_event / 1e6, limits.database_log_mb, "MB/s"),
        ResourceUse("database connections", nodes * costs.node_connections, limits.database_connections, "connections"),
    ]
    return Sizing(nodes, uses, events, commits, commit_wait, events * costs.stored_event * 86_400 / 1e9)


def find_node_count(load: ClusterLoad, limits: MachineLimits, costs: Costs) -> Sizing:
    """With as few nodes as have room. More nodes cost the database more, so beyond these it only gets worse for it; when no
    number has room, as many as use the fullest resource the least."""
    best = compute_sizing(load, limits, costs, 1)
    for nodes in range(1, MOST_NODES + 1):
        sizing = compute_sizing(load, limits, costs, nodes)
        if sizing.is_within(limits.headroom, "node"):
            return sizing
        if sizing.first.share < best.first.share:
            best = sizing
    return best


def find_load_factor(load: ClusterLoad, limits: MachineLimits, costs: Costs) -> float:
    """How many times this load has room, with as many nodes as that takes. Less than 1: it has not."""
    low, high = 0.0, 1.0
    while _has_room(load, limits, costs, high) and high < 1e6:
        low, high = high, high * 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _has_room(load, limits, costs, middle) else (low, middle)
    return low


def _has_room(load: ClusterLoad, limits: MachineLimits, costs: Costs, times: float) -> bool:
    grown = load._replace(sessions=load.sessions * times, clients=load.clients * times)
    return find_node_count(grown, limits, costs).is_within(limits.headroom)


def read(path: Path = COSTS) -> dict[str, MeasuredCost]:
    found = json.loads(path.read_text())["costs"]
    return {name: MeasuredCost(**found[name]) for name in Costs._fields}


def make_costs(figures: dict[str, MeasuredCost]) -> Costs:
    return Costs(**{name: figure.value for name, figure in figures.items()})


def report(load: ClusterLoad, limits: MachineLimits, costs: Costs) -> str:
    needed = find_node_count(load, limits, costs)
    counts = sorted({1, 3, 10, needed.nodes})
    sizings = [compute_sizing(load, limits, costs, count) for count in counts]
    lines = [
        f"{load.sessions:,.0f} sessions, of which {load.sessions * load.active:,.0f} are active; {load.clients:,.0f} clients,"
        f" of whom {load.clients * load.watching:,.0f} watch an active one",
        f"{needed.events:,.0f} durable events/s, {needed.stored_gb_a_day:,.0f} GB a day before retention",
        "",
        f"{'nodes':<24}" + "".join(f"{sizing.nodes:>16,}" for sizing in sizings),
    ]
    for place, use in enumerate(needed.uses):
        cells = "".join(f"{_parse_number(s.uses[place].used):>10}{s.uses[place].share:>6.0%}" for s in sizings)
        lines.append(f"{use.resource:<24}{cells}   of {_parse_number(use.limit)} {use.unit}")
    lines.append(f"{'commits/s':<24}" + "".join(f"{sizing.commits:>16,.0f}" for sizing in sizings))
    lines.append(f"{'wait for a commit, ms':<24}" + "".join(f"{sizing.commit_wait * 1_000:>16,.1f}" for sizing in sizings))
    times = find_load_factor(load, limits, costs)
    verdict = "has room" if needed.is_within(limits.headroom) else f"has no room: {needed.first.resource} is full first"
    lines += [
        "",
        f"{needed.nodes} nodes: the load {verdict} (at most {limits.headroom:.0%} of anything).",
        f"What is used most is {needed.first.resource}, {needed.first.share:.0%}."
        f" With these machines {times:.2f} times this load has room.",
    ]
    return "\n".join(lines)


def _parse_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _render_figures(figures: dict[str, MeasuredCost]) -> str:
    return "\n".join(f"  {name:<24}{figure.value:>12.6g} {figure.unit:<18} {figure.source}" for name, figure in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.model", description=__doc__.splitlines()[0])
    for name in ("sessions", "clients"):
        parser.add_argument(f"--{name}", type=float, required=True)
    for name, figure in ASSUMED.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=figure.value, help=f"{figure.unit}: {figure.source}"
        )
    given = vars(parser.parse_args())
    load = ClusterLoad(**{name: given[name] for name in ClusterLoad._fields})
    limits = MachineLimits(**{name: given[name] for name in MachineLimits._fields})
    figures = read()
    changed = {name: figure._replace(value=given[name]) for name, figure in ASSUMED.items()}
    told = report(load, limits, make_costs(figures))
    print(f"{told}\n\nAssumed:\n{_render_figures(changed)}\n\nMeasured:\n{_render_figures(figures)}")


if __name__ == "__main__":
    main()
