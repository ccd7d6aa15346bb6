"""What nodes are called, and where they are not named at all."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import ScriptedConnection, ScriptedPushServer

from switchtower.client import errors, node_names
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import listing_messages


def make_node(node_id: str, name: str, **more: Any) -> listing_messages.Node:
    usual = {"address": "a:1", "version": "1", "alive": True, "draining": False, "sessions": 0, "joinedAt": 1, "isThis": False}
    return listing_messages.Node(id=node_id, name=name, **{**usual, **more})


def test_each_home_has_its_node_s_name() -> None:
    known = node_names.NodeNames([make_node("node_A", "attic"), make_node("node_B", "barn", isThis=True)])

    assert [known.format_owner("node_A"), known.format_owner("node_B")] == ["attic", "barn"]
    assert known.own_node is not None
    assert known.own_node.name == "barn"


def test_nodes_of_one_name_are_told_apart_by_the_end_of_their_ids() -> None:
    known = node_names.NodeNames(
        [make_node("node_01AAAAAA", "attic"), make_node("node_01BBBBBB", "attic"), make_node("node_01CCCCCC", "barn")]
    )

    assert [known.get_name(one.id) for one in known.nodes] == ["attic …AAAAAA", "attic …BBBBBB", "barn"]


def test_a_node_that_was_forgotten_is_called_by_its_id() -> None:
    known = node_names.NodeNames([make_node("node_A", "attic"), make_node("node_B", "barn")])

    assert known.format_owner("node_01ZZZZZZ") == "…ZZZZZZ"


def test_nobody_is_named_where_there_is_but_one_node_or_none_has_the_session() -> None:
    assert node_names.NO_NODES.format_owner(None) == node_names.NO_NODES.format_owner("node_A") == ""
    assert node_names.NodeNames([make_node("node_A", "attic")]).format_owner("node_A") == ""
    assert node_names.NodeNames([make_node("node_A", "attic"), make_node("node_B", "barn")]).format_owner(None) == ""


@given(st.lists(st.tuples(st.text(max_size=8), st.sampled_from(["attic", "barn"])), unique_by=lambda one: one[0][-6:]))
def test_no_two_nodes_are_shown_alike(made: list[tuple[str, str]]) -> None:
    known = node_names.NodeNames([make_node(*one) for one in made])

    assert len({known.get_name(one.id) for one in known.nodes}) == len(made)


async def test_an_older_daemon_is_alone_and_is_not_even_asked(daemon: ScriptedPushServer) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting("cards")
        assert await wire.reader.read() == b"", "nothing was asked"

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        assert (await node_names.fetch_node_names(client)).nodes == []
        with pytest.raises(errors.DaemonTooOld):
            await client.drain_node(1)


async def test_a_list_does_without_names_that_cannot_be_told_now(daemon: ScriptedPushServer) -> None:
    async def refuse(wire: ScriptedConnection) -> None:
        await wire.send_greeting("nodes")
        await wire.refuse(await wire.request(), "INTERNAL_ERROR", retryable=True)
        await wire.wait_closed()

    await daemon.serve(refuse)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        assert await node_names.fetch_node_names(client) is node_names.NO_NODES


async def test_whoever_is_let_go_while_a_node_drains_asks_again_and_is_told(daemon: ScriptedPushServer) -> None:
    seen: list[dict[str, Any]] = []

    async def let_go(wire: ScriptedConnection) -> None:
        await wire.send_greeting("nodes")
        seen.append((await wire.request())["payload"])

    async def told(wire: ScriptedConnection) -> None:
        await wire.send_greeting("nodes")
        seen.append((request := await wire.request())["payload"])
        await wire.answer(request, {"sessions": 3, "interrupted": 0})
        await wire.wait_closed()

    await daemon.serve(let_go, told)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        drained = await client.drain_node(12.5)

    assert msgspec.to_builtins(drained) == {"sessions": 3, "interrupted": 0}
    assert seen == [{"waitSeconds": 12.5}, {"waitSeconds": 12.5}]
