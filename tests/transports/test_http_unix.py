"""An app behind a Unix socket that only its owner can reach."""

import asyncio
import os
import socket
import stat
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from switchtower.transports import http, stream

Serve = Callable[..., Awaitable[http.UnixHttpListener]]


async def serve_whoami(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    origin = scope["state"]["peer"].origin
    body = f"{origin.transport} {origin.pid} {origin.address}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def serve_unix(folder: Path) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(app: Any = serve_whoami, path: Path | None = None, **options: Any) -> http.UnixHttpListener:
            listener = await http.serve_unix(app, path or folder / "run" / "hostd.sock", **options)
            stack.push_async_callback(listener.close, grace=0)
            return listener

        yield start


async def get(path: Path, head: str = "") -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET /page?token=hush-hush HTTP/1.1\r\nHost: x\r\n{head}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_an_app_is_told_which_process_asks(serve_unix: Serve) -> None:
    listener = await serve_unix()
    assert (await get(listener.path)).endswith(f"unix {os.getpid()} pid {os.getpid()}".encode())


async def test_one_connection_is_one_peer(serve_unix: Serve) -> None:
    peers: list[http.HttpPeer] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            peers.append(scope["state"]["peer"])
        await serve_whoami(scope, receive, send)

    listener = await serve_unix(app)
    reader, writer = await asyncio.open_unix_connection(listener.path)
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"unix")
    writer.close()
    await get(listener.path)
    first, same, other = peers
    assert first is same
    assert first is not other


async def test_the_socket_is_its_owners_alone(serve_unix: Serve) -> None:
    listener = await serve_unix()
    assert stat.S_IMODE(listener.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(listener.path.parent.stat().st_mode) == 0o700


async def test_other_users_are_hung_up_on_even_if_permissions_would_let_them_in(
    serve_unix: Serve, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if os.geteuid() != 0:
        listener = await serve_unix(owner_uid=os.geteuid() + 1)
        reader, writer = await asyncio.open_unix_connection(listener.path)
        assert await reader.read() == b""
        writer.close()
    else:
        listener = await serve_unix()
        for shared, mode in ((folder, 0o755), (listener.path.parent, 0o755), (listener.path, 0o666)):
            shared.chmod(mode)

        def intrude() -> None:
            os.setuid(65_534)
            with socket.socket(socket.AF_UNIX) as client, suppress(ConnectionResetError):
                client.connect(str(listener.path))
                assert client.recv(9) == b""

        await asyncio.to_thread(subprocess.run, ["/bin/true"], preexec_fn=intrude, check=True, cwd="/")
    assert "refused a connection" in caplog.text


async def test_root_is_let_in(serve_unix: Serve) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can connect as root")
    listener = await serve_unix(owner_uid=12_345)
    assert (await get(listener.path)).startswith(b"HTTP/1.1 200")


async def test_what_a_dead_process_left_is_replaced(serve_unix: Serve, folder: Path) -> None:
    (folder / "run").mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "run" / "hostd.sock"))
    left.close()
    listener = await serve_unix()
    assert (await get(listener.path)).startswith(b"HTTP/1.1 200")


async def test_a_living_process_keeps_its_socket(serve_unix: Serve) -> None:
    listener = await serve_unix()
    with pytest.raises(stream.AddressInUse):
        await serve_unix()
    assert (await get(listener.path)).startswith(b"HTTP/1.1 200")


async def test_what_is_no_socket_is_left_alone(serve_unix: Serve, folder: Path) -> None:
    (folder / "file").write_text("precious")
    with pytest.raises(stream.PathTaken):
        await serve_unix(path=folder / "file")
    assert (folder / "file").read_text() == "precious"


async def test_an_app_that_cannot_start_leaves_no_socket(serve_unix: Serve, folder: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(RuntimeError, match="could not start"):
        await serve_unix(app)
    assert not (folder / "run" / "hostd.sock").exists()


async def test_closing_removes_the_socket_but_not_another_ones(serve_unix: Serve) -> None:
    listener = await serve_unix()
    await listener.close()
    assert not listener.path.exists()
    listener.path.write_text("another's")
    await listener.close()
    assert listener.path.exists()


async def test_an_answer_that_never_ends_is_cut_off_when_the_socket_is_closed(serve_unix: Serve) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    listener = await serve_unix(endless)
    answer = asyncio.create_task(get(listener.path))
    await asked.wait()
    await listener.close(grace=0.01)
    assert cancelled.is_set()
    await asyncio.gather(answer, return_exceptions=True)


async def test_a_websocket_is_an_ordinary_request_here(serve_unix: Serve) -> None:
    listener = await serve_unix()
    answer = await get(listener.path, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_tokens_reach_no_log(serve_unix: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    listener = await serve_unix()
    await get(listener.path)
    await get(listener.path, "X-Wrong\r\n")
    assert "hush" not in caplog.text


async def test_a_port_tells_both_of_its_ends(serve: Any) -> None:
    origins = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        origins.append(scope["state"]["peer"].origin)
        await serve_whoami(scope, receive, send)

    server = await serve(app)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await reader.read()
    here = writer.get_extra_info("sockname")
    writer.close()
    (origin,) = origins
    assert (origin.transport, origin.pid, origin.token) == ("http", None, None)
    assert origin.address == f"127.0.0.1:{here[1]}"
    assert origin.reached_at == f"127.0.0.1:{server.listener.port}"


HEAD_SECONDS = 0.3


async def send_and_close(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], said: bytes = b"") -> bytes:
    """Says this and no more, and returns what came until the other side had enough of it."""
    reader, writer = connection
    writer.write(said)
    got = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(1_000):
            got += piece
    writer.close()
    return got


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_who_does_not_say_what_it_wants_is_not_waited_for(serve_unix: Serve, said: bytes) -> None:
    listener = await serve_unix(head_seconds=HEAD_SECONDS)
    assert await send_and_close(await asyncio.open_unix_connection(listener.path), said) == b""


async def test_who_begins_a_second_request_and_stops_is_not_waited_for(serve_unix: Serve) -> None:
    listener = await serve_unix(head_seconds=HEAD_SECONDS)
    said = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"
    assert (await send_and_close(await asyncio.open_unix_connection(listener.path), said)).count(b"200 OK") == 1


async def test_who_has_asked_may_wait_for_its_answer(serve_unix: Serve) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        asked.set()
        await answer.wait()
        await serve_whoami(scope, receive, send)

    listener = await serve_unix(slow, head_seconds=HEAD_SECONDS)
    waiting = asyncio.create_task(get(listener.path))
    await asked.wait()
    # Whoever came later and said nothing has been given up: it has been longer than that.
    await send_and_close(await asyncio.open_unix_connection(listener.path))
    answer.set()
    assert (await waiting).startswith(b"HTTP/1.1 200")


async def test_a_websocket_lives_longer_than_a_request_may_take(serve: Any, connect_raw: Any) -> None:
    server = await serve(head_seconds=HEAD_SECONDS)
    client = await connect_raw(server.listener.port, "/ws")
    await send_and_close(await asyncio.open_connection("127.0.0.1", server.listener.port))
    client.send(1, b"still here")
    assert await server.inboxes[0].next_frame() == b"still here"
