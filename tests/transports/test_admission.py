"""A WebSocket that was let in on terms of its own: messages that are too long are told of, and it goes on."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.transports.conftest import CONTINUATION, TEXT, CountingReceiver, Dial, serve_page

from switchtower.transports import http, upgrade

LIMIT = 200_000
OF_THE_PORT = 1_000


class AdmissionServer:
    def __init__(self) -> None:
        self.guests: list[CountingReceiver] = []
        self.listener: http.HttpListener

    def accept(self, request: upgrade.UpgradeRequest) -> upgrade.UpgradeAdmission:
        self.guests.append(CountingReceiver())
        return upgrade.UpgradeAdmission(
            receiver=self.guests[-1],
            max_message_bytes=LIMIT,
            complaint=lambda size, limit: f"{size} over {limit}",
        )


@pytest.fixture
async def server() -> AsyncIterator[AdmissionServer]:
    made = AdmissionServer()
    made.listener = await http.serve(
        serve_page, "127.0.0.1", 0, made.accept, max_message_bytes=OF_THE_PORT, output_limit_bytes=100_000
    )
    yield made
    await made.listener.close(grace=0)


async def test_its_own_limit_counts_and_not_the_port_s(server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(server.listener.port)
    client.send(TEXT, b"x" * LIMIT)
    assert await server.guests[0].next_frame() == b"x" * LIMIT


async def test_a_long_message_is_told_with_its_size_and_the_next_one_is_heard(server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(server.listener.port)
    client.send(TEXT, b"x" * (LIMIT + 1))
    client.send(TEXT, b"next")
    (guest,) = server.guests
    assert await guest.next_frame() == b"next"
    await guest.wait_until(lambda: bool(guest.refusals))
    assert guest.refusals == [f"{LIMIT + 1} over {LIMIT}"]
    guest.send(b"answer")
    assert await client.receive() == (TEXT, b"answer")


async def test_fragments_of_any_length_are_counted_and_not_kept(server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(server.listener.port)
    client.send(TEXT, b"x" * LIMIT, fin=False)
    for _ in range(9):
        client.send(CONTINUATION, b"x" * LIMIT, fin=False)
    client.send(CONTINUATION, b"x")
    client.send(TEXT, b"in ", fin=False)
    client.send(CONTINUATION, b"pieces")
    (guest,) = server.guests
    assert await guest.next_frame() == b"in pieces"
    assert guest.refusals == [f"{10 * LIMIT + 1} over {LIMIT}"]


async def test_a_frame_that_is_much_too_long_closes_with_1009(server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(server.listener.port)
    client.send(TEXT, b"x" * (2 * LIMIT + 1))
    assert (await client.read_close())[0] == 1009


async def test_both_ends_of_its_connection_are_known(server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(server.listener.port)
    origin = server.guests[0].stream.origin
    assert origin.address == "{}:{}".format(*client.writer.get_extra_info("sockname"))
    assert origin.reached_at == "{}:{}".format(*client.writer.get_extra_info("peername"))
    assert server.listener.websocket_url == f"ws://127.0.0.1:{server.listener.port}"


class DiscardingServer(AdmissionServer):
    def accept(self, request: upgrade.UpgradeRequest) -> upgrade.UpgradeAdmission:
        return msgspec.structs.replace(super().accept(request), discards_long_frames=True)


@pytest.fixture
async def discarding_server() -> AsyncIterator[AdmissionServer]:
    made = DiscardingServer()
    made.listener = await http.serve(
        serve_page, "127.0.0.1", 0, made.accept, max_message_bytes=OF_THE_PORT, output_limit_bytes=100_000
    )
    yield made
    await made.listener.close(grace=0)


async def test_a_frame_of_any_length_is_discarded_and_the_next_one_is_read(
    discarding_server: AdmissionServer, connect_raw: Dial
) -> None:
    client = await connect_raw(discarding_server.listener.port)
    client.send(TEXT, b"before")
    client.send(TEXT, b"x" * (40 * LIMIT))
    client.send(TEXT, b"next")
    (guest,) = discarding_server.guests
    assert [await guest.next_frame(), await guest.next_frame()] == [b"before", b"next"]
    assert guest.refusals == [f"{40 * LIMIT} over {LIMIT}"]
    guest.send(b"answer")
    assert await client.receive() == (TEXT, b"answer")


async def test_the_complaint_is_sent_before_the_long_frame_has_arrived(
    discarding_server: AdmissionServer, connect_raw: Dial
) -> None:
    client = await connect_raw(discarding_server.listener.port)
    announced = b"\x81\xff" + (2**40).to_bytes(8) + b"mask"
    client.writer.write(announced + b"x" * 100)
    (guest,) = discarding_server.guests
    await guest.wait_until(lambda: bool(guest.refusals))
    assert guest.refusals == [f"{2**40} over {LIMIT}"]


async def test_frames_that_arrive_a_few_bytes_at_a_time_are_told_apart(
    discarding_server: AdmissionServer, connect_raw: Dial
) -> None:
    client = await connect_raw(discarding_server.listener.port)
    (guest,) = discarding_server.guests
    sent = bytearray()
    client.writer.write, write = sent.extend, client.writer.write
    client.send(TEXT, b"a" * 200)
    client.send(TEXT, b"x" * (LIMIT + 7))
    client.send(TEXT, b"b" * 70_000)
    client.send(TEXT, b"c")
    client.writer.write = write
    for start in range(0, len(sent), 997):
        step = 997 if 1_000 < start < LIMIT - 1_000 or start > LIMIT + 2_000 else 1  # byte by byte where headers are
        for place in range(start, min(start + 997, len(sent)), step):
            client.writer.write(bytes(sent[place : place + step]))
            await client.writer.drain()
    assert [await guest.next_frame() for _ in range(3)] == [b"a" * 200, b"b" * 70_000, b"c"]
    assert guest.refusals == [f"{LIMIT + 7} over {LIMIT}"]


async def test_long_frames_among_fragments_are_counted_with_them(discarding_server: AdmissionServer, connect_raw: Dial) -> None:
    client = await connect_raw(discarding_server.listener.port)
    client.send(TEXT, b"x" * (LIMIT + 1), fin=False)
    client.send(CONTINUATION, b"y", fin=False)
    client.send(CONTINUATION, b"z" * (LIMIT + 2))
    client.send(TEXT, b"in ", fin=False)
    client.send(CONTINUATION, b"pieces")
    (guest,) = discarding_server.guests
    assert await guest.next_frame() == b"in pieces"
    assert guest.refusals == [f"{2 * LIMIT + 4} over {LIMIT}"]


class PingingServer(AdmissionServer):
    def accept(self, request: upgrade.UpgradeRequest) -> upgrade.UpgradeAdmission:
        return msgspec.structs.replace(super().accept(request), ping_seconds=0.05)


async def test_its_own_ping_period_counts_and_one_that_does_not_answer_is_dropped(connect_raw: Dial) -> None:
    made = PingingServer()
    made.listener = await http.serve(
        serve_page, "127.0.0.1", 0, made.accept, max_message_bytes=OF_THE_PORT, output_limit_bytes=100_000, ping_seconds=3_600
    )
    await connect_raw(made.listener.port)
    (guest,) = made.guests
    await guest.wait_until(lambda: guest.closed)
    await made.listener.close(grace=0)
