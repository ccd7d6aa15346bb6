"""A command runs in the run's folder with its channels apart, and comes to an end with all that it started."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
import uvloop
from tests.tools.running.watching import PidReports, is_alive, open_descriptors

from switchtower.tools import remote_ops
from switchtower.tools.processes import commands, orphans
from switchtower.tools.remote_ops import shell

TIMEOUT = 60


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    cwd = tmp_path / "run"
    cwd.mkdir()
    return cwd


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


async def run_bash(cwd: Path, cmd: str, run_id: str, *, timeout_s: float = 30) -> shell.BashResult:
    async with asyncio.timeout(TIMEOUT):
        return await remote_ops.run_bash(str(cwd), cmd, run_id, timeout_s=timeout_s)


async def test_a_failed_command_keeps_its_output_and_has_its_errors_apart(cwd: Path, run_id: str) -> None:
    result = await run_bash(cwd, "pwd; echo bad >&2; exit 3", run_id)
    assert msgspec.to_builtins(result) == {"stdout": f"{cwd}\n", "stderr": "bad\n", "exit_code": 3, "truncated": False}


async def test_it_is_a_login_shell_with_nothing_to_read(cwd: Path, run_id: str, home: Path) -> None:
    (home / ".bash_profile").write_text("FROM_PROFILE=yes\n")
    assert (await run_bash(cwd, 'cat; echo "$FROM_PROFILE"', run_id)).stdout == "yes\n"


async def test_a_command_sees_no_keys_unless_it_is_given_them(cwd: Path, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a secret")
    assert (await run_bash(cwd, 'echo "[$SOME_API_KEY]"', run_id)).stdout == "[]\n"
    given = {"PATH": "/usr/bin:/bin", "RELAY_RUN_ID": run_id}
    assert (await remote_ops.run_bash(str(cwd), "echo $RELAY_RUN_ID", run_id, environment=given)).stdout == f"{run_id}\n"


@pytest.mark.parametrize("cmd", ["-c", "--version", "-i", "--", "-o errexit"])
async def test_a_command_is_never_an_option_of_the_shell(cwd: Path, run_id: str, cmd: str) -> None:
    result = await run_bash(cwd, cmd, run_id)
    assert result.exit_code == 127
    assert "command not found" in result.stderr


async def test_commands_that_cannot_be_run_are_refused(cwd: Path, run_id: str) -> None:
    before = open_descriptors()
    for folder, cmd, message in (
        (cwd, "", "command is empty"),
        (cwd, " \n", "command is empty"),
        (cwd, "a\0b", "command contains a null character"),
        (cwd, "\ud800", "command is not valid Unicode"),
        (cwd, "x" * 10_000_000, "command is too long"),
        (cwd / "gone", "true", "the run's cwd cannot be opened"),
    ):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await run_bash(folder, cmd, run_id)
        assert caught.value.message == message
    assert open_descriptors() == before
    longest = "#" + "x" * (shell._LONGEST_COMMAND - 1)
    assert (await run_bash(cwd, longest, run_id)).exit_code == 0


async def test_a_bash_of_the_runs_folder_is_not_taken_for_the_real_one(
    cwd: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "bash").write_text("#!/bin/sh\necho trapped\n")
    (cwd / "bash").chmod(0o755)
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    assert (await run_bash(cwd, "echo real", run_id)).stdout == "real\n"

    monkeypatch.setenv("PATH", ".")
    with pytest.raises(remote_ops.OperationRefused, match="bash is not installed"):
        await run_bash(cwd, "echo real", run_id)


async def test_of_a_flood_on_both_channels_the_ends_are_kept(cwd: Path, run_id: str) -> None:
    flood = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last"
    result = await run_bash(cwd, f"({flood}) & ({flood}) >&2; wait", run_id)

    assert result.truncated
    for kept in (result.stdout, result.stderr):
        assert kept.startswith("first\nxxx")
        assert kept.endswith("xxx\nlast\n")
        assert len(kept) < shell.KEEP_BYTES + 100


@pytest.mark.parametrize("channel", ["stdout", "stderr"])
async def test_a_flood_on_one_channel_alone_counts_as_truncated(cwd: Path, run_id: str, channel: str) -> None:
    to = ">&2" if channel == "stderr" else ""
    assert (await run_bash(cwd, f"head -c {shell.KEEP_BYTES + 1} /dev/zero {to}", run_id)).truncated
    assert not (await run_bash(cwd, f"head -c {shell.KEEP_BYTES} /dev/zero {to}", run_id)).truncated


async def test_output_that_is_no_text_can_be_told(cwd: Path, run_id: str) -> None:
    result = await run_bash(cwd, r"printf 'a\377'; printf '\200b' >&2", run_id)
    assert (result.stdout, result.stderr) == ("a\ufffd", "\ufffdb")


async def test_a_command_out_of_time_is_ended_with_all_of_its_tree(cwd: Path, run_id: str, reports: PidReports) -> None:
    stubborn = "trap '' TERM; echo $BASHPID > ../reports; while :; do sleep 0.1; done"
    cmd = f'echo so far; printf half >&2; (setsid bash -c "{stubborn.replace("$", chr(92) + "$")}" &) ; {stubborn}'

    result = await run_bash(cwd, cmd, run_id, timeout_s=2)

    assert (result.stdout, result.exit_code, result.truncated) == ("so far\n", 124, False)
    # Bash may still have the time to say that its `sleep` was killed.
    assert result.stderr.startswith("half")
    assert result.stderr.endswith("\n[killed after 2 s without an end]\n")
    pids = await reports.wait_for_pids(2)
    assert not any(is_alive(pid) for pid in pids)
    assert not orphans.has_marked_processes(run_id)


async def test_a_cancelled_command_leaves_nothing_behind(cwd: Path, run_id: str, reports: PidReports) -> None:
    before = open_descriptors()
    cmd = "trap '' TERM; (setsid sleep 1000 & echo $! > ../reports); echo $$ > ../reports; sleep 1000"
    work = asyncio.create_task(run_bash(cwd, cmd, run_id, timeout_s=600))
    pids = await reports.wait_for_pids(2)

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert not any(is_alive(pid) for pid in pids)
    assert not orphans.has_marked_processes(run_id)
    assert open_descriptors() == before


@pytest.mark.parametrize("redirected", [True, False])
async def test_what_is_left_in_the_background_is_not_waited_for_and_ends_with_the_run(
    cwd: Path, run_id: str, reports: PidReports, redirected: bool
) -> None:
    quiet = "</dev/null >/dev/null 2>&1" if redirected else ""
    result = await run_bash(cwd, f"setsid sleep 1000 {quiet} & echo $! > ../reports; echo done", run_id)

    assert (result.stdout, result.exit_code) == ("done\n", 0)
    (pid,) = await reports.wait_for_pids(1)
    assert is_alive(pid)
    await commands.end_run(run_id)
    assert not is_alive(pid)


def test_it_works_on_the_daemons_own_event_loop_too(cwd: Path, run_id: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(run_bash(cwd, "echo out; echo err >&2; exit 1", run_id))
    assert result == shell.BashResult("out\n", "err\n", 1, False)
