"""Output on its way: bounded pieces of whole characters, not too many, not for ever."""

import asyncio

from switchtower.core import redact
from switchtower.tools.processes import output


class ProgressWatcher:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.arrived = asyncio.Event()

    async def __call__(self, text: str) -> None:
        self.pieces.append(text)
        self.arrived.set()

    async def wait_for_piece(self) -> str:
        async with asyncio.timeout(60):
            await self.arrived.wait()
        self.arrived.clear()
        return self.pieces[-1]


async def test_what_comes_close_together_is_told_as_one_piece() -> None:
    watcher = ProgressWatcher()
    async with output.OutputProgress(watcher, interval=0.01) as watching:
        for number in range(100):
            watching.add_output(b"%d " % number)
        assert await watcher.wait_for_piece() == "".join(f"{number} " for number in range(100))
        watching.add_output(b"later")
        assert await watcher.wait_for_piece() == "later"


async def test_a_character_that_comes_in_parts_is_told_whole() -> None:
    watcher = ProgressWatcher()
    async with output.OutputProgress(watcher, interval=0) as watching:
        for byte in "✓".encode():
            watching.add_output(bytes([byte]))
            await asyncio.sleep(0)
        assert await watcher.wait_for_piece() == "✓"
        watching.add_output(b"\xff!")
        assert await watcher.wait_for_piece() == "\ufffd!"


async def test_a_flood_is_told_by_its_latest_part_and_says_what_is_missing() -> None:
    watcher = ProgressWatcher()
    async with output.OutputProgress(watcher, interval=0.01, piece=10) as watching:
        watching.add_output(b"x" * 95 + b"tail!")
        assert await watcher.wait_for_piece() == "[… 92 characters skipped …]\nxxxtail!"


async def test_what_is_skipped_ends_with_a_line_so_that_no_rest_of_a_secret_is_shown() -> None:
    secret = "ghp_aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
    for after in range(400, 480):
        watcher, redactor = ProgressWatcher(), redact.Redactor().open_stream()
        async with output.OutputProgress(watcher, interval=0, piece=500) as watching:
            watching.add_output((secret[:4] + "\n" + "x" * 100 + secret + "\n" + "." * after).encode())
            piece = await watcher.wait_for_piece()
        note, *lines = (redactor.feed(piece) + redactor.close()).split("\n")
        assert (note, lines) == ("[… 146 characters skipped …]", ["." * after])


async def test_after_enough_of_it_one_note_is_the_last() -> None:
    watcher = ProgressWatcher()
    async with output.OutputProgress(watcher, interval=0, most=25) as watching:
        for _ in range(2):
            watching.add_output(b"0123456789")
            await watcher.wait_for_piece()
        watching.add_output(b"0123456789")
        assert await watcher.wait_for_piece() == "\n[… no more is shown on the way; the rest is in the result …]"
        watching.add_output(b"more")
        for _ in range(10):
            await asyncio.sleep(0)
    assert len(watcher.pieces) == 3


async def test_a_watcher_that_fails_or_hangs_is_no_trouble_for_who_works() -> None:
    asked = asyncio.Event()

    async def failing(text: str) -> None:
        asked.set()
        raise RuntimeError("gone")

    async def hanging(text: str) -> None:
        asked.set()
        await asyncio.Event().wait()

    for watcher in (failing, hanging):
        asked.clear()
        async with asyncio.timeout(60), output.OutputProgress(watcher, interval=0) as watching:
            watching.add_output(b"x")
            await asked.wait()
            watching.add_output(b"y" * 100_000)
