"""Lines over descriptors that others gave us, whatever kind they are, and whether or not anybody reads."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.transports.conftest import CountingReceiver

from switchtower.transports.stdio import StdioConnection
from switchtower.transports.stream import ConnectionOrigin

LIMIT = 100_000


class StdioPipes:
    """A connection, and the far ends of its two descriptors."""

    def __init__(self, stack: ExitStack, *, input_fd: int | None = None, output_fd: int | None = None) -> None:
        self._stack = stack
        self._open: set[int] = set()
        self.inbox = CountingReceiver()
        self.ended = asyncio.Event()
        near_input, self.input = self._make_pipe() if input_fd is None else (input_fd, -1)
        self.output, near_output = self._make_pipe() if output_fd is None else (-1, output_fd)
        self.near = near_input, near_output
        self.connection = StdioConnection(
            self.inbox,
            *self.near,
            max_line_bytes=LIMIT,
            output_limit_bytes=LIMIT,
            ended=self.ended.set,
            complaint=lambda size, limit: f"{size} over {limit}",
        )

    def _make_pipe(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        for fd in (reader, writer):
            self._open.add(fd)
            self._stack.callback(self.shut, fd)
        return reader, writer

    def shut(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)

    def start(self) -> "StdioPipes":
        self.connection.start()
        return self

    async def read(self, size: int) -> bytes:
        """Exactly so much, past whatever it takes."""
        got = b""
        while len(got) < size:
            piece = await asyncio.to_thread(os.read, self.output, size - len(got))
            if not piece:
                raise EOFError(got)
            got += piece
        return got


Make = Callable[..., StdioPipes]


@pytest.fixture
async def make_stream() -> AsyncIterator[Make]:
    with ExitStack() as stack:
        made: list[StdioPipes] = []

        def one(**options: Any) -> StdioPipes:
            made.append(StdioPipes(stack, **options))
            return made[-1]

        yield one
        for ends in made:
            ends.connection.abort()
            await ends.connection.wait_closed()


async def test_lines_arrive_and_answers_leave(make_stream: Make) -> None:
    ends = make_stream().start()
    os.write(ends.input, b'{"n":1}\n\n{"n":2}\r\n')
    assert [await ends.inbox.next_frame(), await ends.inbox.next_frame()] == [b'{"n":1}', b'{"n":2}\r']
    assert ends.inbox.reads == 1
    ends.inbox.send(b"one", b"two")
    assert await ends.read(8) == b"one\ntwo\n"
    assert ends.connection.origin == ConnectionOrigin(transport="stdio")


async def test_the_end_of_the_input_is_told_once_and_answers_still_leave(make_stream: Make) -> None:
    ends = make_stream().start()
    os.write(ends.input, b"whole\nunfinished")
    ends.shut(ends.input)
    await ends.ended.wait()
    assert list(ends.inbox.frames) == [b"whole", b"unfinished"]
    assert not ends.inbox.closed
    ends.inbox.send(b"last words")
    ends.connection.close()
    await ends.connection.wait_closed()
    assert await ends.read(11) == b"last words\n"
    assert ends.inbox.closed


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_descriptor_is_left_as_it_was(make_stream: Make, blocking: bool) -> None:
    """Another process may share it, and has made it so for its own reasons."""
    ends = make_stream()
    for fd in ends.near:
        os.set_blocking(fd, blocking)
    ends.start()
    os.write(ends.input, b"question\n")
    assert await ends.inbox.next_frame() == b"question"
    answer = b"x" * 300_000
    ends.inbox.send(answer)
    assert await ends.read(len(answer) + 1) == answer + b"\n"
    assert [os.get_blocking(fd) for fd in ends.near] == [blocking, blocking]


async def test_files_will_do(make_stream: Make, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    input_fd, output_fd = os.open(tmp_path / "in", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    try:
        ends = make_stream(input_fd=input_fd, output_fd=output_fd).start()
        await ends.ended.wait()
        assert list(ends.inbox.frames) == [b"one", b"two"]
        ends.inbox.send(b"answer")
        ends.connection.close()
        await ends.connection.wait_closed()
        assert (tmp_path / "out").read_bytes() == b"answer\n"
    finally:
        os.close(input_fd)
        os.close(output_fd)


async def test_an_output_that_nobody_reads_blocks_nothing_and_loses_nothing(make_stream: Make) -> None:
    ends = make_stream().start()
    sent = b""
    number = 0
    while ends.connection.writable:
        line = b"%d" % number * 1_000
        ends.inbox.send(line)
        sent += line + b"\n"
        number += 1
    assert len(sent) < LIMIT + 300_000, "a pipe and a buffer, and no more"
    os.write(ends.input, b"still heard\n")
    assert await ends.inbox.next_frame() == b"still heard"
    assert not ends.connection.writable
    assert await ends.read(len(sent)) == sent
    await ends.inbox.wait_until(lambda: ends.connection.writable)


async def test_a_reader_that_has_gone_ends_it(make_stream: Make) -> None:
    ends = make_stream().start()
    ends.shut(ends.output)
    ends.inbox.send(b"into the void")
    await ends.ended.wait()
    assert ends.inbox.closed
    assert not ends.connection.writable
    ends.inbox.send(b"harmless")


async def test_an_abort_does_not_wait_for_a_reader(make_stream: Make) -> None:
    ends = make_stream().start()
    while ends.connection.writable:
        ends.inbox.send(b"x" * 10_000)
    ends.connection.abort()
    await ends.connection.wait_closed()
    assert ends.inbox.closed


async def test_what_is_not_wanted_yet_is_not_read(make_stream: Make) -> None:
    ends = make_stream().start()
    ends.connection.pause_reading()
    flood = b"x" * 999 + b"\n"

    def pour() -> None:
        with suppress(OSError):
            for _ in range(1_000):
                os.write(ends.input, flood)

    pouring = threading.Thread(target=pour)
    pouring.start()
    ends.inbox.send(b"answered all the same")
    assert await ends.read(22) == b"answered all the same\n"
    assert ends.inbox.reads == 0
    assert pouring.is_alive(), "a million bytes do not fit into a pipe"
    ends.connection.resume_reading()
    for _ in range(1_000):
        assert await ends.inbox.next_frame() == flood[:-1]
    await asyncio.to_thread(pouring.join)


async def test_a_line_over_the_limit_is_told_with_its_size_and_the_next_one_is_heard(make_stream: Make) -> None:
    ends = make_stream().start()
    await asyncio.to_thread(os.write, ends.input, b"x" * (LIMIT + 50_000) + b"\nnext\n")
    assert await ends.inbox.next_frame() == b"next"
    assert ends.inbox.refusals == [f"{LIMIT + 50_000} over {LIMIT}"]


async def test_no_thread_is_left(make_stream: Make) -> None:
    ends = make_stream().start()
    mine = [thread for thread in threading.enumerate() if thread.name in ("stdin", "stdout")]
    assert len(mine) >= 2
    ends.connection.close()
    await ends.connection.wait_closed()
    for thread in mine:
        await asyncio.to_thread(thread.join)
