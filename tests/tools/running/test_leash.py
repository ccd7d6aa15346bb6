"""Programs that we run to look at something end with whoever waits for them."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from switchtower.tools import concurrency
from switchtower.tools.processes import cancellation, orphans

ENVIRONMENT = {"PATH": os.defpath}


def run_id() -> str:
    return f"run_{uuid4().hex}"


async def test_a_thread_gives_its_result_or_its_error() -> None:
    assert await concurrency.run_in_thread(lambda: threading.current_thread().name) == "tower-tool"
    with pytest.raises(ZeroDivisionError):
        await concurrency.run_in_thread(lambda: 1 // 0)


async def test_a_thread_that_hangs_does_not_keep_anybody_waiting() -> None:
    release = threading.Event()
    ended = threading.Event()

    def hang() -> None:
        release.wait()
        ended.set()

    waiting = asyncio.create_task(concurrency.run_in_thread(hang))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()
    release.set()
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_program_is_read_to_its_end_on_both_channels(tmp_path: Path) -> None:
    held = cancellation.CancelScope(run_id())
    code = "import sys; [(sys.stdout.write('o' * 1000), sys.stderr.write('e' * 1000)) for _ in range(500)]; sys.exit(7)"

    with held.start_program([sys.executable, "-c", code], cwd=str(tmp_path), env=ENVIRONMENT) as program:
        output = b"".join(program.read_output())
        assert program.exit_code == 7

    assert output == b"o" * 500_000
    assert program.error_text == "e" * 4096


def test_a_death_by_signal_counts_as_shells_have_it(tmp_path: Path) -> None:
    with cancellation.CancelScope(run_id()).start_program(
        ["/bin/sh", "-c", "kill -9 $$"], cwd=str(tmp_path), env=ENVIRONMENT
    ) as program:
        assert list(program.read_output()) == []
        assert program.exit_code == 137


def test_whoever_stops_reading_ends_the_program_and_what_it_started(tmp_path: Path) -> None:
    run = run_id()
    with cancellation.CancelScope(run).start_program(
        ["/bin/sh", "-c", "sleep 1000 & yes"], cwd=str(tmp_path), env=ENVIRONMENT
    ) as program:
        assert next(program.read_output()).startswith(b"y\n")

    while orphans.has_marked_processes(run):
        pass
    assert not orphans.has_marked_processes(run)


def test_of_a_long_complaint_the_end_is_kept(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "seq 5000 >&2; echo the reason >&2"]
    with cancellation.CancelScope(run_id()).start_program(command, cwd=str(tmp_path), env=ENVIRONMENT) as program:
        assert list(program.read_output()) == []
    assert program.error_text.endswith("\n4999\n5000\nthe reason")


def test_a_program_can_be_talked_with(tmp_path: Path) -> None:
    with cancellation.CancelScope().start_program(["cat"], cwd=str(tmp_path), env=ENVIRONMENT, stdin=subprocess.PIPE) as program:
        for word in (b"one\n", b"two\n"):
            program.stdin.write(word)
            program.stdin.flush()
            assert program.stdout.readline() == word


def test_a_pull_ends_all_programs_and_the_work_between_them(tmp_path: Path) -> None:
    held = cancellation.CancelScope(run := run_id())
    held.raise_if_cancelled()
    exit_codes: list[int] = []

    def work() -> None:
        with (
            held.start_program(["sleep", "1000"], cwd=str(tmp_path), env=ENVIRONMENT) as one,
            held.start_program(["sleep", "1000"], cwd=str(tmp_path), env=ENVIRONMENT) as other,
        ):
            held.cancel()
            exit_codes.extend((one.exit_code, other.exit_code))

    with pytest.raises(cancellation.HelperCancelled):
        work()
    assert exit_codes == [137, 137]
    assert not orphans.has_marked_processes(run)
    with pytest.raises(cancellation.HelperCancelled):
        held.raise_if_cancelled()


def test_without_a_run_a_program_bears_no_mark(tmp_path: Path) -> None:
    with cancellation.CancelScope().start_program(["env"], cwd=str(tmp_path), env=ENVIRONMENT) as program:
        printed = b"".join(program.read_output())
    assert orphans.MARKER.encode() not in printed


def test_a_pulled_leash_lets_nothing_start(tmp_path: Path) -> None:
    held = cancellation.CancelScope(run_id())
    held.cancel()

    with pytest.raises(cancellation.HelperCancelled), held.start_program(["touch", "ran"], cwd=str(tmp_path), env=ENVIRONMENT):
        pass
    assert list(tmp_path.iterdir()) == []


async def test_cancelling_ends_the_program_before_it_returns(tmp_path: Path) -> None:
    run = run_id()
    stopped = threading.Event()

    def work(held: cancellation.CancelScope) -> None:
        try:
            with held.start_program(["/bin/sh", "-c", "sleep 1000 & sleep 1000"], cwd=str(tmp_path), env=ENVIRONMENT) as program:
                list(program.read_output())
        except cancellation.HelperCancelled:
            stopped.set()

    leading = asyncio.create_task(cancellation.run_in_cancel_scope(run, work))
    while not await asyncio.to_thread(orphans.has_marked_processes, run):
        assert not leading.done()

    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading

    assert await asyncio.to_thread(stopped.wait, 5)
    assert not orphans.has_marked_processes(run)


async def test_cancelling_twice_does_not_leave_the_work_alone(tmp_path: Path) -> None:
    """Whoever holds a lock around the work may let go of it only when the work has ended."""
    begun, told, ended = threading.Event(), threading.Event(), threading.Event()

    def work(held: cancellation.CancelScope) -> None:
        with (
            suppress(cancellation.HelperCancelled),
            held.start_program(["sleep", "1000"], cwd=str(tmp_path), env=ENVIRONMENT) as program,
        ):
            begun.set()
            list(program.read_output())
        told.set()
        go_on.wait()
        ended.set()

    go_on = threading.Event()
    leading = asyncio.create_task(cancellation.run_in_cancel_scope(None, work, timeout_s=60))
    assert await asyncio.to_thread(begun.wait, 5)
    leading.cancel()
    assert await asyncio.to_thread(told.wait, 5)
    leading.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not leading.done()

    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await leading
    assert ended.is_set()


async def test_a_missing_program_is_an_error_of_the_system(tmp_path: Path) -> None:
    def work(held: cancellation.CancelScope) -> None:
        with held.start_program(["/no/such/program"], cwd=str(tmp_path), env=ENVIRONMENT):
            pass

    with pytest.raises(FileNotFoundError):
        await cancellation.run_in_cancel_scope(run_id(), work)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_not_left_open(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(5):
        with cancellation.CancelScope(run_id()).start_program(["true"], cwd=str(tmp_path), env=ENVIRONMENT) as program:
            list(program.read_output())

    assert open_descriptors() == before
