"""The model of several nodes: its arithmetic, and that it agrees with what was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import model
from bench.model import ClusterLoad, Costs, MachineLimits

ROOT = Path(__file__).parent.parent


COSTS = Costs(
    node_event=60e-6,
    node_commit=100e-6,
    node_delivery=5e-6,
    node_followed=40e-6,
    node_notice=20e-6,
    node_command=30e-6,
    node_forwarding=20e-6,
    node_forwarded=25e-6,
    node_attach=400e-6,
    node_memory=50e6,
    node_connection_memory=12e3,
    node_lane_memory=4e3,
    node_connections=6,
    commit=1e-3,
    commit_turn=0.5e-3,
    database_event=15e-6,
    database_commit=150e-6,
    database_listener=30e-6,
    database_followed=50e-6,
    database_attach=300e-6,
    log_event=600,
    stored_event=450,
)
LOAD = ClusterLoad(sessions=1_000_000, clients=100_000)
LIMITS = MachineLimits()
MEASURED = json.loads(model.COSTS.read_text())


def get_usage(sizing: model.Sizing, resource: str) -> float:
    return next(use.used for use in sizing.uses if use.resource == resource)


def test_one_idle_node_uses_its_own_memory_and_nothing_else() -> None:
    sizing = model.compute_sizing(ClusterLoad(sessions=1_000_000, clients=0, active=0.0), LIMITS, COSTS, 1)
    assert get_usage(sizing, "node memory") == pytest.approx(0.05)
    assert get_usage(sizing, "database connections") == 6
    assert [use.used for use in sizing.uses if use.resource in ("node CPU", "database CPU", "database log")] == [0, 0, 0]


def test_a_lone_node_forwards_and_follows_nothing() -> None:
    dearer = COSTS._replace(node_followed=1.0, node_forwarding=1.0, node_forwarded=1.0, node_notice=1.0, database_followed=1.0)
    assert model.compute_sizing(LOAD, LIMITS, dearer, 1) == model.compute_sizing(LOAD, LIMITS, COSTS, 1)
    assert model.compute_sizing(LOAD, LIMITS, dearer, 2) != model.compute_sizing(LOAD, LIMITS, COSTS, 2)


def test_the_sum_is_the_one_done_by_hand() -> None:
    load = ClusterLoad(sessions=1_000, clients=100, active=0.1, events=10.0, watching=0.5, commands=1.0, attaches=0.1)
    sizing = model.compute_sizing(load, LIMITS, COSTS, 2)
    # 1,000 events/s, 500 deliveries/s of which 250 cross, 100 commands/s of which 50 cross, 10 attaches/s. While a commit takes
    # its 1 ms a node has 0.5 events more, so there are two commits for three events.
    commits = 1_000 / 1.5
    shared = 1_000 * 60e-6 + commits * 100e-6 + 500 * 5e-6 + 250 * 40e-6 + 100 * 30e-6 + 50 * 45e-6 + 10 * 400e-6
    node = shared / 2 + commits * 0.5 * 20e-6
    assert sizing.commits == pytest.approx(commits)
    assert get_usage(sizing, "node CPU") == pytest.approx(node)
    database = 1_000 * 15e-6 + commits * (150e-6 + 2 * 30e-6) + 250 * 50e-6 + 10 * 300e-6
    assert get_usage(sizing, "database CPU") == pytest.approx(database)


@pytest.mark.parametrize("field", ["sessions", "clients", "active", "events", "watching", "commands", "attaches"])
def test_more_load_never_uses_less(field: str) -> None:
    for nodes in (1, 3, 30):
        before = model.compute_sizing(LOAD, LIMITS, COSTS, nodes)
        more = model.compute_sizing(LOAD._replace(**{field: getattr(LOAD, field) * 1.5}), LIMITS, COSTS, nodes)
        grown = [after.used > use.used for use, after in zip(before.uses, more.uses, strict=True)]
        assert all(after.used >= use.used for use, after in zip(before.uses, more.uses, strict=True))
        assert any(grown)


def test_more_nodes_relieve_each_other_and_burden_the_database() -> None:
    few, many = model.compute_sizing(LOAD, LIMITS, COSTS, 3), model.compute_sizing(LOAD, LIMITS, COSTS, 10)
    assert get_usage(many, "node memory") < get_usage(few, "node memory")
    assert get_usage(many, "database CPU") > get_usage(few, "database CPU")
    assert get_usage(many, "database connections") > get_usage(few, "database connections")
    assert many.commit_wait > few.commit_wait


def test_events_share_commits_when_there_are_more_than_can_be_made() -> None:
    calm = model.compute_sizing(ClusterLoad(sessions=100, clients=0), LIMITS, COSTS, 2)
    busy = model.compute_sizing(ClusterLoad(sessions=100_000_000, clients=0), LIMITS, COSTS, 2)
    assert calm.commits == pytest.approx(calm.events, rel=0.01)
    assert busy.commits == pytest.approx(2 / 1e-3, rel=0.01)
    assert busy.commits < 2 / 1e-3
    assert get_usage(busy, "node commits") == pytest.approx(busy.events / busy.commits)


def test_as_few_nodes_are_needed_as_have_room() -> None:
    needed = model.find_node_count(LOAD, LIMITS, COSTS)
    assert needed.nodes > 1
    assert needed.is_within(LIMITS.headroom)
    assert not model.compute_sizing(LOAD, LIMITS, COSTS, needed.nodes - 1).is_within(LIMITS.headroom, "node")


@pytest.mark.parametrize(
    ("resource", "limits", "costs"),
    [
        ("database CPU", LIMITS._replace(database_cores=2.0), COSTS),
        ("database log", LIMITS._replace(database_log_mb=5.0), COSTS),
        ("database connections", LIMITS._replace(database_connections=20), COSTS),
        ("node memory", LIMITS._replace(node_memory_gb=0.06), COSTS),
        ("node CPU", LIMITS, COSTS._replace(node_notice=0.1)),
    ],
)
def test_what_saturates_first_is_named(resource: str, limits: MachineLimits, costs: Costs) -> None:
    sizing = model.find_node_count(LOAD, limits, costs)
    assert not sizing.is_within(limits.headroom)
    assert sizing.first.resource == resource
    assert f"{resource} is full first" in model.report(LOAD, limits, costs)


def test_the_largest_load_has_room_and_a_little_more_has_not() -> None:
    times = model.find_load_factor(LOAD, LIMITS, COSTS)
    for factor, has_room in ((0.99, True), (1.01, False)):
        load = LOAD._replace(sessions=LOAD.sessions * times * factor, clients=LOAD.clients * times * factor)
        assert model.find_node_count(load, LIMITS, COSTS).is_within(LIMITS.headroom) is has_room


def test_every_measured_cost_is_there_with_its_unit_and_source() -> None:
    figures = model.read()
    assert set(figures) == set(Costs._fields)
    assert all(figure.unit and figure.source and figure.value >= 0 for figure in figures.values())


def test_every_assumption_is_a_field_with_its_unit_and_reason() -> None:
    assert set(model.ASSUMED) == set(ClusterLoad._fields[2:]) | set(MachineLimits._fields)
    assert all(figure.unit and figure.source for figure in model.ASSUMED.values())


def test_a_notify_costs_what_was_measured_with_each_number_of_listeners() -> None:
    measured = {int(count): cpu for count, cpu in MEASURED["points"]["database CPU of a commit by listeners"].items()}
    listener = model.make_costs(model.read()).database_listener
    for count, cpu in measured.items():
        assert measured[0] + count * listener == pytest.approx(cpu, rel=0.5)


def test_a_load_that_no_cost_was_taken_from_is_foretold() -> None:
    costs = model.make_costs(model.read())
    measured = MEASURED["points"]["two nodes, each watched session at home or at the other"]
    sessions, events = measured["sessions"], measured["events/s of a session"]
    load = ClusterLoad(sessions, clients=sessions, active=1.0, events=events, watching=1.0, commands=0.0, attaches=0.0)
    sizing = model.compute_sizing(load, LIMITS, costs, 2)
    assert measured["commits/s"] / 2 < sizing.commits < measured["commits/s"] * 2
    for resource in ("node CPU", "database CPU"):
        assert measured[resource] / 2 < get_usage(sizing, resource) < measured[resource] * 2


def test_one_node_had_no_more_than_a_core_when_it_was_measured() -> None:
    costs = model.make_costs(model.read())
    load = ClusterLoad(MEASURED["points"]["events/s of one node"], clients=0, active=1.0, events=1.0)
    assert 0.2 < get_usage(model.compute_sizing(load, LIMITS, costs, 1), "node CPU") < 1.2


def test_the_command_prints_a_table_with_its_assumptions() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "bench.model", "--sessions", "1e6", "--clients", "1e5", "--active", "0.02"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "1,000,000 sessions, of which 20,000 are active" in printed
    for name in (*model.ASSUMED, *Costs._fields, "database CPU"):
        assert name in printed
