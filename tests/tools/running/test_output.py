"""Output as it comes: whoever listens may take his time, memory stays bounded, and the whole can be had in a file."""

import asyncio
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchtower.tools import safe_text
from switchtower.tools.processes import commands, orphans, output

TIMEOUT = 60
FLOOD = "head -c 30000000 /dev/zero | tr '\\0' x"


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


async def run(command: str, run_id: str, **options: Any) -> commands.FinishedCommand:
    options = {"timeout_s": TIMEOUT, **options}
    async with asyncio.timeout(TIMEOUT):
        return await commands.run_command(command, cwd="/", run_id=run_id, grace_s=0.1, **options)


async def test_a_listener_is_told_everything_in_order(run_id: str) -> None:
    told: list[bytes] = []

    finished = await run("seq 1 20000", run_id, on_output=told.append, keep_bytes=1_000_000)

    assert b"".join(told).decode() == finished.output == "".join(f"{number}\n" for number in range(1, 20001))


async def test_output_is_told_while_the_command_runs(run_id: str) -> None:
    heard = asyncio.Event()
    running = asyncio.create_task(run("echo first; sleep 1000", run_id, on_output=lambda chunk: heard.set()))
    async with asyncio.timeout(TIMEOUT):
        await heard.wait()

    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_nothing_more_is_read_until_a_listener_is_done(run_id: str) -> None:
    busy = False
    told = 0

    async def listen(chunk: bytes) -> None:
        nonlocal busy, told
        assert not busy, "told the next piece before the last one was taken"
        busy = True
        for _ in range(3):
            await asyncio.sleep(0)
        busy = False
        told += len(chunk)

    finished = await run(FLOOD, run_id, on_output=listen)

    assert told == finished.output_bytes == 30_000_000


async def test_a_program_waits_for_a_slow_listener(run_id: str, tmp_path: Path) -> None:
    """It cannot write more than the pipe holds; the rest comes when the listener goes on."""
    go_on = asyncio.Event()
    pieces: list[int] = []

    async def listen(chunk: bytes) -> None:
        pieces.append(len(chunk))
        await go_on.wait()

    progress = tmp_path / "progress"
    command = f"for i in $(seq 40); do head -c 65536 /dev/zero; echo $i >> {progress}; done"
    running = asyncio.create_task(run(command, run_id, on_output=listen))
    async with asyncio.timeout(TIMEOUT):
        while not _is_stuck_in_writing(run_id):
            await asyncio.sleep(0.01)
    assert len(pieces) == 1
    assert len(progress.read_text().splitlines() if progress.exists() else []) < 4

    go_on.set()
    assert (await running).output_bytes == sum(pieces) == 40 * 65536


def _is_stuck_in_writing(run_id: str) -> bool:
    held = orphans.hold_marked(run_id)
    for pidfd in held.values():
        os.close(pidfd)
    return any("pipe_write" in _get_wait_channel(pid) for pid in held)


def _get_wait_channel(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""  # it has ended since


async def test_a_flood_does_not_grow_memory_whoever_listens(run_id: str) -> None:
    async def listen(chunk: bytes) -> None:
        await asyncio.sleep(0)

    await run("true", run_id, on_output=listen)  # what is loaded with the first command is not the flood's
    tracemalloc.start()
    try:
        await run(FLOOD, run_id, on_output=listen)
        await run(FLOOD, run_id)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 2_000_000


async def test_a_listener_that_fails_is_told_no_more_and_the_command_goes_on(
    run_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def fail_at_once(chunk: bytes) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("a listener's bug")

    async def fail_later(chunk: bytes) -> None:
        fail_at_once(chunk)

    for listener in (fail_at_once, fail_later):
        calls = 0
        finished = await run(FLOOD, run_id, on_output=listener)
        assert finished.output_bytes == 30_000_000
        assert calls == 1
    assert caplog.text.count("output is no longer told to its listener") == 2


async def test_a_listener_that_never_finishes_holds_up_neither_the_time_limit_nor_a_cancellation(run_id: str) -> None:
    heard = asyncio.Event()

    async def never(chunk: bytes) -> None:
        heard.set()
        await asyncio.Event().wait()

    assert (await run(FLOOD, run_id, on_output=never, timeout_s=0.5)).timed_out
    short = await run("echo short", run_id, on_output=never, timeout_s=0.5)
    assert (short.output, short.exit_code) == ("short\n", 0)

    heard.clear()
    running = asyncio.create_task(run(FLOOD, run_id, on_output=never))
    async with asyncio.timeout(TIMEOUT):
        await heard.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert not orphans.has_marked_processes(run_id)


async def test_a_slow_listener_is_told_the_rest_after_the_command_has_ended(run_id: str) -> None:
    told: list[bytes] = []

    async def listen(chunk: bytes) -> None:
        async with asyncio.timeout(TIMEOUT):
            while orphans.has_marked_processes(run_id):
                await asyncio.sleep(0.01)
        told.append(chunk)

    # All of it fits into the pipe, so the command can end before it is read.
    finished = await run("printf first; head -c 40000 /dev/zero", run_id, on_output=listen)

    assert sum(map(len, told)) == finished.output_bytes == 40_005


async def test_a_listener_may_take_longer_than_a_process_in_the_background_is_waited_for() -> None:
    told: list[bytes] = []
    heard, go_on = asyncio.Event(), asyncio.Event()

    async def listen(chunk: bytes) -> None:
        told.append(chunk)
        heard.set()
        await go_on.wait()

    reading, writing = os.pipe()
    read = output.CommandOutput(reading, safe_text.SpillingCapture(1000), listen, linger_s=0)
    os.write(writing, b"first")
    async with asyncio.timeout(TIMEOUT):
        await heard.wait()
        os.write(writing, b"second")
        os.close(writing)
        draining = asyncio.create_task(read.drain(asyncio.get_running_loop().time() + TIMEOUT))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not draining.done()

        go_on.set()
        await draining
    read.close()
    assert (told, read.kept.render()) == ([b"first", b"second"], "firstsecond")


async def test_a_short_output_leaves_the_file_empty(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "spill"
    with file.open("wb") as spill:
        finished = await run("printf 12345", run_id, keep_bytes=5, spill=spill.fileno())

    assert (finished.output, finished.spilled_bytes) == ("12345", 0)
    assert file.read_bytes() == b""


async def test_a_long_output_is_in_the_file_as_a_whole(run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "spill"
    with file.open("wb") as spill:
        finished = await run("seq 1 50000", run_id, keep_bytes=1000, spill=spill.fileno())

    whole = "".join(f"{number}\n" for number in range(1, 50001))
    assert file.read_text() == whole
    assert finished.spilled_bytes == finished.output_bytes == len(whole)
    assert len(finished.output) < 1100


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
async def test_a_full_disk_costs_the_file_and_not_the_command(run_id: str) -> None:
    with Path("/dev/full").open("wb", buffering=0) as spill:
        finished = await run("seq 1 50000", run_id, keep_bytes=1000, spill=spill.fileno())

    assert (finished.exit_code, finished.spilled_bytes) == (0, 0)
    assert finished.output.endswith("50000\n")
