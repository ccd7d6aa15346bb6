"""The process that ends what runs have started when the daemon is killed: what it may touch, and how it ends itself."""

import ast
import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.running.watching import find_processes_with, is_alive

from switchtower.tools.processes import marks, orphans, proc, watchdog_process

TIMEOUT = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the daemon is a subreaper only on Linux")

HOST = """
import signal, sys
from switchtower.tools.processes import orphans as watchdog
signal.signal(signal.SIGINT, signal.SIG_IGN)
watch = watchdog.Watchdog()
watch.watch(sys.argv[1], "")
print("ready", flush=True)
sys.stdin.readline()
watch.forget(sys.argv[1])
"""
"""A process in the daemon's place. It ends when it gets a line."""


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    for pid in proc.list_pids():
        if f"TOWER_RUN={run_id}".encode() in (proc.read_environment(pid) or ()):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def watchdog_client() -> Iterator[orphans.Watchdog]:
    watching = orphans.Watchdog()
    yield watching
    watching.close()


@pytest.fixture
def host(run_id: str) -> Iterator["subprocess.Popen[bytes]"]:
    host = subprocess.Popen(
        [sys.executable, "-P", "-c", HOST, run_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert host.stdout is not None
    assert host.stdout.readline() == b"ready\n"
    yield host
    host.kill()
    host.communicate()


def find_watchdog(parent: int) -> int:
    """A process has no words for a moment when it becomes another program."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if found := [pid for pid in find_processes_with("watchdog_process.py") if proc.find_parent(pid) == parent]:
            (pid,) = found
            return pid
        time.sleep(0.01)
    raise TimeoutError


def start_sleep(run_id: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "1000"], env={**os.environ, "TOWER_RUN": run_id})


def wait_for_end(pid: int) -> None:
    pidfd = proc.open_pidfd(pid)
    if pidfd is not None:
        try:
            assert select.select([pidfd], [], [], TIMEOUT)[0], "it has ended"
        finally:
            os.close(pidfd)


async def test_it_has_nothing_of_the_daemon(run_id: str, watchdog_client: orphans.Watchdog, tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as journal:
        os.set_inheritable(journal.fileno(), True)
        watchdog_client.watch(run_id, "")
    pid = find_watchdog(os.getpid())
    folder = Path(f"/proc/{pid}")
    async with asyncio.timeout(TIMEOUT):
        while len(files := proc.list_open_files(pid) or ()) != 2:  # a file of Python's is open while it starts
            await asyncio.sleep(0.01)
    assert {file.partition(":")[0] for file in files} == {"socket", "/dev/null"}
    assert len(list((folder / "fd").iterdir())) == 3
    assert (folder / "environ").read_bytes() == b""
    assert str((folder / "cwd").readlink()) == "/"
    assert (proc.find_session(pid), proc.find_group(pid)) == (pid, pid)


def test_no_other_process_can_write_to_it_or_hold_it_open(run_id: str, watchdog_client: orphans.Watchdog) -> None:
    watchdog_client.watch(run_id, "")
    with pytest.raises(OSError, match="No such device or address"):
        os.open(f"/proc/{find_watchdog(os.getpid())}/fd/0", os.O_WRONLY)


def test_it_imports_few_modules() -> None:
    tree = ast.parse(Path(watchdog_process.__file__).read_text())
    imports = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imports == ["os", "signal", "sys", "time"]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_its_variable_is_that_of_the_marks(run_id: str) -> None:
    (variable,) = marks.ProcessMark(run_id).make_signature().in_environment
    assert variable == f"TOWER_RUN={run_id}".encode()


async def test_it_survives_an_interrupted_terminal_and_handles_signals_as_usual(host: "subprocess.Popen[bytes]") -> None:
    pid = find_watchdog(host.pid)
    async with asyncio.timeout(TIMEOUT):
        while proc.is_signal_ignored(pid, signal.SIGINT):  # which the process in the daemon's place does, until it has started
            await asyncio.sleep(0.01)
    os.killpg(host.pid, signal.SIGINT)
    assert is_alive(pid)
    assert host.poll() is None
    assert not any(
        proc.is_signal_ignored(pid, number) or proc.is_signal_caught(pid, number) for number in (signal.SIGHUP, signal.SIGTERM)
    )


def test_it_has_ended_when_the_daemon_has_stopped_normally(host: "subprocess.Popen[bytes]") -> None:
    pid = find_watchdog(host.pid)
    host.communicate(b"\n")
    assert not Path(f"/proc/{pid}").exists()


def test_a_killed_daemon_takes_its_runs_and_its_watchdog_with_it(host: "subprocess.Popen[bytes]", run_id: str) -> None:
    pid = find_watchdog(host.pid)
    other = start_sleep(f"{run_id}-other")
    sleep = start_sleep(run_id)
    host.kill()
    assert sleep.wait(TIMEOUT) == -signal.SIGKILL
    wait_for_end(pid)
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_killed_watchdog_is_replaced_by_one_that_knows_all_runs(run_id: str, watchdog_client: orphans.Watchdog) -> None:
    second = f"{run_id}-second"
    watchdog_client.watch(run_id, "")
    pid = find_watchdog(os.getpid())
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    watchdog_client.watch(second, "")
    assert find_watchdog(os.getpid()) != pid
    sleeps = [start_sleep(run_id), start_sleep(second)]
    watchdog_client.close()
    assert [sleep.wait(TIMEOUT) for sleep in sleeps] == [-signal.SIGKILL] * 2


def test_a_watchdog_that_is_stopped_is_replaced_and_kills_nothing(run_id: str, watchdog_client: orphans.Watchdog) -> None:
    watchdog_client.watch(run_id, "")
    pid = find_watchdog(os.getpid())
    os.kill(pid, signal.SIGSTOP)
    sleep = start_sleep(run_id)
    deadline = time.monotonic() + TIMEOUT
    while find_watchdog(os.getpid()) == pid:
        assert time.monotonic() < deadline
        for number in range(100):
            watchdog_client.watch(f"{run_id}-{number}", "")
    assert not Path(f"/proc/{pid}").exists()
    assert sleep.poll() is None
    watchdog_client.close()
    assert sleep.wait(TIMEOUT) == -signal.SIGKILL
