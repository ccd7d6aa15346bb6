"""Nodes that come, go, stop and do not read."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.contracts import mesh as contracts_mesh
from tests.transports.mesh import strangers
from tests.transports.mesh.conftest import MakeMesh, make_peer

from switchtower.cluster.mesh import link, ports
from switchtower.cluster.mesh import mesh as meshes
from switchtower.cluster.mesh.tls import MeshKey
from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports import stream

PING, PONG = 9, 10
REPOSITORY = Path(__file__).parents[3]
"""The program imports the contract, which is no part of the installed package."""


class MeshNodeProcess:
    """A node in a process of its own."""

    def __init__(self, key: MeshKey, node_id: str, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "node_process.py"), node_id, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(key) + b"\n")
        self.process.stdin.close()
        self.address = self.process.stdout.readline().decode().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


StartNode = Callable[..., MeshNodeProcess]


@pytest.fixture
def start_node(key: MeshKey) -> Iterator[StartNode]:
    with ExitStack() as stack:

        def start(node_id: str, port: int = 0) -> MeshNodeProcess:
            node = MeshNodeProcess(key, node_id, port)
            stack.callback(node.kill)
            return node

        yield start


def send_requests(mesh: ports.Mesh, node_id: str, count: int) -> list["asyncio.Future[bytes | ports.MeshProblem]"]:
    return [contracts_mesh.request(mesh, node_id, "never") for _ in range(count)]


async def check_all_unreachable(asked: list["asyncio.Future[bytes | ports.MeshProblem]"], *, sent: bool) -> bool:
    answers = [await question for question in asked]
    return all(isinstance(answer, ports.NodeUnreachable) and answer.sent is sent for answer in answers)


async def test_kill_9_of_a_node_is_told_to_all_who_wait_and_it_is_met_again_when_it_is_back(
    make_mesh: MakeMesh, start_node: StartNode
) -> None:
    mesh, node, mine = await make_mesh("node_1"), start_node("node_2"), RecordingReceiver()
    mesh.update_nodes([("node_2", node.address)])
    await contracts_mesh.wait_until_met(mesh, "node_2")
    mesh.open_tunnel("node_2", "door", b"", mine)
    asked = send_requests(mesh, "node_2", 1_000)
    assert await contracts_mesh.request(mesh, "node_2", "echo", b"on") == b"on"
    node.kill()
    assert await check_all_unreachable(asked, sent=True)
    assert mine.closed
    assert mesh.peers == {}
    _host, port = meshes.parse_address(node.address)
    start_node("node_2", port)
    await contracts_mesh.wait_until_met(mesh, "node_2")
    assert await contracts_mesh.request(mesh, "node_2", "echo", b"on") == b"on"


async def test_a_node_that_is_stopped_is_taken_for_gone_and_met_again_when_it_goes_on(
    make_mesh: MakeMesh, start_node: StartNode
) -> None:
    mesh, node, mine = await make_mesh("node_1", silence=0.4), start_node("node_2"), RecordingReceiver()
    mesh.update_nodes([("node_2", node.address)])
    await contracts_mesh.wait_until_met(mesh, "node_2")
    mesh.open_tunnel("node_2", "door", b"", mine)
    node.process.send_signal(signal.SIGSTOP)
    asked = send_requests(mesh, "node_2", 10)
    assert await check_all_unreachable(asked, sent=True)
    assert mine.closed
    node.process.send_signal(signal.SIGCONT)
    await contracts_mesh.wait_until_met(mesh, "node_2")
    assert await contracts_mesh.request(mesh, "node_2", "echo", b"on") == b"on"


async def test_who_has_nothing_to_say_is_asked_whether_it_is_there_and_stays_when_it_is(
    make_mesh: MakeMesh, key: MeshKey
) -> None:
    mesh = await make_mesh("node_1", silence=0.2)
    went: list[ports.MeshPeer] = []
    async with strangers.open_listener(key) as (address, came):
        mesh.update_nodes([("node_2", address)])
        stranger = await came.get()
        stranger.send_hello(make_peer("node_2"))
        await contracts_mesh.wait_until_met(mesh, "node_2")
        mesh.watch(lambda _peer: None, went.append)
        assert (await stranger.receive())["peer"]["node_id"] == "node_1"
        for _ in range(3 * link.TICKS_OF_SILENCE):
            assert await stranger.receive() == [PING]
            stranger.send_bytes([PONG])
        assert went == []
        stranger_is_silent = asyncio.create_task(stranger.read_to_end())
        await contracts_mesh.wait_until_gone(mesh, "node_2")
        await stranger_is_silent


async def test_who_is_asked_whether_it_is_there_says_so(make_mesh: MakeMesh, key: MeshKey) -> None:
    mesh = await make_mesh("node_1")
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        stranger.send_hello(make_peer("node_2"))
        stranger.send_bytes([PING])
        await stranger.receive()
        assert await stranger.receive() == [PONG]


async def test_a_node_that_does_not_read_is_hung_up_on_and_its_askers_are_told(make_mesh: MakeMesh, key: MeshKey) -> None:
    mesh = await make_mesh("node_1", unsent_bytes=8 * 1024 * 1024)
    async with strangers.open_listener(key) as (address, came):
        mesh.update_nodes([("node_2", address)])
        stranger = await came.get()
        stranger.send_hello(make_peer("node_2"))
        await contracts_mesh.wait_until_met(mesh, "node_2")
        cast(asyncio.Transport, stranger.writer.transport).pause_reading()
        first = contracts_mesh.request(mesh, "node_2", "echo", b"first")
        more: list[asyncio.Future[bytes | ports.MeshProblem]] = []
        while not first.done():
            more.append(contracts_mesh.request(mesh, "node_2", "echo", bytes(1024 * 1024)))
            await asyncio.sleep(0)
        answer = await first
        assert isinstance(answer, ports.NodeUnreachable)
        assert answer.sent
        answers = [await question for question in more]
        assert all(isinstance(answer, ports.NodeUnreachable) for answer in answers)
        assert len(more) < 500


async def test_an_asker_of_much_that_is_read_is_not_hung_up_on(make_mesh: MakeMesh) -> None:
    here, there = await make_mesh("node_1", unsent_bytes=32 * 1024 * 1024), await make_mesh("node_2")
    there.handle_requests("size", lambda _node_id, body, reply: reply(b"%d" % len(body)))
    here.update_nodes([("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    for _round in range(4):
        asked = [contracts_mesh.request(here, "node_2", "size", bytes(10 * 1024 * 1024)) for _ in range(3)]
        assert [await question for question in asked] == [b"%d" % (10 * 1024 * 1024)] * 3


async def test_questions_beyond_the_bound_are_refused_and_were_not_sent(make_mesh: MakeMesh) -> None:
    here, there = await make_mesh("node_1", unanswered=100), await make_mesh("node_2")
    there.handle_requests("never", contracts_mesh.reply_never)
    here.update_nodes([("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    within = send_requests(here, "node_2", 100)
    assert await check_all_unreachable(send_requests(here, "node_2", 50), sent=False)
    assert not any(question.done() for question in within)
    await there.close()
    assert await check_all_unreachable(within, sent=True)


async def test_a_node_is_dialled_until_it_is_there(make_mesh: MakeMesh, caplog: pytest.LogCaptureFixture) -> None:
    here, gone = await make_mesh("node_1"), await make_mesh("node_2")
    await gone.close()
    here.update_nodes([("node_2", gone.address)])
    while "no connection to node node_2" not in caplog.text:
        await contracts_mesh.request(here, "node_2", "echo")
    _host, port = meshes.parse_address(gone.address)
    await make_mesh("node_2", port=port)
    await contracts_mesh.wait_until_met(here, "node_2")


async def test_another_node_at_an_address_is_not_the_one_that_was_dialled(
    make_mesh: MakeMesh, caplog: pytest.LogCaptureFixture
) -> None:
    here, other = await make_mesh("node_1"), await make_mesh("node_3")
    came: list[ports.MeshPeer] = []
    here.watch(came.append, lambda _peer: None)
    here.update_nodes([("node_2", other.address)])
    while "at that address there is node node_3 now" not in caplog.text:
        await contracts_mesh.request(here, "node_2", "echo")
    assert came == []
    here.update_nodes([("node_3", other.address)])
    await contracts_mesh.wait_until_met(here, "node_3")
    assert came == [other.local_peer]


async def test_a_node_that_moved_is_met_at_its_new_address(make_mesh: MakeMesh) -> None:
    here, old, new = await make_mesh("node_1"), await make_mesh("node_2"), await make_mesh("node_2")
    new.handle_requests("echo", contracts_mesh.reply_echo)
    here.update_nodes([("node_2", old.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    here.update_nodes([("node_2", new.address)])
    assert here.peers == {}
    await contracts_mesh.wait_until_met(here, "node_2")
    assert await contracts_mesh.request(here, "node_2", "echo", b"new") == b"new"


async def test_meeting_the_same_nodes_again_changes_nothing(make_mesh: MakeMesh) -> None:
    here, there = await make_mesh("node_1"), await make_mesh("node_2")
    there.handle_requests("never", contracts_mesh.reply_never)
    there.handle_requests("echo", contracts_mesh.reply_echo)
    here.update_nodes([("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    asked = contracts_mesh.request(here, "node_2", "never")
    here.update_nodes([("node_2", there.address)])
    assert await contracts_mesh.request(here, "node_2", "echo", b"on") == b"on"
    assert not asked.done()


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", ":80", "\0:80", "a..b:80"])
async def test_what_is_no_address_is_nobody_and_harms_no_other(make_mesh: MakeMesh, address: str) -> None:
    here, there = await make_mesh("node_1"), await make_mesh("node_2")
    here.update_nodes([("node_9", address), ("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    assert set(here.peers) == {"node_2"}


async def test_what_was_said_before_the_close_still_arrives(make_mesh: MakeMesh) -> None:
    here, there = await make_mesh("node_1"), await make_mesh("node_2")
    heard: list[bytes] = []
    last = asyncio.Event()

    def hear(_node_id: str, body: bytes) -> None:
        heard.append(body)
        if body == b"999":
            last.set()

    there.handle_notifications("count", hear)
    here.update_nodes([("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    for number in range(1_000):
        here.notify("node_2", "count", b"%d" % number)
    await here.close()
    await last.wait()
    assert heard == [b"%d" % number for number in range(1_000)]


async def test_a_closed_mesh_reaches_nobody_and_can_be_closed_again(make_mesh: MakeMesh) -> None:
    here, there = await make_mesh("node_1"), await make_mesh("node_2")
    here.update_nodes([("node_2", there.address)])
    await contracts_mesh.wait_until_met(here, "node_2")
    await here.close()
    await here.close()
    here.update_nodes([("node_2", there.address)])
    assert here.peers == {}
    assert isinstance(await contracts_mesh.request(here, "node_2", "echo"), ports.NodeUnreachable)


async def test_an_address_in_use_is_told_with_a_remedy(make_mesh: MakeMesh) -> None:
    first = await make_mesh("node_1")
    _host, port = meshes.parse_address(first.address)
    with pytest.raises(stream.AddressInUse, match="hint: "):
        await make_mesh("node_2", port=port)
    with pytest.raises(stream.CannotListen, match="hint: "):
        await make_mesh("node_2", host="203.0.113.1")


def test_addresses_are_spelled_as_they_are_read() -> None:
    for address in ("127.0.0.1:80", "[::1]:65535", "host.example:1"):
        assert meshes.format_address(*meshes.parse_address(address)) == address
