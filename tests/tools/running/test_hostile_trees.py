"""A hundred process trees that do not want to end, in four ways of ending them, and none is left."""

import asyncio
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.running.watching import PidReports, find_processes_with, kill_with_watchdog

from switchtower.tools.processes import commands as processes_commands
from switchtower.tools.processes import orphans

HOSTILE = Path(__file__).with_name("hostile.py")
SHORT_GRACE = 0.1
TIMEOUT = 60

WAYS_OUT = ("session", "doubly-forked", "forked session", "doubly-forked forked", "session forked session")
MANNERS = ("", "deaf", "scrubbed", "scrubbed silent", "scrubbed deaf silent")
LAST_STANDS = ("", "chain", "phoenix", "headless", "stopped")
RUNS = [
    # Each way out with each manner, and each of these with another last stand.
    [f"{way} {manner} {LAST_STANDS[(row + column) % 5]}".split() for column, manner in enumerate(MANNERS)]
    for row, way in enumerate(WAYS_OUT)
]
TREES = len(list(itertools.chain(*RUNS)))
assert TREES == 25


@pytest.fixture
def token() -> Iterator[str]:
    token = f"token-{uuid4().hex}"
    yield token
    if find_processes_with(token):
        for number in range(len(RUNS)):
            processes_commands.kill_marked(run_of(token, number))


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[PidReports]:
    reports = PidReports(tmp_path / "reports")
    yield reports
    reports.close()


def run_of(token: str, number: int) -> str:
    return f"run_{token}_{number}"


def make_command(trees: list[list[str]], token: str, folder: Path, *, stays: bool) -> str:
    """Starts them all in the background, and ends at once or stays."""
    lines = []
    for tree in trees:
        scrubbed = ["env", "-i"] if "scrubbed" in tree else []
        lines.append(shlex.join([*scrubbed, sys.executable, "-IS", str(HOSTILE), token, str(folder / "reports"), *tree]) + " &")
    return "\n".join([*lines, "sleep 1000" if stays else "true"])


def start_all(
    token: str, folder: Path, *, stays: bool, timeout_s: float = TIMEOUT
) -> list["asyncio.Task[processes_commands.FinishedCommand]"]:
    return [
        asyncio.create_task(
            processes_commands.run_command(
                make_command(trees, token, folder, stays=stays),
                cwd=str(folder),
                run_id=run_of(token, number),
                timeout_s=timeout_s,
                grace_s=SHORT_GRACE,
            )
        )
        for number, trees in enumerate(RUNS)
    ]


async def find_all(token: str) -> None:
    """At one look: those of a chain change so fast that some looks miss one."""
    async with asyncio.timeout(TIMEOUT):
        while len(find_processes_with(token)) < TREES:
            await asyncio.sleep(0.01)


async def test_none_is_left_when_commands_are_cancelled(token: str, tmp_path: Path, reports: PidReports) -> None:
    running = start_all(token, tmp_path, stays=True)
    await reports.wait_for_pids(TREES, within=TIMEOUT)
    await find_all(token)

    for task in running:
        task.cancel()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.wait(running)

    assert all(task.cancelled() for task in running)
    assert find_processes_with(token) == {}


async def test_none_is_left_when_commands_run_out_of_time(token: str, tmp_path: Path, reports: PidReports) -> None:
    async with asyncio.timeout(TIMEOUT):
        finished = await asyncio.gather(*start_all(token, tmp_path, stays=True, timeout_s=1))

    assert all(end.timed_out for end in finished)
    assert await reports.wait_for_pids(1), "some of them were there"
    assert find_processes_with(token) == {}


async def test_none_is_left_when_runs_end_after_their_commands_have(token: str, tmp_path: Path, reports: PidReports) -> None:
    async with asyncio.timeout(TIMEOUT):
        finished = await asyncio.gather(*start_all(token, tmp_path, stays=False))
    assert not any(end.timed_out for end in finished)
    await reports.wait_for_pids(TREES, within=TIMEOUT)
    await find_all(token)  # they may live on for the run's next commands

    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(
            *(processes_commands.end_run(run_of(token, number), grace_s=SHORT_GRACE) for number in range(len(RUNS)))
        )

    assert find_processes_with(token) == {}


DAEMON = """
import asyncio, json, sys
from switchtower.tools.processes import commands as processes
async def main():
    commands = json.loads(sys.stdin.read())
    await asyncio.gather(*(processes.run_command(text, cwd="/", run_id=run_id, timeout_s=1000) for run_id, text in commands))
asyncio.run(main())
"""


async def test_none_is_left_when_the_next_daemon_cleans_up_after_a_killed_one(
    token: str, tmp_path: Path, reports: PidReports
) -> None:
    commands = [(run_of(token, number), make_command(trees, token, tmp_path, stays=True)) for number, trees in enumerate(RUNS)]
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON], stdin=subprocess.PIPE)
    assert daemon.stdin is not None
    daemon.stdin.write(json.dumps(commands).encode())
    daemon.stdin.close()
    await reports.wait_for_pids(TREES, within=TIMEOUT)
    kill_with_watchdog(daemon.pid)
    daemon.wait()
    await find_all(token)  # they outlive the daemon itself

    killed = [await asyncio.to_thread(processes_commands.kill_marked, run_of(token, number)) for number in range(len(RUNS))]

    assert all(count >= len(trees) for count, trees in zip(killed, RUNS, strict=True))
    assert find_processes_with(token) == {}
    assert not any(orphans.has_marked_processes(run_of(token, number)) for number in range(len(RUNS)))
