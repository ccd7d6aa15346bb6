"""A command's two channels can be kept apart, each in bounded memory."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from switchtower.tools.processes import commands


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


async def test_errors_come_apart_when_asked_for_and_are_told_to_the_listener_too(tmp_path: Path, run_id: str) -> None:
    told: list[bytes] = []
    async with asyncio.timeout(60):
        finished = await commands.run_command(
            "echo out; echo error >&2; exit 3",
            cwd=str(tmp_path),
            run_id=run_id,
            timeout_s=15,
            on_output=told.append,
            errors_apart=True,
        )

    assert finished == commands.FinishedCommand(
        exit_code=3, output="out\n", timed_out=False, left_running=False, output_bytes=4, errors="error\n", errors_bytes=6
    )
    assert sorted(told) == [b"error\n", b"out\n"]


async def test_of_each_channel_as_much_is_kept(tmp_path: Path, run_id: str) -> None:
    async with asyncio.timeout(60):
        finished = await commands.run_command(
            "head -c 5000 /dev/zero; head -c 7000 /dev/zero >&2",
            cwd=str(tmp_path),
            run_id=run_id,
            timeout_s=15,
            keep_bytes=1000,
            errors_apart=True,
        )

    assert (finished.output_bytes, finished.errors_bytes) == (5000, 7000)
    assert finished.output.count("\0") == finished.errors.count("\0") == 750, "each less a quarter, for want of a line's end"


@pytest.mark.parametrize("held", ["2>/dev/null", ">/dev/null"])
async def test_one_channel_held_in_the_background_is_told_and_not_waited_for(tmp_path: Path, run_id: str, held: str) -> None:
    async with asyncio.timeout(60):
        finished = await commands.run_command(
            f"sleep 1000 {held} & echo done", cwd=str(tmp_path), run_id=run_id, timeout_s=15, errors_apart=True
        )

    assert finished.left_running
    assert (finished.output, finished.timed_out) == ("done\n", False)
