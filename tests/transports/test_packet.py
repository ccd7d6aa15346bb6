import pytest

from switchtower.transports.stream import ConnectionOrigin, Packet


def test_lines_end_each_frame_with_a_line_feed() -> None:
    assert Packet([b"one", b"two"]).lines == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"),
        (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_websocket_header_has_the_shortest_length_that_fits(size: int, header: bytes) -> None:
    assert Packet([b"x" * size]).websocket == header + b"x" * size


def test_each_spelling_is_made_once() -> None:
    packet = Packet([b"one"])
    assert packet.lines is packet.lines
    assert packet.websocket is packet.websocket


def test_an_origin_shows_no_token() -> None:
    assert "hush" not in repr(ConnectionOrigin(transport="websocket", address="127.0.0.1:1", token="hush"))
