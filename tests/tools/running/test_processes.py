"""Commands run to their end, and nothing of them outlives a cancellation, a timeout or the run."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvloop
from tests.tools.running.watching import PidReports, is_alive, open_descriptors

from switchtower.tools.processes import commands, orphans

SHORT_GRACE = 0.1
TIMEOUT = 60


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[PidReports]:
    reports = PidReports(tmp_path / "reports")
    yield reports
    reports.close()


async def run(command: str, cwd: Path, run_id: str, *, timeout_s: float = 30, **options: Any) -> commands.FinishedCommand:
    async with asyncio.timeout(TIMEOUT):
        return await commands.run_command(
            command, cwd=str(cwd), run_id=run_id, timeout_s=timeout_s, grace_s=SHORT_GRACE, **options
        )


async def test_output_and_errors_come_back_in_one_stream_with_the_exit_code(tmp_path: Path, run_id: str) -> None:
    finished = await run("echo out; echo err >&2; pwd; exit 3", tmp_path, run_id)

    output = f"out\nerr\n{tmp_path}\n"
    assert finished == commands.FinishedCommand(
        exit_code=3, output=output, timed_out=False, left_running=False, output_bytes=len(output), spilled_bytes=0
    )


async def test_a_command_has_nothing_to_read_and_carries_its_run(tmp_path: Path, run_id: str) -> None:
    finished = await run("cat; echo $TOWER_RUN", tmp_path, run_id)

    assert finished.output == f"{run_id}\n"


async def test_a_death_by_signal_is_told_as_shells_do(tmp_path: Path, run_id: str) -> None:
    assert (await run("kill -9 $$", tmp_path, run_id)).exit_code == 137


async def test_output_that_is_no_text_does_not_hurt(tmp_path: Path, run_id: str) -> None:
    assert (await run(r"printf 'a\377b'", tmp_path, run_id)).output == "a\ufffdb"


async def test_of_a_flood_only_the_beginning_and_the_end_are_kept(tmp_path: Path, run_id: str) -> None:
    finished = await run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last", tmp_path, run_id, keep_bytes=1000)

    assert finished.output.startswith("first\nxxx")
    assert finished.output.endswith("xxx\nlast\n")
    assert f"\n[… {3000012 - 1000 + 2 * 125} bytes left out …]\n" in finished.output
    assert len(finished.output) < 1100


async def test_a_missing_workspace_raises_and_leaves_no_descriptor_open(tmp_path: Path, run_id: str) -> None:
    before = open_descriptors()
    for command, cwd in (("true", tmp_path / "gone"), ("tr\0ue", tmp_path)):
        with pytest.raises((OSError, ValueError)):
            await run(command, cwd, run_id)
    assert open_descriptors() == before


async def test_many_commands_leave_no_descriptor_open(tmp_path: Path, run_id: str) -> None:
    await run("true", tmp_path, run_id)
    before = open_descriptors()
    await asyncio.gather(*(run(f"echo {number}", tmp_path, run_id) for number in range(8)))
    await run("sleep 100", tmp_path, run_id, timeout_s=0.05)
    assert open_descriptors() == before


async def test_a_background_process_that_holds_the_pipe_does_not_hold_up_the_answer(
    tmp_path: Path, run_id: str, reports: PidReports
) -> None:
    finished = await run("(echo $BASHPID > reports; exec sleep 1000) & echo started", tmp_path, run_id)
    [background] = await reports.wait_for_pids(1)

    assert finished == commands.FinishedCommand(
        exit_code=0, output="started\n", timed_out=False, left_running=True, output_bytes=8
    )
    assert is_alive(background), "it may serve the run's next commands"

    await commands.end_run(run_id)
    assert not is_alive(background)


async def test_a_background_flood_does_not_hold_up_the_answer(tmp_path: Path, run_id: str) -> None:
    finished = await run("yes & echo started", tmp_path, run_id, keep_bytes=100)

    assert finished.left_running
    assert finished.exit_code == 0


LONG = "sleep 1000"
REPORT = "echo $BASHPID > reports"
HOSTILE = {
    "plain tree": f"({REPORT}; {LONG}) & ({REPORT}; {LONG}) & {REPORT}; wait",
    "own session": f"setsid bash -c '{REPORT}; {LONG}' & setsid bash -c '{REPORT}; exec {LONG}' & {REPORT}; {LONG}",
    "double fork": f"(setsid bash -c '({REPORT}; exec {LONG}) & ({REPORT}; {LONG}) &' &) ; {REPORT}; {LONG}",
    "deaf double fork": f"(setsid bash -c \"trap '' TERM; (echo \\$BASHPID > reports; exec {LONG}) & (exec {LONG}) &\" &) ; "
    f"{REPORT}; {REPORT}; {LONG}",
    "deaf to SIGTERM": f"trap '' TERM; (trap '' TERM; {REPORT}; {LONG}) & setsid bash -c \"trap '' TERM; {REPORT}; {LONG}\" & "
    f"{REPORT}; while :; do {LONG}; done",
    "closed output": f"exec >/dev/null 2>&1 <&-; ({REPORT}; exec {LONG}) & setsid bash -c '{REPORT}; {LONG}' & {REPORT}; {LONG}",
    "forgets its marker": f"env -i PATH=$PATH setsid bash -c '{REPORT}; {LONG}' & (unset TOWER_RUN; {REPORT}; exec {LONG}) & "
    f"{REPORT}; wait",
    "starts anew when told to stop": 'trap \'trap "" TERM; setsid bash -c "echo \\$BASHPID > reports; sleep 1000" &\' TERM; '
    f"({REPORT}; {LONG}) & ({REPORT}; {LONG}) & {REPORT}; while :; do wait; done",
    "stopped": f"({REPORT}; kill -STOP $BASHPID) & setsid bash -c '{REPORT}; kill -STOP $BASHPID' & {REPORT}; wait",
}


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_cancelled_command_leaves_no_process(command: str, tmp_path: Path, run_id: str, reports: PidReports) -> None:
    running = asyncio.create_task(run(command, tmp_path, run_id))
    started = await reports.wait_for_pids(3)
    assert all(map(is_alive, started))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [pid for pid in await reports.wait_for_pids(3) if is_alive(pid)] == [], "also those started meanwhile"
    assert not orphans.has_marked_processes(run_id)


async def test_a_process_started_while_the_rest_was_told_to_stop_goes_too(
    tmp_path: Path, run_id: str, reports: PidReports
) -> None:
    running = asyncio.create_task(
        commands.run_command(HOSTILE["starts anew when told to stop"], cwd=str(tmp_path), run_id=run_id, timeout_s=30, grace_s=1)
    )
    await reports.wait_for_pids(3)
    running.cancel()
    started_anew = (await reports.wait_for_pids(4))[3]
    assert is_alive(started_anew)

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running

    assert not is_alive(started_anew)


@pytest.mark.parametrize("tree", ["plain tree", "deaf to SIGTERM", "forgets its marker"])
async def test_a_command_out_of_time_leaves_no_process(tree: str, tmp_path: Path, run_id: str, reports: PidReports) -> None:
    finished = await run(f"echo begun; {HOSTILE[tree]}", tmp_path, run_id, timeout_s=0.7)

    assert finished.timed_out
    assert finished.exit_code > 128
    assert "begun" in finished.output
    assert not finished.left_running, "somebody still holds the pipe"
    assert [pid for pid in await reports.wait_for_pids(1) if is_alive(pid)] == []
    assert not orphans.has_marked_processes(run_id)


async def test_cancelling_again_and_again_does_not_cut_the_cleaning_short(
    tmp_path: Path, run_id: str, reports: PidReports
) -> None:
    running = asyncio.create_task(run(HOSTILE["deaf to SIGTERM"], tmp_path, run_id))
    started = await reports.wait_for_pids(3)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)

    assert running.cancelled()
    assert [pid for pid in started if is_alive(pid)] == []


async def test_a_program_may_clean_up_when_it_is_told_to_stop(tmp_path: Path, run_id: str, reports: PidReports) -> None:
    (tmp_path / "work.lock").touch()
    command = f"trap 'rm work.lock; exit' TERM; {REPORT}; while :; do sleep 0.01; done"
    running = asyncio.create_task(commands.run_command(command, cwd=str(tmp_path), run_id=run_id, timeout_s=30, grace_s=5))
    await reports.wait_for_pids(1)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running

    assert not (tmp_path / "work.lock").exists()


async def test_ending_a_run_takes_what_its_commands_left_and_spares_other_runs(
    tmp_path: Path, run_id: str, reports: PidReports
) -> None:
    other = f"{run_id}_other"
    leaving = "(setsid bash -c 'echo $BASHPID > reports; trap \"\" TERM; while :; do sleep 1000; done' >/dev/null 2>&1 &)"
    try:
        await run(leaving, tmp_path, other)
        [spared] = await reports.wait_for_pids(1)
        await run(leaving, tmp_path, run_id)
        _, mine = await reports.wait_for_pids(2)
        assert is_alive(mine)

        await commands.end_run(run_id, grace_s=SHORT_GRACE)

        assert not is_alive(mine)
        assert is_alive(spared)
    finally:
        assert commands.kill_marked(other) >= 1


async def test_what_a_killed_daemon_left_behind_is_found_and_killed(tmp_path: Path, run_id: str, reports: PidReports) -> None:
    program = (
        "import asyncio, sys; from switchtower.tools.processes import commands as processes;"
        "asyncio.run(processes.run_command(sys.argv[1], cwd=sys.argv[2], run_id=sys.argv[3], timeout_s=100))"
    )
    daemon = subprocess.Popen([sys.executable, "-c", program, HOSTILE["double fork"], str(tmp_path), run_id])
    left = await reports.wait_for_pids(3)
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    assert all(map(is_alive, left))

    killed = await asyncio.to_thread(commands.kill_marked, run_id)

    assert killed >= 3
    assert [pid for pid in left if is_alive(pid)] == []
    assert commands.kill_marked(run_id) == 0


async def test_when_even_the_cleaning_is_cancelled_nothing_is_left(tmp_path: Path, run_id: str, reports: PidReports) -> None:
    running = asyncio.create_task(run(HOSTILE["deaf to SIGTERM"], tmp_path, run_id))
    started = await reports.wait_for_pids(3)
    while not running.done():
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    assert running.cancelled()
    assert [pid for pid in started if is_alive(pid)] == []


def test_a_loop_that_goes_down_takes_its_commands_along(tmp_path: Path, run_id: str) -> None:
    """Ctrl-C ends the loop while a command runs."""

    async def interrupted() -> None:
        command = asyncio.create_task(run("setsid sleep 1000 & sleep 1000", tmp_path, run_id))
        while not orphans.has_marked_processes(run_id):
            await asyncio.sleep(0)
        assert not command.done()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())

    assert not orphans.has_marked_processes(run_id)


def test_commands_run_and_are_cancelled_on_uvloop_too(tmp_path: Path, run_id: str) -> None:
    async def scene() -> None:
        path = tmp_path / "reports"
        reports = PidReports(path)
        assert (await run("echo hello; exit 2", tmp_path, run_id)).output == "hello\n"
        running = asyncio.create_task(run(HOSTILE["own session"], tmp_path, run_id))
        started = await reports.wait_for_pids(3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        reports.close()
        assert [pid for pid in started if is_alive(pid)] == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
