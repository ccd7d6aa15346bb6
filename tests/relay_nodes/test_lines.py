"""A host is connected to one node and reached from all: commands, calls, refusals, and who may stay."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.protocols.relay.hall import MemoryHost, report_run
from tests.relay_nodes.parts import ANN, RelayCluster, RelayNode, open_cluster

from switchtower.cluster import relay_hosts
from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, wire_values
from switchtower.protocols.relay.hub import connected_hosts
from switchtower.testing.session_driver import OWNER

READ = messages.FsRead("q", "notes.txt")


@pytest.fixture
async def three_nodes(tmp_path: Path) -> AsyncIterator[RelayCluster]:
    async with open_cluster(tmp_path, "a", "b", "c") as made:
        yield made


async def connect_host(made: RelayCluster, node: RelayNode, host_id: str = "h") -> MemoryHost:
    """A host that has come in at a node, and that all nodes know of."""
    host = await node.connect_host(host_id)
    for other in made.nodes:
        await other.wait_for_host(host_id)
    return host


def start_call(node: RelayNode, request_id: str = "q") -> "asyncio.Future[Any]":
    asked = messages.FsRead(request_id, "notes.txt")
    return asyncio.ensure_future(node.hub.call_on_run("rpc.fs.read", "run-7", asked, ANN))


def watch_losses(node: RelayNode) -> tuple[asyncio.Event, asyncio.Event]:
    """Set when the node has lost another, and when it has found one again after that."""
    parted, met = asyncio.Event(), asyncio.Event()
    node.mesh.watch(lambda peer: met.set() if parted.is_set() else None, lambda peer: parted.set())
    return parted, met


# Commands


async def test_what_an_app_on_any_node_commands_reaches_the_host_once_and_in_order(three_nodes: RelayCluster) -> None:
    _, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    for node in three_nodes.nodes:
        app = node.connect_app()
        for number in range(20):
            app.send_message("run.send_stdin", "run-7", text=str(number), more={"er": 1})
        for number in range(20):
            told = await host.list_messages()
            assert (told["type"], told["run_id"], told["host_id"]) == ("run.send_stdin", "run-7", "h")
            assert told["data"].pop("command_id").startswith(f"{node.node_id}.")
            assert told["data"] == {"text": str(number), "more": {"er": 1}, "actor": "web", "by": "ann"}


async def test_a_late_refusal_reaches_who_asked_on_whichever_node_and_nobody_else(three_nodes: RelayCluster) -> None:
    a, b, c = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    apps = [node.connect_app() for node in (a, b, c)]
    commands_ = []
    for app in apps:
        app.send_message("run.stop", "run-7")
        commands_.append((await host.list_messages())["data"]["command_id"])
    assert len(set(commands_)) == 3, "numbers of different nodes are different"
    for command_id in commands_:
        for _ in range(2):
            host.send_message("run.error", "run-7", error=f"no to {command_id}", command_id=command_id)
    for app, command_id in zip(apps, commands_, strict=True):
        assert (await app.wait_for_message("run.error"))["data"] == {"error": f"no to {command_id}"}
        await app.request("rpc.host.info", host_id="machine_b")
        assert [other["type"] for other in app.others].count("run.error") == 0


async def test_a_host_cannot_refuse_what_another_was_told_by_another_node(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    host, forger = await connect_host(three_nodes, b), await connect_host(three_nodes, b, "forger")
    await report_run(three_nodes.runtime, "h", "run-7")
    app = a.connect_app()
    app.send_message("run.stop", "run-7")
    command_id = (await host.list_messages())["data"]["command_id"]
    forger.send_message("run.error", "run-7", error="forged", command_id=command_id)
    await forger.drain()
    host.send_message("run.error", "run-7", error="true", command_id=command_id)
    assert (await app.wait_for_message("run.error"))["data"] == {"error": "true"}


@pytest.mark.parametrize(
    "command_id", ["", ".", "node_a.", "node_a.999", "node_x.1", ".1", "node_b.1", "1", None, 7, {}], ids=repr
)
async def test_a_refusal_of_what_was_never_asked_is_nobodys(three_nodes: RelayCluster, command_id: object) -> None:
    a, b, _ = three_nodes.nodes
    host, app = await connect_host(three_nodes, b), a.connect_app()
    host.send_message("run.error", "run-7", error="no", command_id=command_id)
    await host.drain()
    await app.request("rpc.host.info", host_id="machine_b")
    assert app.others == []


async def test_what_other_protocols_ask_finds_the_host_on_another_node(three_nodes: RelayCluster) -> None:
    _, _, c = three_nodes.nodes
    host = await connect_host(three_nodes, c)
    await report_run(three_nodes.runtime, "h", "run-7")
    keys = commands.TypeKeys(session_id=wire_values.parse_run_id("run-7"), actor=OWNER, text="x")
    assert "run_id" in await three_nodes.runtime.ask(keys)
    assert (await host.list_messages())["data"]["text"] == "x"


async def test_a_host_that_no_node_has_is_offline_on_all_of_them(three_nodes: RelayCluster) -> None:
    _, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    host.stream.abort()
    for node in three_nodes.nodes:
        await node.wait_for_host("h", online=False)
        with pytest.raises(errors.HostOffline, match=r"^host offline$"):
            await node.hub.send_command("run.stop", "run-7", messages.Stop(), ANN)
        with pytest.raises(errors.HostOffline, match=r"^host offline$"):
            await start_call(node)
    keys = commands.TypeKeys(session_id=wire_values.parse_run_id("run-7"), actor=OWNER, text="x")
    with pytest.raises(core_errors.HostUnreachable):
        await three_nodes.runtime.ask(keys)


async def test_a_host_that_went_while_a_command_was_on_its_way_is_offline(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    host.stream.abort()
    await host.is_cut()
    # The other node has not heard of it yet.
    with pytest.raises(errors.HostOffline, match=r"^host offline$"):
        await a.hub.send_command("run.stop", "run-7", messages.Stop(), ANN)


# Calls


async def test_a_call_through_another_node_has_the_hosts_result_and_its_refusals(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    call = start_call(a)
    asked = await host.list_messages()
    assert (asked["type"], asked["run_id"], asked["host_id"]) == ("rpc.fs.read", "run-7", "h")
    host.respond(asked, result={"content": "hello", "more": [1, None, 1.5]})
    assert await call == {"content": "hello", "more": [1, None, 1.5]}
    call = start_call(a)
    host.respond(await host.list_messages(), ok=False, error="path must be relative")
    with pytest.raises(errors.RelayError, match=r"^path must be relative$"):
        await call
    call = asyncio.ensure_future(a.hub.call_on_host("rpc.host.info", "h", messages.HostLook("q"), ANN))
    host.respond(await host.list_messages(), result={"host_id": "h"})
    assert await call == {"host_id": "h"}


async def test_an_id_in_use_is_in_use_on_every_node(three_nodes: RelayCluster) -> None:
    a, b, c = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    first = start_call(a)
    asked = await host.list_messages()
    for node in (a, b, c):
        with pytest.raises(errors.RelayError, match="already in use"):
            await start_call(node)
    host.respond(asked, result=1)
    assert await first == 1


async def test_who_waits_for_a_host_of_another_node_is_told_when_the_host_or_the_node_goes(three_nodes: RelayCluster) -> None:
    a, b, c = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    call = start_call(a)
    await host.list_messages()
    host.stream.abort()
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await call
    await a.wait_for_host("h", online=False)
    host = await connect_host(three_nodes, b)
    call = start_call(a)
    await host.list_messages()
    three_nodes.join([a, c], [b])
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await call


# A host that comes anew


async def test_a_host_that_comes_to_another_node_is_cut_off_at_the_first_and_reached_at_the_second(
    three_nodes: RelayCluster,
) -> None:
    a, b, c = three_nodes.nodes
    old = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    call = start_call(a)
    await old.list_messages()
    new = await c.connect_host("h")
    assert await old.is_cut() == (connected_hosts.REPLACED, "replaced by a new connection")
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await call
    for node in (b, a, c):
        assert await node.is_host_online("h")
        call = start_call(node)
        new.respond(await new.list_messages(), result=node.name)
        assert await call == node.name
    assert not new.closed


async def test_a_host_that_comes_back_and_forth_is_where_it_came_last(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    await report_run(three_nodes.runtime, "h", "run-7")
    host = await connect_host(three_nodes, a)
    for number in range(10):
        older, host = host, await (b if number % 2 == 0 else a).connect_host("h")
        assert await older.is_cut() == (connected_hosts.REPLACED, "replaced by a new connection")
    for node in three_nodes.nodes:
        call = start_call(node)
        host.respond(await host.list_messages(), result=node.name)
        assert await call == node.name


async def test_of_two_connections_that_come_at_once_exactly_one_stays(three_nodes: RelayCluster) -> None:
    hosts = [await node.connect_host("h") for node in three_nodes.nodes]
    await three_nodes.wait_until(lambda: [host.closed for host in hosts].count(False) == 1)
    (host,) = [host for host in hosts if not host.closed]
    await report_run(three_nodes.runtime, "h", "run-7")
    for node in three_nodes.nodes:
        call = start_call(node)
        host.respond(await host.list_messages(), result=node.name)
        assert await call == node.name


async def test_nodes_that_meet_again_agree_on_where_a_host_is(three_nodes: RelayCluster) -> None:
    a, b, c = three_nodes.nodes
    old = await connect_host(three_nodes, a)
    await three_nodes.join_nodes([a], [b, c])
    new = await b.connect_host("h")
    await new.drain()
    assert not old.closed, "nobody could say so"
    await three_nodes.join_nodes(three_nodes.nodes)
    await three_nodes.wait_until(lambda: old.closed != new.closed)
    host = new if old.closed else old
    await report_run(three_nodes.runtime, "h", "run-7")
    for node in three_nodes.nodes:
        call = start_call(node)
        host.respond(await host.list_messages(), result=node.name)
        assert await call == node.name


async def test_a_host_that_went_from_its_last_node_is_gone_wherever_it_was_before(three_nodes: RelayCluster) -> None:
    a, b, c = three_nodes.nodes
    host = await connect_host(three_nodes, a)
    for node in (b, c, a, c):
        older, host = host, await connect_host(three_nodes, node)
        await older.is_cut()
    host.stream.abort()
    for node in three_nodes.nodes:
        await node.wait_for_host("h", online=False)


async def test_a_node_that_found_its_way_back_knows_the_hosts_of_the_other_again(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    await connect_host(three_nodes, b)
    parted, met = watch_losses(a)
    # Only the one way: the other node still speaks to this one, and has no reason to say anything again.
    a.mesh._dialled_links["node_b"].close("for a test")
    async with asyncio.timeout(60):
        await parted.wait()
        assert not await a.is_host_online("h")
        await met.wait()
    await a.wait_for_host("h")


async def test_what_a_node_says_that_cannot_be_reached_does_not_count(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        parted, met = watch_losses(b)
        a.mesh.update_nodes([])
        async with asyncio.timeout(60):
            await parted.wait()
            await met.wait()
        assert "node_b" not in a.mesh.peers
        await b.connect_host("h")
        answers: list[Any] = []
        b.mesh.request("node_a", relay_hosts.HOST_CALL, b"", answers.append)
        await made.wait_until(lambda: len(answers) == 1)
        assert isinstance(answers[0], bytes), "this was heard, and so was what was said before"
        assert not await a.is_host_online("h")
        await made.join_nodes(made.nodes)
        await a.wait_for_host("h")


# Who may stay


@pytest.mark.parametrize(
    ("verb", "reason"),
    [("refuse", "this host is refused"), ("remove", "this host was removed"), ("rotate", "come back with a new token")],
)
async def test_a_host_is_shut_out_from_any_node(three_nodes: RelayCluster, verb: str, reason: str) -> None:
    a, b, _ = three_nodes.nodes
    host, other = await connect_host(three_nodes, b), await connect_host(three_nodes, b, "other")
    verbs = {
        "refuse": lambda: a.hub.set_host_state("h", "refused"),
        "remove": lambda: a.hub.remove_host("h"),
        "rotate": lambda: a.hub.rotate_host("h"),
    }
    assert await verbs[verb]()
    assert await host.is_cut() == (connected_hosts.REMOVED, reason)
    await other.drain()


async def test_a_host_that_was_shut_out_while_its_node_was_away_is_shut_out_later(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", lost_after_s=0.01) as made:
        a, b = made.nodes
        host = await connect_host(made, b)
        await made.join_nodes([a], [b])
        assert await a.hub.set_host_state("h", "refused")
        async with asyncio.timeout(60):
            while not host.closed:
                host.send_message("host.heartbeat")
                await made.run_network_turn()
        assert host.hubs_end.closed_with == (connected_hosts.REMOVED, "this host may not stay")


# What cannot be read


RUBBISH = [b"", b"\xff" * 10, b"{}", msgspec.msgpack.encode({}), msgspec.msgpack.encode([1, 2]), b"\x91" * 5_000]


@pytest.mark.parametrize("body", RUBBISH, ids=lambda body: repr(body[:8]))
async def test_rubbish_from_another_node_is_refused_and_harms_nobody(three_nodes: RelayCluster, body: bytes) -> None:
    a, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    for subject in (relay_hosts.PRESENCE, relay_hosts.HOST_DISCONNECT, relay_hosts.DELAYED_REFUSAL):
        assert a.mesh.notify("node_b", subject, body)
    answers: list[Any] = []
    for subject in (relay_hosts.HOST_SEND, relay_hosts.HOST_CALL, relay_hosts.RUN_RPC, relay_hosts.HOST_RPC):
        a.mesh.request("node_b", subject, body, answers.append)
    await three_nodes.wait_until(lambda: len(answers) == 4)
    assert [relay_hosts.decode(answer, relay_hosts.NodeReply).ok for answer in answers] == [False] * 4
    call = start_call(a)
    host.respond(await host.list_messages(), result=1)
    assert await call == 1


@pytest.mark.parametrize(
    ("rpc", "refusal"),
    [
        (relay_hosts.NodeRpcMessage("rpc.no.such", b"", ANN), "unknown rpc type"),
        (relay_hosts.NodeRpcMessage("rpc.fs.read", relay_hosts.encode(READ), ANN), "unknown run_id"),
        (relay_hosts.NodeRpcMessage("rpc.fs.read", relay_hosts.encode(READ), ANN, "sess_x"), "unknown run_id"),
        (relay_hosts.NodeRpcMessage("rpc.fs.read", relay_hosts.encode(READ), ANN, "x" * 1_000), "unknown run_id"),
    ],
)
async def test_what_a_node_of_another_version_may_ask_is_refused_in_relays_words(
    three_nodes: RelayCluster, rpc: relay_hosts.NodeRpcMessage, refusal: str
) -> None:
    a, _, _ = three_nodes.nodes
    answers: list[Any] = []
    a.mesh.request("node_b", relay_hosts.RUN_RPC, relay_hosts.encode(rpc), answers.append)
    await three_nodes.wait_until(lambda: len(answers) == 1)
    assert relay_hosts.decode(answers[0], relay_hosts.NodeReply).error == refusal


async def test_a_result_of_many_bytes_comes_whole(three_nodes: RelayCluster) -> None:
    a, b, _ = three_nodes.nodes
    host = await connect_host(three_nodes, b)
    await report_run(three_nodes.runtime, "h", "run-7")
    call = start_call(a)
    content = "é" * 2_000_000
    host.respond(await host.list_messages(), result={"content": content})
    assert await call == {"content": content}


async def test_events_of_a_mirrored_run_name_its_host_on_every_node(three_nodes: RelayCluster) -> None:
    _, b, _ = three_nodes.nodes
    apps = [node.connect_app() for node in three_nodes.nodes]
    await connect_host(three_nodes, b)
    outlet = await report_run(three_nodes.runtime, "h", "run-7")
    await outlet.wait_for_event(events.SessionStarted)
    for app in apps:
        assert (await app.wait_for_message("run.started"))["host_id"] == "h"
