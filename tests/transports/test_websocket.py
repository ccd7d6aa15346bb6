import asyncio
import json
import socket
import tracemalloc
from typing import Any

import picows
import pytest
from tests.transports.conftest import Dial, Serve

from switchtower.transports.stream import Packet

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10

LIMIT = 100_000

# `serve` and `dial` are fixtures; their types, `Serve` and `Dial`, are in conftest.py.


async def test_a_client_is_accepted_heard_and_answered(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws?token=abc&x=1")
    assert client.status == 101
    client.send(TEXT, '{"note":"𝄞"}'.encode())
    client.send(BINARY, b'{"binary":true}')
    inbox = server.inboxes[0]
    assert json.loads(await inbox.next_frame()) == {"note": "𝄞"}
    assert json.loads(await inbox.next_frame()) == {"binary": True}
    inbox.send(b"answer")
    assert await client.receive() == (TEXT, b"answer")
    request = server.requests[0]
    assert (request.path, request.query) == ("/ws", {"x": "1"})
    assert request.origin == inbox.stream.origin
    assert request.origin.transport == "websocket"
    assert request.origin.token == "abc"
    assert request.origin.address == "{}:{}".format(*client.writer.get_extra_info("sockname"))


async def test_a_browser_that_also_wants_to_keep_the_connection_is_accepted(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(
        server.listener.port, "/ws", Connection="keep-alive, Upgrade", Sec_WebSocket_Extensions="permessage-deflate"
    )
    assert client.status == 101
    assert "sec-websocket-extensions" not in client.headers


async def test_another_implementation_understands_us(serve: Serve) -> None:
    server = await serve()
    heard: asyncio.Queue[str] = asyncio.Queue()

    class Listener(picows.WSListener):
        def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
            heard.put_nowait(frame.get_payload_as_utf8_text())

    url = f"ws://127.0.0.1:{server.listener.port}/ws"
    transport, _ = await picows.ws_connect(Listener, url, use_aiofastnet=False)
    transport.send(picows.WSMsgType.TEXT, b"question")
    assert await server.inboxes[0].next_frame() == b"question"
    server.inboxes[0].send(b"one", b"two")
    assert [await heard.get(), await heard.get()] == ["one", "two"]
    transport.disconnect()
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)


@pytest.mark.parametrize(
    ("path", "headers", "status", "said"),
    [
        ("/elsewhere", {}, 404, b"no such door\n"),
        ("/ws?token=wrong", {}, 401, b"a token is needed\n"),
        ("/ws", {"Host": "evil.example"}, 403, b"this host name is not served here\n"),
        ("/ws", {"Origin": "https://evil.example"}, 403, b"pages of another site may not connect\n"),
        ("/ws", {"Sec_WebSocket_Version": "8"}, 426, b"only version 13 of the WebSocket protocol is spoken here\n"),
        ("/ws", {"Sec_WebSocket_Key": "short"}, 400, b"the WebSocket key is not valid\n"),
    ],
)
async def test_a_refusal_is_a_plain_http_answer(
    serve: Serve, connect_raw: Dial, path: str, headers: dict[str, str], status: int, said: bytes
) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, path, **headers)
    assert (client.status, client.body) == (status, said)
    assert server.inboxes == []


async def test_an_acceptor_that_fails_tells_no_detail(serve: Serve, connect_raw: Dial, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve()
    server.inboxes = None  # so that accepting raises
    client = await connect_raw(server.listener.port, "/ws")
    assert (client.status, client.body) == (500, b"internal error\n")
    assert "AttributeError" in caplog.text


async def test_a_receiver_that_cannot_start_closes_with_1011(
    serve: Serve, connect_raw: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve()
    server.start_failing()
    client = await connect_raw(server.listener.port, "/ws")
    assert await client.read_close() == (1011, "")
    assert "a bug of ours" in caplog.text


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, LIMIT])
async def test_messages_of_every_length_cross_both_ways(serve: Serve, connect_raw: Dial, size: int) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.send(TEXT, b"x" * size)
    inbox = server.inboxes[0]
    assert await inbox.next_frame() == b"x" * size
    inbox.send(b"y" * size)
    assert await client.receive() == (TEXT, b"y" * size)


async def test_frames_of_one_packet_arrive_as_several_messages(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    server.inboxes[0].send(b"one", b"x" * 300, b"three")
    assert [await client.receive() for _ in range(3)] == [(TEXT, b"one"), (TEXT, b"x" * 300), (TEXT, b"three")]


async def test_messages_of_one_write_are_heard_in_one_read_even_with_a_ping_among_them(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.writer.write(client.send_frame(TEXT, b"one") + client.send_frame(TEXT, b"two") + client.send_frame(PING, b"?"))
    inbox = server.inboxes[0]
    assert [await inbox.next_frame(), await inbox.next_frame()] == [b"one", b"two"]
    assert inbox.reads == 1
    assert await client.receive() == (PONG, b"?")


async def test_a_message_that_comes_byte_by_byte_is_heard_once(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in client.send_frame(TEXT, b"slow") + client.send_frame(TEXT, b"next"):
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    inbox = server.inboxes[0]
    assert [await inbox.next_frame(), await inbox.next_frame()] == [b"slow", b"next"]


async def test_a_flood_is_taken_in_bites(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    inbox = server.inboxes[0]
    inbox.stream.pause_reading()
    bites: list[int] = []
    inbox.on_frames = lambda frames: bites.append(len(frames)) or type(inbox).on_frames(inbox, frames)
    frame = client.send_frame(TEXT, b"x" * 100)
    client.writer.write(frame * 10_000)
    inbox.stream.resume_reading()
    await inbox.wait_until(lambda: len(inbox.frames) == 10_000)
    assert max(bites) * len(frame) <= 65_536 + len(frame)


async def test_fragments_are_put_together_around_a_ping(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.send(TEXT, "𝄞".encode()[:2], fin=False)
    client.send(PING, b"in between")
    client.send(CONTINUATION, b"", fin=False)
    client.send(CONTINUATION, "𝄞".encode()[2:])
    client.send(TEXT, b"")
    client.send(TEXT, b"after")
    inbox = server.inboxes[0]
    assert [await inbox.next_frame(), await inbox.next_frame()] == ["𝄞".encode(), b"after"]
    assert await client.receive() == (PONG, b"in between")


async def test_a_frame_over_the_limit_closes_with_1009_which_the_client_can_read_after_sending_all_of_it(
    serve: Serve, connect_raw: Dial
) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    for _ in range(20):
        client.send(TEXT, b"x" * 1_000_000)
        await client.writer.drain()
    assert (await client.read_close())[0] == 1009
    assert await client.reader.read() == b""
    client.writer.close()
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)
    assert not server.inboxes[0].frames


async def test_fragments_over_the_limit_close_with_1009(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.send(TEXT, b"x" * LIMIT, fin=False)
    client.send(CONTINUATION, b"x")
    assert (await client.read_close())[0] == 1009
    assert not server.inboxes[0].frames


@pytest.mark.parametrize(
    "frames",
    [
        [{"opcode": TEXT, "payload": b"x", "masked": False}],
        [{"opcode": TEXT, "payload": b"x", "reserved": 0x40}],
        [{"opcode": CONTINUATION, "payload": b"x"}],
        [{"opcode": TEXT, "payload": b"x", "fin": False}, {"opcode": TEXT, "payload": b"x"}],
        [{"opcode": 3, "payload": b"x"}],
        [{"opcode": PING, "payload": b"x", "fin": False}],
        [{"opcode": PING, "payload": b"x" * 126}],
        [{"opcode": CLOSE, "payload": b"x"}],
    ],
    ids=["unmasked", "reserved-bit", "nothing-to-continue", "unfinished", "unknown", "ping-fragment", "ping-size", "close-code"],
)
async def test_a_breach_of_the_rules_closes_with_1002(serve: Serve, connect_raw: Dial, frames: list[dict[str, Any]]) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    for frame in frames:
        client.send(**frame)
    assert (await client.read_close())[0] == 1002
    client.writer.close()
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)
    assert not server.inboxes[0].frames


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1008, "no"), (4001, "weil" + "ä" * 200)])
async def test_the_daemons_close_code_reaches_the_client_and_its_answer_ends_the_connection(
    serve: Serve, connect_raw: Dial, code: int, reason: str
) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    inbox = server.inboxes[0]
    inbox.send(b"last words")
    inbox.stream.close(code, reason)
    inbox.send(b"too late")
    assert not inbox.stream.writable
    assert await client.receive() == (TEXT, b"last words")
    told, why = await client.read_close()
    assert told == code
    assert reason.startswith(why)
    assert len(why) > 60 or why == reason
    client.send(TEXT, b"not heard any more")
    client.send(CLOSE, code.to_bytes(2))
    assert await client.reader.read() == b""
    await inbox.wait_until(lambda: inbox.closed)
    assert not inbox.frames


async def test_a_client_that_answers_a_goodbye_with_a_flood_costs_no_memory(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    server.inboxes[0].stream.close()
    await client.read_close()
    too_big = client.send_frame(TEXT, b"x" * 10_000_000)[:14]
    tracemalloc.start()
    try:
        client.writer.write(too_big)
        for _ in range(100):
            client.writer.write(b"x" * 100_000)
            await client.writer.drain()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize(("said", "answered"), [(b"", 1000), ((4002).to_bytes(2) + b"bye", 4002)])
async def test_a_clients_goodbye_is_answered_after_what_it_said_before(
    serve: Serve, connect_raw: Dial, said: bytes, answered: int
) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    inbox = server.inboxes[0]
    inbox.on_frames = lambda frames: inbox.send(*frames)
    client.writer.write(client.send_frame(TEXT, b"echo") + client.send_frame(CLOSE, said) + client.send_frame(TEXT, b"too late"))
    assert await client.receive() == (TEXT, b"echo")
    assert await client.receive() == (CLOSE, answered.to_bytes(2))
    assert await client.reader.read() == b""
    await inbox.wait_until(lambda: inbox.closed)


async def test_a_client_that_vanishes_is_noticed(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.writer.transport.abort()
    inbox = server.inboxes[0]
    await inbox.wait_until(lambda: inbox.closed)
    inbox.send(b"into the void")
    inbox.stream.close()
    inbox.stream.pause_reading()


async def test_an_idle_client_that_answers_pings_stays(serve: Serve, connect_raw: Dial) -> None:
    server = await serve(ping_seconds=0.15)
    client = await connect_raw(server.listener.port, "/ws")
    for _ in range(2):
        assert await client.receive() == (PING, b"")
        client.send(PONG)
    client.send(TEXT, b"still here")
    assert await server.inboxes[0].next_frame() == b"still here"


async def test_an_idle_client_that_answers_no_ping_is_dropped(serve: Serve, connect_raw: Dial) -> None:
    server = await serve(ping_seconds=0.05)
    client = await connect_raw(server.listener.port, "/ws")
    assert await client.receive() == (PING, b"")
    await server.inboxes[0].wait_until(lambda: server.inboxes[0].closed)


@pytest.mark.requirement("relay:link:dead")
async def test_a_client_that_takes_nothing_of_what_waits_for_it_is_dropped(serve: Serve, connect_raw: Dial) -> None:
    server = await serve(ping_seconds=0.05)
    client = await connect_raw(server.listener.port, "/ws")
    client.writer.transport.pause_reading()
    inbox = server.inboxes[0]
    while inbox.stream.writable:
        inbox.stream.send(Packet([b"x" * 65_000]))
    await inbox.wait_until(lambda: inbox.closed)


async def test_a_client_whom_we_do_not_read_is_not_taken_for_dead(serve: Serve, connect_raw: Dial) -> None:
    server = await serve(ping_seconds=0.02)
    paused = await connect_raw(server.listener.port, "/ws")
    silent = await connect_raw(server.listener.port, "/ws")
    server.inboxes[0].stream.pause_reading()
    await server.inboxes[1].wait_until(lambda: server.inboxes[1].closed)  # which takes two periods and a ping
    assert silent.status == 101
    assert not server.inboxes[0].closed
    paused.send(TEXT, b"finally")
    server.inboxes[0].stream.resume_reading()
    assert await server.inboxes[0].next_frame() == b"finally"


async def test_a_client_that_does_not_read_turns_the_stream_unwritable_until_it_does(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    client = await connect_raw(server.listener.port, "/ws")
    client.writer.transport.pause_reading()
    inbox = server.inboxes[0]
    packet = Packet([b"x" * 65_000])
    sent = 0
    while inbox.stream.writable:
        inbox.stream.send(packet)
        sent += 1
        assert sent < 1000, "what the system itself buffers has an end"
    waiting = inbox.stream.transport.get_write_buffer_size()
    assert LIMIT < waiting <= LIMIT + len(packet.websocket)

    for _ in range(100):
        client.send(PING, b"x" * 100)
    client.send(TEXT, b"that was the last ping")
    await inbox.next_frame()
    assert inbox.stream.transport.get_write_buffer_size() <= waiting, "pongs do not pile up"

    client.writer.transport.resume_reading()
    for _ in range(sent):
        assert await client.receive() == (TEXT, b"x" * 65_000)
    await inbox.wait_until(lambda: inbox.stream.writable)


async def test_a_hundred_clients_are_told_the_same(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    clients = await asyncio.gather(*(connect_raw(server.listener.port, f"/ws?n={n}") for n in range(100)))
    for number in range(20):
        packet = Packet([b"event %d" % number])
        for inbox in server.inboxes:
            inbox.stream.send(packet)
    for client in clients:
        assert [await client.receive() for _ in range(20)] == [(TEXT, b"event %d" % number) for number in range(20)]
    for client in clients:
        client.send(TEXT, b"thanks")
    assert [await inbox.next_frame() for inbox in server.inboxes] == [b"thanks"] * 100


async def test_closing_the_listener_says_goodbye_to_its_clients(serve: Serve, connect_raw: Dial) -> None:
    server = await serve()
    polite = await connect_raw(server.listener.port, "/ws")
    rude = await connect_raw(server.listener.port, "/ws")
    closing = asyncio.create_task(server.listener.close(grace=0.1))
    assert await polite.read_close() == (1001, "the daemon is stopping")
    polite.send(CLOSE, (1001).to_bytes(2))
    async with asyncio.timeout(4):  # the rude one is not given the time that a goodbye may take otherwise
        await closing
    assert all(inbox.closed for inbox in server.inboxes)
    assert rude.status == 101
