import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.transports.conftest import CountingReceiver

from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports import socket_owner, stream, unix
from switchtower.transports.stream import ConnectionOrigin, Packet

LINE_LIMIT = 10_000
OUTPUT_LIMIT = 1_000_000


class UnixServer:
    """A listener and an inbox for each client, in the order of their arrival."""

    def __init__(self) -> None:
        self.inboxes: list[CountingReceiver] = []
        self.origins: list[ConnectionOrigin] = []
        self.listener: unix.UnixListener
        self._arrived = asyncio.Event()

    def accept(self, origin: ConnectionOrigin) -> CountingReceiver:
        self.origins.append(origin)
        self.inboxes.append(CountingReceiver())
        self._arrived.set()
        return self.inboxes[-1]

    async def get_inbox(self, index: int = 0) -> CountingReceiver:
        while len(self.inboxes) <= index:
            self._arrived.clear()
            await self._arrived.wait()
        return self.inboxes[index]


Start = Callable[..., Awaitable[UnixServer]]


@pytest.fixture
async def start_server(folder: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def listen(**options: Any) -> UnixServer:
            server = UnixServer()
            limits = {"max_line_bytes": LINE_LIMIT, "output_limit_bytes": OUTPUT_LIMIT} | options
            server.listener = await unix.listen(folder / "s.sock", server.accept, **limits)
            stack.push_async_callback(server.listener.close, grace=0)
            return server

        yield listen


async def connect(server: UnixServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(server.listener.path, limit=1 << 24)


async def test_lines_of_one_write_arrive_in_one_read_and_answers_come_back(start_server: Start) -> None:
    server = await start_server()
    reader, writer = await connect(server)
    writer.write(b'{"n":1}\n\n{"n":2}\r\n{"n":3}\n')
    inbox = await server.get_inbox()
    assert [json.loads(await inbox.next_frame())["n"] for _ in range(3)] == [1, 2, 3]
    assert inbox.reads == 1
    inbox.send(b"one", b"two")
    assert await reader.readline() + await reader.readline() == b"one\ntwo\n"
    (origin,) = server.origins
    assert (origin.transport, origin.address, origin.pid) == ("unix", f"pid {os.getpid()}", os.getpid())
    assert origin.pid_started_at == socket_owner.read_start_time(os.getpid()) is not None
    writer.close()


async def test_a_character_cut_in_two_by_reads_arrives_whole(start_server: Start) -> None:
    server = await start_server()
    _, writer = await connect(server)
    inbox = await server.get_inbox()
    note = "𝄞".encode()
    writer.write(b"ready\n" + note[:1])
    assert await inbox.next_frame() == b"ready"
    writer.write(note[1:] + b"\n")
    assert await inbox.next_frame() == note
    writer.close()


async def test_an_oversized_line_is_refused_before_it_ends_and_the_next_one_is_heard(start_server: Start) -> None:
    server = await start_server()
    _, writer = await connect(server)
    inbox = await server.get_inbox()
    writer.write(b"before\n" + b"x" * (LINE_LIMIT + 1))
    await inbox.wait_until(lambda: bool(inbox.refusals))
    assert inbox.refusals == [f"a line of more than {LINE_LIMIT} bytes was thrown away"]
    writer.write(b"x" * LINE_LIMIT + b"\nafter\n")
    assert [await inbox.next_frame(), await inbox.next_frame()] == [b"before", b"after"]
    assert len(inbox.refusals) == 1
    writer.close()


async def test_a_client_that_does_not_read_turns_the_stream_unwritable_until_it_does(start_server: Start) -> None:
    server = await start_server()
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server.listener.path))
    inbox = await server.get_inbox()
    packet = Packet([b"x" * 999])
    sent = 0
    while inbox.stream.writable:
        inbox.stream.send(packet)
        sent += 1
    kernel = client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) * 2
    assert OUTPUT_LIMIT < sent * 1000 < OUTPUT_LIMIT + kernel

    client.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=client)
    assert await reader.readexactly(sent * 1000) == packet.lines * sent
    await inbox.wait_until(lambda: inbox.stream.writable)
    writer.close()


async def test_a_paused_client_is_not_heard_until_resumed(start_server: Start) -> None:
    server = await start_server()
    _, paused = await connect(server)
    _, other = await connect(server)
    inbox, witness = await server.get_inbox(0), await server.get_inbox(1)
    inbox.stream.pause_reading()
    paused.write(b"patience\n")
    other.write(b"by the time this is heard, so could the other have been\n")
    await witness.next_frame()
    assert not inbox.frames
    inbox.stream.resume_reading()
    assert await inbox.next_frame() == b"patience"
    paused.close()
    other.close()


async def test_a_client_that_stops_writing_still_gets_its_answers_and_then_the_end(start_server: Start) -> None:
    server = await start_server(half_closed_seconds=0.2)
    reader, writer = await connect(server)
    writer.write(b"ask\nask again, without an end")
    writer.write_eof()
    inbox = await server.get_inbox()
    assert await inbox.next_frame() == b"ask"
    assert await inbox.next_frame() == b"ask again, without an end"
    inbox.send(b"answer")
    assert await reader.readline() == b"answer\n"
    inbox.stream.resume_reading()
    inbox.send(b"another")
    assert await reader.read() == b"another\n"
    await inbox.wait_until(lambda: inbox.closed)
    writer.close()


async def test_answers_keep_a_half_closed_connection_open(start_server: Start) -> None:
    period = 0.04
    server = await start_server(half_closed_seconds=period)
    reader, writer = await connect(server)
    inbox = await server.get_inbox()
    # Timers of one loop run in the order in which they are due, however late: an answer is always ahead of the next look.
    for half_periods in (1, 3, 5, 7):
        asyncio.get_running_loop().call_later(half_periods * period / 2, inbox.send, b"tick")
    writer.write_eof()
    assert await reader.read() == b"tick\n" * 4
    writer.close()


async def test_a_client_that_is_gone_is_not_waited_for(start_server: Start) -> None:
    server = await start_server(half_closed_seconds=3600)
    _, writer = await connect(server)
    inbox = await server.get_inbox()
    writer.close()
    await inbox.wait_until(lambda: inbox.closed)
    assert not inbox.stream.writable
    inbox.send(b"into the void")
    inbox.stream.close()
    inbox.stream.pause_reading()
    inbox.stream.resume_reading()


async def test_close_flushes_what_was_sent_and_takes_no_more(start_server: Start) -> None:
    server = await start_server()
    reader, writer = await connect(server)
    inbox = await server.get_inbox()
    inbox.send(b"x" * 5_000_000)
    inbox.stream.close()
    inbox.send(b"too late")
    assert len(await reader.read()) == 5_000_001
    await inbox.wait_until(lambda: inbox.closed)
    writer.close()


async def test_a_receiver_that_fails_loses_only_its_own_connection(start_server: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = await start_server()
    reader, writer = await connect(server)
    inbox = await server.get_inbox()

    def fail(frames: list[bytes]) -> None:
        raise RuntimeError("a bug of ours")

    inbox.on_frames = fail  # type: ignore[method-assign]
    writer.write(b"boom\n")
    assert await reader.read() == b""
    assert "a bug of ours" in caplog.text
    writer.close()
    _, writer = await connect(server)
    writer.write(b"still there\n")
    assert await (await server.get_inbox(1)).next_frame() == b"still there"
    writer.close()


async def test_a_client_that_nobody_accepts_is_disconnected(folder: Path) -> None:
    def accept(origin: ConnectionOrigin) -> RecordingReceiver:
        raise RuntimeError("no")

    listener = await unix.listen(folder / "s.sock", accept, max_line_bytes=100, output_limit_bytes=100)
    reader, writer = await asyncio.open_unix_connection(listener.path)
    assert await reader.read() == b""
    writer.close()
    await listener.close()


async def test_other_users_are_disconnected_even_if_permissions_would_let_them_in(start_server: Start, folder: Path) -> None:
    if os.geteuid() != 0:
        server = await start_server(owner_uid=os.geteuid() + 1)
        reader, writer = await connect(server)
        assert await reader.read() == b""
        writer.close()
    else:
        server = await start_server()
        folder.chmod(0o755)
        server.listener.path.chmod(0o666)

        def intrude() -> None:
            os.setuid(65_534)
            with socket.socket(socket.AF_UNIX) as client, suppress(ConnectionResetError):
                client.connect(str(server.listener.path))
                assert client.recv(9) == b""

        await asyncio.to_thread(subprocess.run, ["/bin/true"], preexec_fn=intrude, check=True, cwd="/")
    assert server.inboxes == []


async def test_root_is_let_in(start_server: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can connect as root")
    server = await start_server(owner_uid=12_345)
    _, writer = await connect(server)
    writer.write(b"hello\n")
    assert await (await server.get_inbox()).next_frame() == b"hello"
    writer.close()


async def test_closing_the_listener_ends_every_connection_and_removes_the_file(start_server: Start) -> None:
    server = await start_server()
    reader, writer = await connect(server)
    inbox = await server.get_inbox()
    inbox.send(b"last words")
    await server.listener.close()
    assert await reader.read() == b"last words\n"
    assert inbox.closed
    assert not server.listener.path.exists()
    await server.listener.close()
    writer.close()


async def test_closing_the_listener_cuts_off_a_client_that_does_not_read(start_server: Start) -> None:
    server = await start_server()
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server.listener.path))
    inbox = await server.get_inbox()
    inbox.send(b"x" * 5_000_000)
    await server.listener.close(grace=0.01)
    assert inbox.closed
    client.close()


async def test_a_second_listener_at_the_same_path_is_refused(start_server: Start) -> None:
    server = await start_server()
    with pytest.raises(stream.AddressInUse):
        await start_server()
    _, writer = await connect(server)
    writer.write(b"undisturbed\n")
    assert (
        await (await server.get_inbox(1)).next_frame() == b"undisturbed"
    )  # the first was the other's look whether anyone is there
    writer.close()


async def test_with_a_complaint_a_long_line_is_told_with_its_size_once_it_has_ended(start_server: Start) -> None:
    server = await start_server(complaint=lambda size, limit: f"{size} over {limit}")
    _, writer = await connect(server)
    inbox = await server.get_inbox()
    writer.write(b"x" * 3 * LINE_LIMIT)
    await writer.drain()
    assert inbox.refusals == []
    writer.write(b"x" * 7 + b"\nnext\n" + b"y" * (LINE_LIMIT + 1))
    assert await inbox.next_frame() == b"next"
    assert inbox.refusals == [f"{3 * LINE_LIMIT + 7} over {LINE_LIMIT}"]
    writer.write_eof()
    await inbox.wait_until(lambda: len(inbox.refusals) == 2)
    assert inbox.refusals[1] == f"{LINE_LIMIT + 1} over {LINE_LIMIT}"
    writer.close()


class RespondingTestReceiver(CountingReceiver):
    """Owes one answer from the moment it was asked until it has given it."""

    def __init__(self) -> None:
        super().__init__()
        self.debts = 0
        self.asked = asyncio.Event()

    def on_frames(self, frames: list[bytes]) -> None:
        super().on_frames(frames)
        self.debts += len(frames)

    def has_pending_responses(self) -> bool:
        self.asked.set()
        return self.debts > 0


async def test_a_receiver_that_knows_what_it_owes_is_asked_and_nothing_else_keeps_the_connection_open(folder: Path) -> None:
    debtor = RespondingTestReceiver()
    listener = await unix.listen(
        folder / "s.sock",
        lambda origin: debtor,
        max_line_bytes=LINE_LIMIT,
        output_limit_bytes=OUTPUT_LIMIT,
        half_closed_seconds=3_600,
    )
    reader, writer = await asyncio.open_unix_connection(folder / "s.sock")
    writer.write(b"question\n")
    writer.write_eof()
    for _ in range(3):  # silence alone does not end it
        debtor.asked.clear()
        await debtor.asked.wait()
    debtor.send(b"answer")
    debtor.debts = 0
    assert await reader.read() == b"answer\n"
    writer.close()
    await listener.close()
