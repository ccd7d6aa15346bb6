import pytest

from switchtower.testing.memory.stream import RecordingReceiver, join_receivers
from switchtower.transports.stream import ConnectionOrigin


async def test_frames_cross_in_order_and_those_of_one_turn_arrive_together() -> None:
    class Counting(RecordingReceiver):
        reads = 0

        def on_frames(self, frames: list[bytes]) -> None:
            self.reads += 1
            super().on_frames(frames)

    here, there = RecordingReceiver(), Counting()
    join_receivers(here, there)
    here.send(b"1", b"2")
    here.send(b"3")
    assert not there.frames
    assert [await there.next_frame() for _ in range(3)] == [b"1", b"2", b"3"]
    assert there.reads == 1
    there.send(b"answer")
    assert await here.next_frame() == b"answer"


async def test_a_side_that_does_not_read_makes_the_other_unwritable_until_it_does() -> None:
    here, there = RecordingReceiver(), RecordingReceiver()
    left, right = join_receivers(here, there, output_limit_bytes=10)
    right.pause_reading()
    here.send(b"x" * 10)
    assert left.writable
    here.send(b"x")
    assert not left.writable
    right.resume_reading()
    await here.wait_until(lambda: left.writable)
    assert list(there.frames) == [b"x" * 10, b"x"]


async def test_a_stalled_stream_is_unwritable_and_holds_frames_back_until_drained() -> None:
    here, there = RecordingReceiver(), RecordingReceiver()
    left, right = join_receivers(here, there)
    left.block()
    assert not left.writable
    here.send(b"held")
    there.send(b"the other way is free")
    await here.next_frame()
    assert not there.frames
    left.unblock()
    assert await there.next_frame() == b"held"
    await here.wait_until(lambda: left.writable)
    assert right.writable


async def test_what_was_sent_before_a_close_arrives_and_then_both_sides_are_told() -> None:
    here, there = RecordingReceiver(), RecordingReceiver()
    left, right = join_receivers(here, there)
    here.send(b"last words")
    left.close(4001, "enough")
    here.send(b"too late")
    assert await there.next_frame() == b"last words"
    with pytest.raises(EOFError):
        await there.next_frame()
    await here.wait_until(lambda: here.closed)
    assert left.closed_with == (4001, "enough")
    assert not left.writable
    assert not right.writable


async def test_an_abort_loses_what_is_under_way() -> None:
    here, there = RecordingReceiver(), RecordingReceiver()
    left, _ = join_receivers(here, there)
    here.send(b"lost")
    left.abort()
    with pytest.raises(EOFError):
        await there.next_frame()


async def test_the_origin_can_be_chosen() -> None:
    here, there = RecordingReceiver(), RecordingReceiver()
    left, right = join_receivers(here, there, origin=ConnectionOrigin(transport="websocket", token="t"))
    assert left.origin.token == right.origin.token == "t"
