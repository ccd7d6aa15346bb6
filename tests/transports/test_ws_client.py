import asyncio
import base64
import gc
import hashlib
import logging
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.transports.conftest import Serve

from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports import ws_client
from switchtower.transports.stream import Packet, Stream

LIMIT = 100_000
SECRET = "s3cret-token"
PING = 9

"""A fixture; its type is in conftest.py."""


async def connect(url: str, inbox: RecordingReceiver, **options: Any) -> Stream:
    limits: dict[str, Any] = {"max_message_bytes": LIMIT, "output_limit_bytes": LIMIT, "ping_seconds": 30.0} | options
    return await ws_client.connect(url, inbox, **limits)


def accept_handshake(head: bytes) -> bytes:
    """The answer to this handshake."""
    key = next(line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n"
    )


def make_url(server: Any, query: str = "") -> str:
    return f"{server.listener.websocket_url}/ws{query}"


@pytest.fixture
async def odd_server() -> Any:
    """`await odd_server(answer)`: the address of one who answers the request's head with these bytes."""
    servers: list[asyncio.Server] = []

    async def start(answer: bytes, *, close: bool = True) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                if close:
                    return
                await reader.read()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        return f"ws://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}/ws?token={SECRET}"

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_both_sides_hear_each_other(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server, "?token=abc&x=1"), inbox)
    assert inbox.stream is stream
    stream.send(Packet([b"one", '{"note":"𝄞"}'.encode()]))
    there = server.inboxes[0]
    assert [await there.next_frame(), await there.next_frame()] == [b"one", '{"note":"𝄞"}'.encode()]
    there.send(b"three", b"four")
    assert [await inbox.next_frame(), await inbox.next_frame()] == [b"three", b"four"]
    assert server.requests[0].query == {"x": "1"}
    assert server.requests[0].origin.token == "abc"
    stream.close()
    await inbox.wait_until(lambda: inbox.closed)
    await there.wait_until(lambda: there.closed)


async def test_messages_of_any_length_arrive_whole_and_in_order(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server), inbox)
    sent = [bytes([65 + n % 26]) * n for n in (1, 2, 125, 126, 127, 65_535, 65_536, 99_999)]
    stream.send(Packet(sent))
    assert [await server.inboxes[0].next_frame() for _ in sent] == sent
    server.inboxes[0].send(*sent)
    assert [await inbox.next_frame() for _ in sent] == sent
    stream.abort()
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)


async def test_what_is_said_right_behind_the_handshake_is_heard(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()

    class Eager(server.build):  # type: ignore[misc]
        def on_connected(self, stream: Stream) -> None:
            super().on_connected(stream)
            stream.send(Packet([b"welcome"]))
            stream.close(1008, "and farewell")

    server.build = Eager
    await connect(make_url(server), inbox)
    assert await inbox.next_frame() == b"welcome"
    await inbox.wait_until(lambda: inbox.closed)


async def test_a_refusal_says_its_status_and_its_reason(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    with pytest.raises(ws_client.UpgradeRejected) as refusal:
        await connect(make_url(server, "?token=wrong"), inbox)
    assert (refusal.value.status, refusal.value.reason) == (401, "a token is needed")
    assert str(refusal.value) == "401 a token is needed"
    assert not hasattr(inbox, "stream")


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (f"HTTP/1.1 404 Not Found\r\n\r\ncannot get /ws?token={SECRET}\n".encode(), 404, "Not Found"),
        (f"HTTP/1.1 403 Forbidden\r\n\r\n{SECRET} is wrong\n".encode(), 403, "Forbidden"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<html>", 502, "Bad Gateway"),
        (b"HTTP/1.1 302 Found\r\nLocation: ws://elsewhere.example/\r\n\r\n", 302, "Found"),
        (b"HTTP/1.1 200 OK\r\n\r\n", 200, "OK"),
    ],
)
async def test_a_refusal_never_repeats_the_token(odd_server: Any, answer: bytes, status: int, reason: str) -> None:
    with pytest.raises(ws_client.UpgradeRejected) as refusal:
        await connect(await odd_server(answer), RecordingReceiver())
    assert (refusal.value.status, refusal.value.reason) == (status, reason)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
        b"\x00\xff" * 20_000,
    ],
)
async def test_who_does_not_speak_websocket_is_unreachable(
    odd_server: Any, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    inbox = RecordingReceiver()
    with pytest.raises(ws_client.ServerUnreachable) as problem:
        await connect(await odd_server(answer), inbox)
    assert SECRET not in f"{problem.value!r} {problem.value} {caplog.text}"
    assert not hasattr(inbox, "stream")


async def test_who_does_not_answer_is_given_up(odd_server: Any) -> None:
    with pytest.raises(ws_client.ServerUnreachable, match=r"no answer within 0\.05 seconds"):
        await connect(await odd_server(b"HTTP/1.1", close=False), RecordingReceiver(), connect_timeout=0.05)


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1/?token={SECRET}",
        f"ws://?token={SECRET}",
        f"ws://127.0.0.1:99999/?token={SECRET}",
        f"ws://127.0.0.1:1/?token={SECRET}",
        f"ws://[::1/?token={SECRET}",
        f"ws://127.0.0.1/?token={SECRET}\r\nX: y",
        f"ws://{'a' * 70}.invalid/?token={SECRET}",
    ],
)
async def test_an_address_that_leads_nowhere_is_told_without_its_token(url: str) -> None:
    with pytest.raises(ws_client.ServerUnreachable) as problem:
        await connect(url, RecordingReceiver())
    assert problem.value.reason
    assert SECRET not in f"{problem.value!r} {problem.value}"
    assert problem.value.__cause__ is None


async def test_nothing_is_written_to_the_log_about_a_connection(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server, f"?token={SECRET}"), inbox)
    stream.close()
    await inbox.wait_until(lambda: inbox.closed)
    assert SECRET not in caplog.text
    assert SECRET not in f"{stream!r} {stream.origin!r}"


async def test_a_dead_peer_is_noticed_by_a_ping_without_an_answer() -> None:
    inbox = RecordingReceiver()
    heard: list[int] = []

    async def shake_hands_and_listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accept_handshake(await reader.readuntil(b"\r\n\r\n")))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            heard.append((await reader.readexactly(1))[0] & 0x0F)
            await reader.read()
        writer.close()

    async with await asyncio.start_server(shake_hands_and_listen, "127.0.0.1", 0) as server:
        stream = await connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws", inbox, ping_seconds=0.02)
        await inbox.wait_until(lambda: inbox.closed)
    assert not stream.writable
    assert heard == [PING]


async def test_a_living_peer_that_says_nothing_stays(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server), inbox, ping_seconds=0.01)
    lived = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, lived.set)  # twenty checks of life later
    await lived.wait()
    stream.send(Packet([b"still here"]))
    assert await server.inboxes[0].next_frame() == b"still here"
    stream.abort()
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)


async def test_one_who_does_not_read_makes_it_unwritable_until_he_does(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server), inbox)
    there = server.inboxes[0]
    there.stream.pause_reading()
    sent = 0
    while stream.writable:
        stream.send(Packet([b"x" * 50_000]))
        sent += 1
        await asyncio.sleep(0)
    there.stream.resume_reading()
    await inbox.wait_until(lambda: stream.writable)
    for _ in range(sent):
        assert len(await there.next_frame()) == 50_000
    stream.abort()
    await there.wait_until(lambda: there.closed)


async def test_reading_can_be_paused(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server), inbox)
    there = server.inboxes[0]
    stream.pause_reading()
    for _ in range(2_000):
        if not there.stream.writable:
            break
        there.send(b"y" * 90_000)
        await asyncio.sleep(0)
    assert not there.stream.writable
    assert len(inbox.frames) <= 1
    stream.resume_reading()
    await there.wait_until(lambda: there.stream.writable)
    assert await inbox.next_frame() == b"y" * 90_000
    stream.abort()
    await there.wait_until(lambda: there.closed)


async def test_a_message_above_the_limit_ends_the_connection_quietly(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server, inbox = await serve(), RecordingReceiver()
    await connect(make_url(server), inbox, max_message_bytes=1_000)
    server.inboxes[0].send(b"fine", b"z" * 1_001)
    await inbox.wait_until(lambda: inbox.closed)
    assert b"z" * 1_001 not in inbox.frames
    gc.collect()
    assert not caplog.records


async def test_nothing_is_sent_after_the_goodbye(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    stream = await connect(make_url(server), inbox)
    stream.close(1000, "done")
    stream.send(Packet([b"too late"]))
    stream.close()
    await inbox.wait_until(lambda: inbox.closed)
    assert not server.inboxes[0].frames


async def test_a_receiver_that_fails_at_once_is_its_callers_trouble(serve: Serve) -> None:
    server = await serve()

    class Failing(RecordingReceiver):
        def on_connected(self, stream: Stream) -> None:
            raise RuntimeError("a bug of ours")

    with pytest.raises(RuntimeError, match="a bug of ours"):
        await connect(make_url(server), Failing())
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)


async def test_a_dial_that_is_cancelled_leaves_nothing(odd_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    dial = asyncio.ensure_future(connect(await odd_server(b"", close=False), RecordingReceiver()))
    for _ in range(10):
        await asyncio.sleep(0)
    dial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dial
    gc.collect()
    assert not caplog.records


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` that nobody vouches for, with its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    spelled = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + made.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(spelled)
    return path


async def test_over_tls_only_who_is_vouched_for_is_spoken_to(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            writer.write(accept_handshake(await reader.readuntil(b"\r\n\r\n")))
            first, size = await reader.readexactly(2)
            mask = await reader.readexactly(4)
            masked = await reader.readexactly(size & 0x7F)
            plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))
            writer.write(bytes((first, len(plain))) + plain)
            await reader.read()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context) as server:
        url = f"wss://localhost:{server.sockets[0].getsockname()[1]}/ws?token={SECRET}"
        with pytest.raises(ws_client.ServerUnreachable, match=r"self.signed certificate") as problem:
            await connect(url, RecordingReceiver())
        assert SECRET not in f"{problem.value!r} {problem.value}"
        inbox = RecordingReceiver()
        stream = await connect(url, inbox, ssl=ssl.create_default_context(cafile=str(certificate)))
        stream.send(Packet([b"through TLS"]))
        assert await inbox.next_frame() == b"through TLS"
        stream.abort()
        await inbox.wait_until(lambda: inbox.closed)


async def test_with_a_complaint_a_long_message_is_discarded_and_the_connection_stays(serve: Serve) -> None:
    server, inbox = await serve(), RecordingReceiver()
    await connect(make_url(server), inbox, max_message_bytes=1_000, complaint=lambda size, limit: f"{size} over {limit}")
    server.inboxes[0].send(b"fine", b"z" * 300_000, b"fine again")
    assert [await inbox.next_frame(), await inbox.next_frame()] == [b"fine", b"fine again"]
    assert inbox.refusals == ["300000 over 1000"]


async def test_what_comes_right_behind_the_handshake_is_read_with_a_complaint_too() -> None:
    inbox = RecordingReceiver()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(accept_handshake(head) + b"\x81\x02hi" + b"\x81\x7e\x07\xd0" + b"z" * 2_000 + b"\x81\x03end")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    stream = await connect(f"ws://127.0.0.1:{port}/", inbox, max_message_bytes=1_000, complaint=lambda size, limit: f"{size}")
    assert [await inbox.next_frame(), await inbox.next_frame(), inbox.refusals] == [b"hi", b"end", ["2000"]]
    stream.abort()
    await inbox.wait_until(lambda: inbox.closed)
    server.close()
