"""What a holder of the key may say that is not of the protocol: it is hung up on, and nobody else notices."""

import asyncio
import contextlib
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts import mesh as contracts_mesh
from tests.transports.mesh import strangers
from tests.transports.mesh.conftest import MakeMesh, make_peer

from switchtower.cluster.mesh import frames as mesh_frames
from switchtower.cluster.mesh import link
from switchtower.cluster.mesh.mesh import TcpMesh
from switchtower.cluster.mesh.ports import ReplyCallback
from switchtower.cluster.mesh.tls import MeshKey
from switchtower.testing.memory.stream import RecordingReceiver

DEEP = b"\x91" * 100_000


async def check_still_serving(mesh: TcpMesh, make_mesh: MakeMesh) -> bool:
    other = await make_mesh("node_9")
    other.update_nodes([(mesh.local_peer.node_id, mesh.address)])
    await contracts_mesh.wait_until_met(other, mesh.local_peer.node_id)
    return await contracts_mesh.request(other, mesh.local_peer.node_id, "echo", b"on") == b"on"


@pytest.fixture
async def mesh(make_mesh: MakeMesh) -> TcpMesh:
    mesh = await make_mesh("node_1", silence=600)  # so that whoever is hung up on was not merely silent
    mesh.handle_requests("echo", contracts_mesh.reply_echo)
    mesh.handle_requests("never", contracts_mesh.reply_never)
    mesh.accept_tunnels("door", lambda _node_id, _opening: RecordingReceiver())
    mesh.accept_tunnels("closed door", lambda _node_id, _opening: contracts_mesh.SlowReceiver())
    return mesh


@pytest.mark.parametrize(
    "rubbish",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a frame of four gigabytes"),
        pytest.param((mesh_frames.MOST_HELLO_BYTES + 1).to_bytes(4) + b"\0", id="a long hello"),
        pytest.param(mesh_frames.add_length_prefix(b""), id="nothing"),
        pytest.param(mesh_frames.add_length_prefix(b"\xc1" * 50), id="no MessagePack"),
        pytest.param(mesh_frames.add_length_prefix(DEEP[:60_000]), id="deep"),
        pytest.param(mesh_frames.add_length_prefix(msgspec.msgpack.encode({"protocol": "one"})), id="wrong types"),
        pytest.param(mesh_frames.add_length_prefix(msgspec.msgpack.encode({"protocol": 1})), id="nobody"),
        pytest.param(mesh_frames.add_length_prefix(msgspec.msgpack.encode([1, 1, "echo", b""])), id="a question first"),
        pytest.param(mesh_frames.add_length_prefix(b"\x81\xa8protocol\x01\xa4\xff\xff\xff\xff"), id="no UTF-8"),
    ],
)
async def test_a_first_frame_that_is_no_hello_is_the_last(
    mesh: TcpMesh, key: MeshKey, make_mesh: MakeMesh, rubbish: bytes
) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.writer.write(rubbish)
        await stranger.read_to_end()
    assert await check_still_serving(mesh, make_mesh)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([99, "from the future"], id="unknown envelope"),
        pytest.param([1, -1], id="too short"),
        pytest.param([1, "one", "echo", b""], id="wrong types"),
        pytest.param([1, 2**70 // 2**10, "echo", "no bytes"], id="a string in place of bytes"),
        pytest.param({"number": 1}, id="a map"),
        pytest.param(None, id="nothing"),
        pytest.param([3, 1, b"answer"], id="an answer"),
        pytest.param([6, 1, [b"x" * 400_000]], id="beyond the window"),
    ],
)
async def test_words_that_are_not_of_the_protocol_are_the_last(
    mesh: TcpMesh, key: MeshKey, make_mesh: MakeMesh, words: Any
) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes([5, 1, "door", b""])
        stranger.send_bytes(words)
        await stranger.read_to_end()
    assert await check_still_serving(mesh, make_mesh)


async def test_a_frame_that_is_too_long_is_the_last(mesh: TcpMesh, key: MeshKey, make_mesh: MakeMesh) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.writer.write((mesh_frames.MOST_FRAME_BYTES + 1).to_bytes(4) + b"\x94")
        await stranger.read_to_end()
    assert await check_still_serving(mesh, make_mesh)


async def test_a_tunnel_is_opened_once(mesh: TcpMesh, key: MeshKey) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes([5, 1, "door", b""], [5, 1, "door", b""])
        await stranger.read_to_end()


async def test_who_fills_a_tunnel_that_is_not_read_beyond_its_window_is_hung_up_on(mesh: TcpMesh, key: MeshKey) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes([5, 1, "closed door", b""], *[[6, 1, [b""] * 100]] * 1_000)
        await stranger.read_to_end()


async def test_who_asks_more_than_may_be_unanswered_is_hung_up_on(mesh: TcpMesh, key: MeshKey) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes(*([1, number, "never", b""] for number in range(link.MOST_UNANSWERED + 1)))
        await stranger.read_to_end()


async def test_fields_of_a_later_version_are_skipped(mesh: TcpMesh, key: MeshKey) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"), colour="green", more={"a": [1, 2]})
        stranger.send_bytes([1, 7, "echo", b"on", "urgent", {"deadline": 5}])
        assert (await stranger.receive())["peer"]["node_id"] == "node_1"
        assert await stranger.receive() == [3, 7, b"on"]


async def test_a_node_of_another_protocol_is_refused_with_a_word_in_the_log(
    mesh: TcpMesh, key: MeshKey, caplog: pytest.LogCaptureFixture
) -> None:
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_bytes({"protocol": mesh_frames.PROTOCOL + 1, "nothing": "else is known"})
        await stranger.read_to_end()
    assert f"it speaks protocol {mesh_frames.PROTOCOL + 1} and this node {mesh_frames.PROTOCOL}" in caplog.text


async def test_who_comes_again_takes_the_place_of_its_older_connection(mesh: TcpMesh, key: MeshKey) -> None:
    async with (
        strangers.dial(mesh.address, key.create_client_context()) as older,
        strangers.dial(mesh.address, key.create_client_context()) as newer,
    ):
        older.send_hello(make_peer("node_2"))
        older.send_bytes([1, 1, "echo", b"older"])
        assert (await older.receive())["protocol"] == mesh_frames.PROTOCOL
        assert await older.receive() == [3, 1, b"older"]
        newer.send_hello(make_peer("node_2"))
        await older.read_to_end()
        newer.send_bytes([1, 1, "echo", b"newer"])
        await newer.receive()
        assert await newer.receive() == [3, 1, b"newer"]


async def test_an_answer_that_nobody_asked_for_ends_the_connection_and_it_is_dialled_again(mesh: TcpMesh, key: MeshKey) -> None:
    async with strangers.open_listener(key) as (address, came):
        mesh.update_nodes([("node_2", address)])
        stranger = await came.get()
        stranger.send_hello(make_peer("node_2"))
        await contracts_mesh.wait_until_met(mesh, "node_2")
        stranger.send_bytes([3, 12_345, b"?"])
        again = await came.get()
        again.send_hello(make_peer("node_2"))
        await contracts_mesh.wait_until_met(mesh, "node_2")


async def test_strangers_are_only_so_many_and_nodes_still_get_in_when_they_leave(mesh: TcpMesh, make_mesh: MakeMesh) -> None:
    async with contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(strangers.dial(mesh.address, None)) for _ in range(260)]
        await crowd[-1].read_to_end()
    assert await check_still_serving(mesh, make_mesh)


async def test_a_reply_to_an_asker_that_has_gone_harms_nobody(mesh: TcpMesh, key: MeshKey, make_mesh: MakeMesh) -> None:
    replies: list[ReplyCallback] = []
    asked = asyncio.Event()

    def keep(_node_id: str, _body: bytes, reply: ReplyCallback) -> None:
        replies.append(reply)
        asked.set()

    mesh.handle_requests("keep", keep)
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes([1, 1, "keep", b""])
        await asked.wait()
    while mesh._callers:
        await asyncio.sleep(0)
    replies[0](b"too late")
    assert await check_still_serving(mesh, make_mesh)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_unreadable(data: bytes) -> None:
    for decode in (mesh_frames.decode, mesh_frames.decode_hello):
        with contextlib.suppress(mesh_frames.MeshProtocolError):
            decode(memoryview(data))


def test_deep_nesting_is_unreadable() -> None:
    for frame in (DEEP, b"\x95\x01\x01\xa0\xc4\x00" + DEEP, b"\x82\xa8protocol\x01\xa1x" + DEEP):
        for decode in (mesh_frames.decode, mesh_frames.decode_hello):
            with pytest.raises(mesh_frames.MeshProtocolError):
                decode(memoryview(frame))


@given(st.lists(st.binary(max_size=40), max_size=10), st.lists(st.integers(min_value=1, max_value=30), max_size=60))
def test_frames_are_the_same_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(mesh_frames.add_length_prefix, bodies))
    splitter = mesh_frames.FrameSplitter(100)
    found: list[bytes] = []
    for cut in [*cuts, len(data)]:
        found += map(bytes, splitter.feed(data[:cut]))
        data = data[cut:]
    found += map(bytes, splitter.feed(data)) if data else []
    assert found == bodies


def test_a_frame_may_be_as_long_as_the_limit_and_no_longer() -> None:
    splitter = mesh_frames.FrameSplitter(100)
    assert [bytes(frame) for frame in splitter.feed(mesh_frames.add_length_prefix(bytes(100)))] == [bytes(100)]
    with pytest.raises(mesh_frames.MeshProtocolError):
        splitter.feed((101).to_bytes(4))


def test_an_unfinished_hello_is_not_kept_beyond_its_limit() -> None:
    splitter = mesh_frames.FrameSplitter(1_000)
    splitter.feed((1_000).to_bytes(4))
    frames = []
    for _ in range(100):
        frames += splitter.feed(os.urandom(10))
    assert len(frames) == 1
