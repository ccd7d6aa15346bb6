"""The end of a log is read without reading the log."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from switchtower.tools import remote_ops
from switchtower.tools.remote_ops import host


async def get_refusal(path: str | None) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await remote_ops.read_log_tail(path)
    return caught.value.message


async def test_the_last_lines_are_told_with_relays_fields(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(300)))

    tail = await remote_ops.read_log_tail(str(log), lines=2)
    assert msgspec.to_builtins(tail) == {"path": str(log), "text": "line 298\nline 299\n", "truncated": False}
    assert (await remote_ops.read_log_tail(str(log))).text.startswith("line 100\n")


async def test_only_whole_lines_are_told_where_bytes_run_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("äöü first\näöü second\näöü third")

    size = len("äöü third".encode())
    for extra in range(1, len("äöü second\n".encode()) + 1):
        tail = await remote_ops.read_log_tail(str(log), max_bytes=size + extra)
        assert tail.truncated
        assert tail.text == ("äöü third" if extra < len("äöü second\n".encode()) else "äöü second\näöü third")


async def test_a_line_longer_than_the_limit_is_told_from_its_middle(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 1000 + "\n")
    assert (await remote_ops.read_log_tail(str(log), max_bytes=10)).text == "x" * 9 + "\n"


@pytest.mark.parametrize(("lines", "max_bytes"), [(10**9, 10**12), (2001, 2_000_001)])
async def test_nobody_gets_more_than_the_limits(tmp_path: Path, lines: int, max_bytes: int) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 999 + "\n" + "y\n" * 1_500_000)
    tail = await remote_ops.read_log_tail(str(log), lines=lines, max_bytes=max_bytes)
    assert tail.text == "y\n" * host.MOST_LINES
    log.write_text("x" * 3_000_000)
    assert len((await remote_ops.read_log_tail(str(log), lines=lines, max_bytes=max_bytes)).text) == host.MOST_BYTES


@pytest.mark.parametrize("number", [0, -1, -(10**9)])
async def test_less_than_nothing_is_one(tmp_path: Path, number: int) -> None:
    log = tmp_path / "log"
    log.write_text("a\nb\n")
    assert (await remote_ops.read_log_tail(str(log), lines=number)).text == "b\n"
    assert (await remote_ops.read_log_tail(str(log), max_bytes=number)).text == "\n"


async def test_the_end_of_five_gigabytes_is_read_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(5 * 1024**3)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast \xff\rline\n")
    tail = await remote_ops.read_log_tail(str(log), lines=1)
    assert (tail.text, tail.truncated) == ("last \ufffd\rline\n", True)


async def test_a_log_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert await get_refusal(None) == "HOSTD_LOG_PATH is not set"
    assert await get_refusal(str(tmp_path / "none")) == "no such file"
    assert await get_refusal(str(tmp_path)) == "not a regular file"
    assert await get_refusal(str(tmp_path / "pipe")) == "not a regular file"
