"""What waits for a slow client: in order, within a bound, and then no more."""

from switchtower.transports.stream import MOST_WAITING_BYTES, TRY_AGAIN_LATER, ConnectionOrigin, Outbox, Packet


class ControlledStream:
    """A stream that takes packets when the test says so."""

    origin = ConnectionOrigin(transport="memory")

    def __init__(self) -> None:
        self.writable = True
        self.sent: list[bytes] = []
        self.closed: list[tuple[int, str]] = []

    def send(self, packet: Packet) -> None:
        self.sent += packet.frames

    def pause_reading(self) -> None:
        """Nobody reads here."""

    def resume_reading(self) -> None:
        """Nobody reads here."""

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed.append((code, reason))

    def abort(self) -> None:
        self.closed.append((0, ""))


def test_what_is_said_to_a_reader_leaves_at_once() -> None:
    stream = ControlledStream()
    outbox = Outbox(stream)

    outbox.send(Packet([b"a", b"b"]))

    assert stream.sent == [b"a", b"b"]
    assert outbox.is_ready
    assert len(outbox) == 0


def test_what_waited_leaves_in_order_and_before_anything_new() -> None:
    stream = ControlledStream()
    outbox = Outbox(stream)
    stream.writable = False
    outbox.send(Packet([b"a"]))
    outbox.send(Packet([b"b"]))
    stream.writable = True
    outbox.send(Packet([b"c"]))
    assert stream.sent == []
    assert not outbox.is_ready

    assert outbox.flush()

    assert stream.sent == [b"a", b"b", b"c"]
    assert outbox.is_ready


def test_a_client_that_does_not_read_is_cut_off_once() -> None:
    stream = ControlledStream()
    outbox = Outbox(stream)
    stream.writable = False
    megabyte = bytes(1024 * 1024)

    for _ in range(2 * MOST_WAITING_BYTES // len(megabyte)):
        outbox.send(Packet([megabyte]))

    assert stream.closed == [(TRY_AGAIN_LATER, "too slow")]
    assert len(outbox) == 0
    stream.writable = True
    assert not outbox.flush()
    assert stream.sent == []
