"""What every mesh between nodes must do, as tests. A mesh's own test file subclasses `MeshContract` and says how to make some.

    class TestMyMesh(MeshContract):
        @pytest.fixture
        def make_meshes(self):
            async def make(count):
                return [...]
            return make

The tests are coroutines: run them with pytest-asyncio's `asyncio_mode = "auto"`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import pytest

from switchtower.cluster.mesh import ports
from switchtower.cluster.mesh.tunnel import WINDOW_BYTES, Tunnel
from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports.stream import Packet, Receiver, Stream


class ClosableMesh(ports.Mesh, Protocol):
    @property
    def address(self) -> str: ...

    async def close(self) -> None: ...


MakeMeshes = Callable[[int], Awaitable[Sequence[ClosableMesh]]]
"""So many meshes, each connected to all others."""
Meshes = Sequence[ClosableMesh]


def request(mesh: ports.Mesh, node_id: str, subject: str, body: bytes = b"") -> "asyncio.Future[bytes | ports.MeshProblem]":
    """The answer, or what came in its place. A second answer would be an error of the future's."""
    future: asyncio.Future[bytes | ports.MeshProblem] = asyncio.get_running_loop().create_future()
    mesh.request(node_id, subject, body, future.set_result)
    return future


async def wait_until_met(mesh: ports.Mesh, node_id: str) -> None:
    met = asyncio.Event()
    stop = mesh.watch(lambda peer: met.set() if peer.node_id == node_id else None, lambda _peer: None)
    await met.wait()
    stop()


async def wait_until_gone(mesh: ports.Mesh, node_id: str) -> None:
    gone = asyncio.Event()
    stop = mesh.watch(lambda _peer: None, lambda peer: gone.set() if peer.node_id == node_id else None)
    if node_id in mesh.peers:
        await gone.wait()
    stop()


def reply_echo(_node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
    reply(body)


def reply_never(_node_id: str, _body: bytes, _reply: ports.ReplyCallback) -> None: ...


class SlowReceiver(RecordingReceiver):
    """Does not read before it is told to."""

    def on_connected(self, stream: Stream) -> None:
        super().on_connected(stream)
        stream.pause_reading()


class TunnelRecorder:
    """Hosts tunnels and keeps an inbox for each."""

    def __init__(self, *, reading: bool = True) -> None:
        self.inboxes: list[RecordingReceiver] = []
        self.openings: list[tuple[str, bytes]] = []
        self._reading = reading
        self._came = asyncio.Event()

    def accept(self, node_id: str, opening: bytes) -> Receiver:
        inbox = RecordingReceiver() if self._reading else SlowReceiver()
        self.inboxes.append(inbox)
        self.openings.append((node_id, opening))
        self._came.set()
        return inbox

    async def next_inbox(self) -> RecordingReceiver:
        while not self.inboxes:
            self._came.clear()
            await self._came.wait()
        return self.inboxes.pop(0)


class MeshContract:
    @pytest.fixture
    def make_meshes(self) -> MakeMeshes:
        raise NotImplementedError

    @pytest.fixture
    async def meshes(self, make_meshes: MakeMeshes) -> Meshes:
        return await make_meshes(2)

    @pytest.fixture
    def local_mesh(self, meshes: Meshes) -> ClosableMesh:
        return meshes[0]

    @pytest.fixture
    def remote_mesh(self, meshes: Meshes) -> ClosableMesh:
        return meshes[1]

    # Who is there

    async def test_each_node_knows_all_others_as_they_tell_of_themselves(self, make_meshes: MakeMeshes) -> None:
        meshes = await make_meshes(3)
        for mesh in meshes:
            assert dict(mesh.peers) == {other.local_peer.node_id: other.local_peer for other in meshes if other is not mesh}

    async def test_who_watches_is_told_at_once_of_who_is_there_and_later_of_who_goes(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        told: list[tuple[str, ports.MeshPeer]] = []
        gone = asyncio.Event()

        def went(peer: ports.MeshPeer) -> None:
            told.append(("went", peer))
            assert peer.node_id not in local_mesh.peers
            gone.set()

        local_mesh.watch(lambda peer: told.append(("came", peer)), went)
        assert told == [("came", remote_mesh.local_peer)]
        await remote_mesh.close()
        await gone.wait()
        assert told == [("came", remote_mesh.local_peer), ("went", remote_mesh.local_peer)]

    async def test_who_stopped_watching_is_told_nothing(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        told: list[ports.MeshPeer] = []
        stop = local_mesh.watch(lambda _peer: None, told.append)
        stop()
        await remote_mesh.close()
        await wait_until_gone(local_mesh, remote_mesh.local_peer.node_id)
        assert told == []

    async def test_who_is_no_longer_among_the_nodes_is_hung_up_on_at_once(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        remote_mesh.handle_requests("never", reply_never)
        asked = request(local_mesh, remote_mesh.local_peer.node_id, "never")
        local_mesh.update_nodes([])
        assert local_mesh.peers == {}
        answer = await asked
        assert isinstance(answer, ports.NodeUnreachable)
        assert not local_mesh.notify(remote_mesh.local_peer.node_id, "greeting", b"")

    async def test_who_is_no_longer_among_the_nodes_is_not_answered_either(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        asked_here = asyncio.Event()
        local_mesh.handle_requests("never", lambda _node_id, _body, _reply: asked_here.set())
        asked = request(remote_mesh, local_mesh.local_peer.node_id, "never")
        await asked_here.wait()
        local_mesh.update_nodes([])
        assert isinstance(await asked, ports.NodeUnreachable)

    async def test_a_node_that_is_among_them_again_is_met_again(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        remote_mesh.handle_requests("echo", reply_echo)
        local_mesh.update_nodes([])
        local_mesh.update_nodes([(remote_mesh.local_peer.node_id, remote_mesh.address)])
        await wait_until_met(local_mesh, remote_mesh.local_peer.node_id)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"again") == b"again"

    async def test_a_node_does_not_meet_itself(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        local_mesh.update_nodes(
            [(local_mesh.local_peer.node_id, local_mesh.address), (remote_mesh.local_peer.node_id, remote_mesh.address)]
        )
        assert set(local_mesh.peers) == {remote_mesh.local_peer.node_id}

    # Questions

    async def test_a_question_is_answered_now_or_later(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        replies: list[ports.ReplyCallback] = []
        remote_mesh.handle_requests("later", lambda _node_id, _body, reply: replies.append(reply))
        remote_mesh.handle_requests("now", lambda node_id, body, reply: reply(node_id.encode() + body))
        later = request(local_mesh, remote_mesh.local_peer.node_id, "later")
        assert (
            await request(local_mesh, remote_mesh.local_peer.node_id, "now", b"!")
            == local_mesh.local_peer.node_id.encode() + b"!"
        )
        replies[0](b"at last")
        assert await later == b"at last"

    async def test_both_ask_each_other(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        local_mesh.handle_requests("echo", reply_echo)
        remote_mesh.handle_requests("echo", reply_echo)
        one, other = (
            request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"1"),
            request(remote_mesh, local_mesh.local_peer.node_id, "echo", b"2"),
        )
        assert (await one, await other) == (b"1", b"2")

    async def test_thousands_of_questions_and_words_arrive_in_order(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        heard: list[int] = []

        def answer(_node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
            heard.append(int(body))
            reply(body)

        remote_mesh.handle_requests("count", answer)
        remote_mesh.handle_notifications("count", lambda _node_id, body: heard.append(int(body)))
        answered: list[bytes | ports.MeshProblem] = []
        everything = asyncio.Event()

        def done(answer: bytes | ports.MeshProblem) -> None:
            answered.append(answer)
            if len(answered) == 5_000:
                everything.set()

        for number in range(0, 10_000, 2):
            local_mesh.request(remote_mesh.local_peer.node_id, "count", b"%d" % number, done)
            local_mesh.notify(remote_mesh.local_peer.node_id, "count", b"%d" % (number + 1))
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        await everything.wait()
        assert answered == [b"%d" % number for number in range(0, 10_000, 2)]
        last = request(local_mesh, remote_mesh.local_peer.node_id, "count", b"10000")
        await last
        assert heard == list(range(10_001))

    async def test_the_asker_is_never_told_before_the_question_is_put(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        told: list[bytes | ports.MeshProblem] = []
        local_mesh.request(remote_mesh.local_peer.node_id, "unknown", b"", told.append)
        local_mesh.request("nobody", "unknown", b"", told.append)
        local_mesh.request(remote_mesh.local_peer.node_id, "unknown", bytes(40 * 1024 * 1024), told.append)
        assert told == []

    async def test_a_node_that_is_not_there_cannot_have_heard(self, local_mesh: ClosableMesh) -> None:
        answer = await request(local_mesh, "nobody", "echo")
        assert isinstance(answer, ports.NodeUnreachable)
        assert (answer.node_id, answer.sent) == ("nobody", False)

    async def test_a_node_that_goes_may_have_heard(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        heard = asyncio.Event()
        remote_mesh.handle_requests("never", lambda _node_id, _body, _reply: heard.set())
        asked = request(local_mesh, remote_mesh.local_peer.node_id, "never")
        await heard.wait()
        await remote_mesh.close()
        answer = await asked
        assert isinstance(answer, ports.NodeUnreachable)
        assert (answer.node_id, answer.sent) == (remote_mesh.local_peer.node_id, True)

    async def test_what_was_not_yet_on_its_way_was_not_heard(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        asked = request(local_mesh, remote_mesh.local_peer.node_id, "echo")
        local_mesh.update_nodes([])
        answer = await asked
        assert isinstance(answer, ports.NodeUnreachable)
        assert not answer.sent

    async def test_an_unknown_subject_has_no_answer(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        answer = await request(local_mesh, remote_mesh.local_peer.node_id, "from the next version")
        assert isinstance(answer, ports.NodeRequestFailed)

    async def test_who_fails_to_answer_says_so_without_saying_why(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        def fail(_node_id: str, _body: bytes, _reply: ports.ReplyCallback) -> None:
            raise RuntimeError("password: hunter2")

        remote_mesh.handle_requests("fail", fail)
        remote_mesh.handle_requests("echo", reply_echo)
        answer = await request(local_mesh, remote_mesh.local_peer.node_id, "fail")
        assert isinstance(answer, ports.NodeRequestFailed)
        assert "hunter2" not in str(answer)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"on") == b"on"

    async def test_only_the_first_reply_counts(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        def twice(_node_id: str, _body: bytes, reply: ports.ReplyCallback) -> None:
            reply(b"first")
            reply(b"second")
            raise RuntimeError("after the reply")

        remote_mesh.handle_requests("twice", twice)
        remote_mesh.handle_requests("echo", reply_echo)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "twice") == b"first"
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"on") == b"on"

    async def test_an_asker_that_fails_at_an_answer_does_not_harm_the_others(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        def fail(_answer: bytes | ports.MeshProblem) -> None:
            raise RuntimeError("a bug of ours")

        remote_mesh.handle_requests("echo", reply_echo)
        local_mesh.request(remote_mesh.local_peer.node_id, "echo", b"1", fail)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"2") == b"2"

    async def test_large_questions_and_answers_arrive_whole_and_too_large_ones_have_no_answer(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        remote_mesh.handle_requests("echo", reply_echo)
        remote_mesh.handle_requests("grow", lambda _node_id, body, reply: reply(body * 5))
        body = bytes(range(256)) * 4 * 8 * 1024
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", body) == body
        assert isinstance(await request(local_mesh, remote_mesh.local_peer.node_id, "grow", body), ports.NodeRequestFailed)
        assert isinstance(await request(local_mesh, remote_mesh.local_peer.node_id, "echo", body * 5), ports.NodeRequestFailed)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"on") == b"on"

    async def test_words_without_an_answer_are_heard(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        heard: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()
        remote_mesh.handle_notifications("news", lambda node_id, body: heard.set_result((node_id, body)))
        assert local_mesh.notify(remote_mesh.local_peer.node_id, "unknown", b"")
        assert local_mesh.notify(remote_mesh.local_peer.node_id, "news", b"rain")
        assert not local_mesh.notify("nobody", "news", b"rain")
        assert await heard == (local_mesh.local_peer.node_id, b"rain")

    # Tunnels

    async def test_frames_go_both_ways_through_a_tunnel_in_order(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        guests, mine = TunnelRecorder(), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"open", mine)
        mine.send(b"one", b"", b"three")
        theirs = await guests.next_inbox()
        assert guests.openings == [(local_mesh.local_peer.node_id, b"open")]
        assert [await theirs.next_frame() for _ in range(3)] == [b"one", b"", b"three"]
        theirs.send(b"back")
        assert await mine.next_frame() == b"back"
        assert mine.stream.origin.address == remote_mesh.local_peer.node_id

    async def test_a_tunnel_to_nobody_cannot_be_opened(self, local_mesh: ClosableMesh) -> None:
        mine = RecordingReceiver()
        with pytest.raises(ports.NodeUnreachable):
            local_mesh.open_tunnel("nobody", "door", b"", mine)
        assert not mine.closed

    async def test_a_tunnel_that_nobody_hosts_ends(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        mine = RecordingReceiver()
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        await mine.wait_until(lambda: mine.closed)
        assert isinstance(mine.stream, Tunnel)
        assert mine.stream.closed_by_other is not None
        assert mine.stream.closed_by_other[0] == 1011

    async def test_a_close_flushes_what_was_sent_and_carries_its_code_and_reason(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        guests, mine = TunnelRecorder(), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        frames = [b"%d" % number * 1_000 for number in range(500)]
        mine.send(*frames)
        mine.stream.close(4001, "moved")
        mine.send(b"too late")
        theirs = await guests.next_inbox()
        assert [await theirs.next_frame() for _ in frames] == frames
        await theirs.wait_until(lambda: theirs.closed)
        await mine.wait_until(lambda: mine.closed)
        assert not theirs.frames
        assert isinstance(theirs.stream, Tunnel)
        assert theirs.stream.closed_by_other == (4001, "moved")
        assert isinstance(mine.stream, Tunnel)
        assert mine.stream.closed_by_other is None

    async def test_an_abort_ends_both_sides_at_once(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        guests, mine = TunnelRecorder(reading=False), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        theirs = await guests.next_inbox()
        mine.send(bytes(4 * WINDOW_BYTES))
        mine.stream.abort()
        assert not mine.closed
        await mine.wait_until(lambda: mine.closed)
        await theirs.wait_until(lambda: theirs.closed)
        assert not theirs.frames
        assert isinstance(theirs.stream, Tunnel)
        assert theirs.stream.closed_by_other is None

    async def test_a_node_that_goes_ends_its_tunnels(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        guests, mine = TunnelRecorder(), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        theirs = await guests.next_inbox()
        await local_mesh.close()
        await mine.wait_until(lambda: mine.closed)
        await theirs.wait_until(lambda: theirs.closed)
        assert not mine.stream.writable

    async def test_who_does_not_read_a_tunnel_stops_only_who_sends_into_it(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        slow_guests, quick_guests = TunnelRecorder(reading=False), TunnelRecorder()
        remote_mesh.accept_tunnels("slow", slow_guests.accept)
        remote_mesh.accept_tunnels("quick", quick_guests.accept)
        remote_mesh.handle_requests("echo", reply_echo)
        slow, quick = RecordingReceiver(), RecordingReceiver()
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "slow", b"", slow)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "quick", b"", quick)
        frames = [bytes([number % 256]) * 10_000 for number in range(100)]
        for frame in frames:
            slow.send(frame)
        assert not slow.stream.writable
        for frame in frames:
            quick.send(frame)
        theirs = await quick_guests.next_inbox()
        assert [await theirs.next_frame() for _ in frames] == frames
        await quick.wait_until(lambda: quick.stream.writable)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"on") == b"on"
        assert not slow.stream.writable
        slowly = await slow_guests.next_inbox()
        assert not slowly.frames
        slowly.stream.resume_reading()
        assert [await slowly.next_frame() for _ in frames] == frames
        await slow.wait_until(lambda: slow.stream.writable)

    async def test_a_frame_longer_than_the_window_arrives_whole(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        guests, mine = TunnelRecorder(), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        long = bytes(range(256)) * 8 * 1024
        mine.send(b"before", long, b"after")
        theirs = await guests.next_inbox()
        assert [await theirs.next_frame() for _ in range(3)] == [b"before", long, b"after"]

    async def test_what_was_held_back_is_given_before_the_end(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        guests, mine = TunnelRecorder(reading=False), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        mine.send(b"last words")
        mine.stream.close(1001)
        theirs = await guests.next_inbox()
        await mine.wait_until(lambda: mine.closed)
        assert not theirs.closed
        theirs.stream.resume_reading()
        assert await theirs.next_frame() == b"last words"
        await theirs.wait_until(lambda: theirs.closed)

    async def test_a_receiver_that_fails_loses_its_tunnel_and_nobody_else_does(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        class Failing(RecordingReceiver):
            def on_frames(self, frames: list[bytes]) -> None:
                raise RuntimeError("a bug of ours")

        remote_mesh.accept_tunnels("door", lambda _node_id, _opening: Failing())
        remote_mesh.handle_requests("echo", reply_echo)
        mine = RecordingReceiver()
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", mine)
        mine.stream.send(Packet([b"x"]))
        await mine.wait_until(lambda: mine.closed)
        assert await request(local_mesh, remote_mesh.local_peer.node_id, "echo", b"on") == b"on"

    async def test_who_cannot_begin_with_a_tunnel_is_told_and_nothing_stays_open(
        self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh
    ) -> None:
        class Failing(RecordingReceiver):
            def on_connected(self, stream: Stream) -> None:
                raise RuntimeError("a bug of ours")

        guests, mine = TunnelRecorder(), RecordingReceiver()
        remote_mesh.accept_tunnels("door", guests.accept)
        remote_mesh.accept_tunnels("broken door", lambda _node_id, _opening: Failing())
        with pytest.raises(RuntimeError):
            local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "door", b"", Failing())
        theirs = await guests.next_inbox()
        await theirs.wait_until(lambda: theirs.closed)
        local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "broken door", b"", mine)
        await mine.wait_until(lambda: mine.closed)

    async def test_many_tunnels_at_once_each_carry_their_own(self, local_mesh: ClosableMesh, remote_mesh: ClosableMesh) -> None:
        class Echo(RecordingReceiver):
            def on_frames(self, frames: list[bytes]) -> None:
                self.send(*frames)

        remote_mesh.accept_tunnels("echo", lambda _node_id, _opening: Echo())
        inboxes = [RecordingReceiver() for _ in range(200)]
        for number, inbox in enumerate(inboxes):
            local_mesh.open_tunnel(remote_mesh.local_peer.node_id, "echo", b"", inbox)
            inbox.send(*(b"%d.%d" % (number, turn) * 500 for turn in range(20)))
        for number, inbox in enumerate(inboxes):
            assert [await inbox.next_frame() for _ in range(20)] == [b"%d.%d" % (number, turn) * 500 for turn in range(20)]
