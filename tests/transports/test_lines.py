import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from switchtower.transports.stream import LineSplitter

LIMIT = 6

streams = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"{", b"abc", b"abcdef", b"abcdefg", "é→𝄞".encode(), b"\xff"])).map(
    b"".join
)


def split_reference(stream: bytes) -> tuple[list[bytes], int]:
    """What the rules say, without regard to speed or memory."""
    *lines, rest = stream.split(b"\n")
    frames = [line for line in lines if len(line) <= LIMIT and line not in (b"", b"\r")]
    return frames, sum(len(line) > LIMIT for line in [*lines, rest])


def split(pieces: list[bytes]) -> tuple[list[bytes], int]:
    splitter = LineSplitter(LIMIT)
    frames = [frame for piece in pieces for frame in splitter.feed(piece)]
    return frames, splitter.oversized


@given(streams)
def test_one_chunk_and_byte_by_byte_give_the_same_frames(stream: bytes) -> None:
    assert split([stream]) == split_reference(stream)
    assert split([bytes([byte]) for byte in stream]) == split_reference(stream)


@given(st.lists(streams))
def test_any_other_cut_gives_the_same_frames(pieces: list[bytes]) -> None:
    assert split(pieces) == split_reference(b"".join(pieces))


def test_a_line_of_exactly_the_limit_is_a_frame_and_one_byte_more_is_not() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"abcdef\n") == [b"abcdef"]
    assert splitter.oversized == 0
    assert splitter.feed(b"abcdefg\nok\n") == [b"ok"]
    assert splitter.oversized == 1


def test_an_oversized_line_is_counted_once_and_before_it_ends() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"abcdefg") == []
    assert splitter.oversized == 1
    assert splitter.feed(b"more of it") == []
    assert splitter.feed(b"the end of it\nnext\n") == [b"next"]
    assert splitter.oversized == 1


def test_a_line_whose_pieces_are_each_within_the_limit_may_still_exceed_it() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"abcd") == []
    assert splitter.feed(b"efg\n") == []
    assert splitter.oversized == 1
    assert splitter.feed(b"ok\n") == [b"ok"]


def test_other_line_separators_stay_inside_a_frame() -> None:
    line = "a\u2028b\u2029c\x0bd\x0ce\x85f\rg".encode()
    assert LineSplitter(100).feed(line + b"\n") == [line]


def test_a_character_cut_in_two_by_reads_arrives_whole() -> None:
    note = "𝄞".encode()
    splitter = LineSplitter(100)
    assert splitter.feed(b'"' + note[:2]) == []
    assert splitter.feed(note[2:] + b'"\n') == ['"𝄞"'.encode()]


def test_the_last_line_may_lack_its_end() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"one\ntwo") == [b"one"]
    assert splitter.finish() == [b"two"]
    assert splitter.finish() == []
    splitter.feed(b"abcdefg")
    assert splitter.finish() == []
    assert splitter.oversized == 1


def test_an_endless_line_costs_no_more_memory_than_the_limit() -> None:
    splitter = LineSplitter(1_000_000)
    piece = b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(200):
            assert splitter.feed(piece) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_500_000


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(1, 30))
def test_lines_that_were_thrown_away_are_told_with_their_sizes(sizes: list[int], piece: int) -> None:
    stream = b"\n".join(b"x" * size for size in sizes)
    splitter = LineSplitter(20)
    lines: list[bytes] = []
    for start in range(0, len(stream), piece):
        lines += splitter.feed(stream[start : start + piece])
    lines += splitter.finish()

    assert [len(line) for line in lines] == [size for size in sizes if 0 < size <= 20]
    assert splitter.oversizes == [size for size in sizes if size > 20]
    assert splitter.oversized == len(splitter.oversizes)
