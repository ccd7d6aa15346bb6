"""Nodes as processes on a real PostgreSQL: apps, users and hosts come to any of them, and one of them may die."""

import asyncio
import signal
from typing import Any

import pytest
from tests.nodes.conftest import make_database
from tests.relay.seen import collect_seqs, create_user, get_refusal_status, read_up_to
from tests.relay.stage import HubProxy, RelayNetwork, RestartableDaemon, wait_until

from switchtower.testing.postgres_server import PostgresServer
from switchtower.testing.relay_client import RelayApp, RelayHost

LOST_AFTER = 3.0


@pytest.fixture
async def nodes(shared_server: PostgresServer, relay_network: RelayNetwork) -> list[RestartableDaemon]:
    dsn = shared_server.make_dsn(await make_database(shared_server))
    settings = {"store": dsn, "node_lease": 1, "new_hosts": "trust", "lost_after": LOST_AFTER}
    made = list(await asyncio.gather(*(relay_network.start_daemon(name, node_name=name, **settings) for name in "abc")))
    for node in made:
        await wait_for_hosts(node, {other.host_id for other in made})
    return made


async def wait_for_hosts(node: RestartableDaemon, host_ids: set[str], *, online: bool = True) -> None:
    async def all_are_there() -> bool:
        rows = await node.http.list_hosts()
        return all(rows.get(host_id, {}).get("online", False) is online for host_id in host_ids)

    await wait_until(all_are_there)


async def get_row(node: RestartableDaemon, run_id: str) -> dict[str, Any]:
    return await node.http.get_run(run_id)


async def start_run(host: RelayHost, run_id: str) -> str:
    await host.send_frames(host.make_started(run_id))
    await host.wait_for_ack(run_id, 1)
    return run_id


# Who comes in


async def test_who_logged_in_at_one_node_is_known_at_all_until_the_token_is_revoked(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    token = await create_user(a, "anna")
    assert (await c.http.login("anna", "wrong")).status == 401
    apps = [await relay_network.connect_app(node, token=token) for node in nodes]
    for app in apps:
        await app.wait_until_processed()
    tokens = await b.http.get("/tokens")
    for held in tokens:
        if held["user"] == "anna":
            assert (await b.http.request("DELETE", f"/tokens/{held['id']}")).status == 204
    for node in nodes:
        assert await get_refusal_status(node.connect_app(token=token)) == 401


# Machines


async def test_a_program_is_started_watched_typed_into_and_stopped_from_different_nodes(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, _ = nodes
    starter, watcher, typist = [await relay_network.connect_app(node) for node in nodes]
    run = await starter.start(b.host_id, "cat", cwd=str(b.workspace))
    for node in nodes:
        assert (await get_row(node, run))["host_id"] == b.host_id
    await typist.send_command("run.send_input", run, input_id="i1", text="hello from c\r")
    await watcher.wait_for(lambda frame: "hello from c" in str(frame.get("data")) and frame.get("run_id") == run)
    (b.workspace / "notes.txt").write_text("notes")
    read = await starter.call("rpc.fs.read", run, path="notes.txt")
    assert read["content"] == "notes"
    listed = await starter.call("rpc.runs.list", run)
    assert [one["run_id"] for one in listed["runs"]] == [run]
    info = await typist.call("rpc.host.info", host_id=a.host_id)
    assert info["host_id"] == a.host_id

    await starter.send_command("rpc.bash", run, request_id="gated", cmd="echo $((6*7)) > answer.txt")
    asked = await typist.next_of_type("run.permission_requested", run)
    assert asked["host_id"] == b.host_id
    await typist.send_command("run.permission.approve", run, request_id=asked["data"]["request_id"])
    assert (await starter.wait_for_answer("gated"))["result"]["exit_code"] == 0
    assert (b.workspace / "answer.txt").read_text() == "42\n"

    await typist.send_command("run.stop", run, signal="kill")
    for app in (starter, watcher, typist):
        await app.wait_for(lambda frame: frame["type"] == "run.exited" and frame["run_id"] == run)
    # All were told the same, in the same order.
    assert collect_seqs(starter, run) == collect_seqs(watcher, run) == collect_seqs(typist, run)


async def test_a_node_that_dies_keeps_its_runs_until_they_are_taken_over_and_then_they_are_lost(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    app = await relay_network.connect_app(a)
    run = await app.start(b.host_id, "cat", cwd=str(b.workspace))
    await app.wait_for(lambda frame: frame["type"] == "run.started" and frame["run_id"] == run)
    b.kill()

    seen: dict[str, list[str]] = {"a": [], "c": []}

    async def has_ended() -> bool:
        rows = {node.name: await get_row(node, run) for node in (a, c)}
        for name, found in rows.items():
            seen[name].append(found["host_id"])
        return all(found["status"] == "lost" for found in rows.values())

    await wait_until(has_ended)
    (home,) = {host_ids[-1] for host_ids in seen.values()}
    assert home in (a.host_id, c.host_id)
    for host_ids in seen.values():
        assert host_ids[0] == b.host_id
        assert set(host_ids) == {b.host_id, home}, "nobody else's before it was taken over"
    assert b.host_id not in {host["id"] for host in (await a.http.list_hosts()).values() if host["online"]}
    exited = await app.wait_for(lambda frame: frame["type"] == "run.exited" and frame["run_id"] == run)
    assert exited["data"]


# Hosts that dial in


async def test_a_host_is_reached_from_every_node_and_told_by_each_who_asks(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    _, b, _ = nodes
    relay_network.hub = b
    host = await relay_network.connect_host("far")
    run = await start_run(host, "run-7")
    await asyncio.gather(*(wait_for_hosts(node, {"far"}) for node in nodes))
    apps = [await relay_network.connect_app(node) for node in nodes]
    for number, app in enumerate(apps):
        await app.send_command("run.send_input", run, input_id=f"i{number}", text=f"from {number}\r")
        told = await host.next_of_type("run.send_input", run)
        assert told["data"]["text"] == f"from {number}\r"
        await host.send_frames(
            host.make_event("run.error", run, None, {"error": f"no {number}", "command_id": told["data"]["command_id"]})
        )
        refusal = await app.next_of_type("run.error", run)
        assert refusal["data"]["error"] == f"no {number}"
        await app.send_command("rpc.fs.read", run, request_id=f"q{number}", path="x")
        await host.respond(await host.next_of_type("rpc.fs.read", run), result={"content": str(number)})
        assert (await app.wait_for_answer(f"q{number}"))["result"] == {"content": str(number)}
    await host.send_frames(*(host.make_output(run, seq) for seq in range(2, 102)))
    await host.wait_for_ack(run, 101)
    for app in apps:
        assert await read_up_to(app, run, 101) == collect_seqs(app, run)
        assert sorted(set(collect_seqs(app, run)))[-100:] == list(range(2, 102))


async def test_a_host_changes_its_node_in_the_middle_of_a_run_and_nothing_is_lost_or_twice(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    app = await relay_network.connect_app(a)
    relay_network.hub = b
    old = await relay_network.connect_host("far")
    run = await start_run(old, "run-7")
    await old.send_frames(*(old.make_output(run, seq) for seq in range(2, 200)))
    relay_network.hub = c
    new = await relay_network.connect_host("far")
    assert await old.wait_closed() == 4000
    # It does not know how far it came, so it tells everything again.
    await new.send_frames(new.make_started(run), *(new.make_output(run, seq) for seq in range(2, 302)))
    await new.wait_for_ack(run, 301)
    told = await read_up_to(app, run, 301)
    assert told == list(range(1, 302))
    await new.send_frames(new.make_event("run.exited", run, 302, {"exit_code": 0}))
    await new.wait_for_ack(run, 302)
    for node in nodes:
        assert (await get_row(node, run))["status"] == "exited"


async def test_a_host_is_shut_out_by_any_node(nodes: list[RestartableDaemon], relay_network: RelayNetwork) -> None:
    a, b, c = nodes
    relay_network.hub = b
    host = await relay_network.connect_host("far")
    await wait_for_hosts(c, {"far"})
    assert (await c.http.request("POST", "/hosts/far/refuse")).status == 204
    assert await host.wait_closed() == 4001
    for node in nodes:
        assert await get_refusal_status(node.connect_host("far")) == 403
        assert await get_refusal_status(node.connect_host(a.host_id)) == 403, "the id of a node"


async def test_a_host_whose_node_dies_goes_on_with_another_and_is_not_lost_meanwhile(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    at = [b]
    relay_network.hub = b
    balancer = await HubProxy(lambda: int(at[0].url.rpartition(":")[2])).open()
    host = await relay_network.start_host("far", url=balancer.url)
    await wait_for_hosts(a, {"host_far"})
    app, other = await relay_network.connect_app(a), await relay_network.connect_app(c)
    count = "for i in $(seq 1 400); do echo line $i; sleep 0.005; done; echo all told; cat"
    run = await app.start("host_far", count, cwd=str(host.workspace))
    await app.wait_for(lambda frame: frame["type"] == "run.output" and "line 50" in frame["data"]["text"])
    at[0] = c
    b.kill()
    for one in (app, other):
        await one.wait_for(lambda frame: frame["type"] == "run.output" and "all told" in frame["data"]["text"])
        assert_whole(one, run)
    assert (await get_row(a, run))["status"] != "lost"
    await wait_for_hosts(a, {"host_far"})
    await app.send_command("run.send_input", run, input_id="end", text="\x04")
    for one in (app, other):
        await one.wait_for(lambda frame: frame["type"] == "run.exited" and frame["run_id"] == run)
        assert [frame for frame in one.frames if frame["type"] == "run.lost"] == []
    await balancer.close()


async def test_a_host_that_goes_for_good_with_its_node_is_lost(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    relay_network.hub = b
    host = await relay_network.connect_host("far")
    run = await start_run(host, "run-7")
    await wait_for_hosts(a, {"far"})
    app = await relay_network.connect_app(a)
    b.kill()
    await app.wait_for(lambda frame: frame["type"] == "run.lost" and frame["run_id"] == run)
    for node in (a, c):
        assert (await get_row(node, run))["status"] == "lost"
    relay_network.hub = c
    back = await relay_network.connect_host("far")
    await app.wait_for(lambda frame: frame["type"] == "run.found" and frame["run_id"] == run)
    await back.send_frames(back.make_output(run, 2))
    await back.wait_for_ack(run, 2)


def assert_whole(app: RelayApp, run: str) -> None:
    """Each line is there once and in its place."""
    lines = [line for line in app.join_output(run).replace("\r", "").split("\n") if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, 401)]


async def test_a_node_that_was_stopped_and_wakes_up_gives_way_to_where_its_host_went(
    nodes: list[RestartableDaemon], relay_network: RelayNetwork
) -> None:
    a, b, c = nodes
    app = await relay_network.connect_app(a)
    relay_network.hub = b
    old = await relay_network.connect_host("far")
    run = await start_run(old, "run-7")
    await wait_for_hosts(c, {"far"})
    assert b.daemon is not None
    b.daemon.process.send_signal(signal.SIGSTOP)
    # What it had received, and may say when it wakes.
    await old.send_frames(*(old.make_output(run, seq) for seq in range(2, 20)))
    await wait_for_hosts(a, {b.host_id}, online=False)
    relay_network.hub = c
    new = await relay_network.connect_host("far")
    await new.send_frames(new.make_started(run), *(new.make_output(run, seq) for seq in range(2, 50)))
    await new.wait_for_ack(run, 49)
    b.daemon.process.send_signal(signal.SIGCONT)
    assert await old.wait_closed() == 4000
    await new.send_frames(*(new.make_output(run, seq) for seq in range(50, 60)))
    await new.wait_for_ack(run, 59)
    assert await read_up_to(app, run, 59) == list(range(1, 60))
    again = await relay_network.connect_app(b)
    await again.subscribe(run, after_id=0)
    assert await read_up_to(again, run, 59) == list(range(1, 60))
    assert [frame for frame in app.frames if frame["type"] == "run.lost"] == []
