"""What `test_membership.py` runs in processes of their own, because runs are known only to a subreaper, and nobody can stop being
one. `python -m tests.tools.running.membership_scenes SCENE FOLDER`
"""

import asyncio
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from tests.tools.running.watching import PidReports

from switchtower.core.roles import ProcessUnattributed
from switchtower.tools.processes import commands, marks, membership, proc
from switchtower.tools.processes import orphans as processes_orphans

TIMEOUT = 60
CAP_SYS_RESOURCE = 1 << 24
"""Whoever has it may raise limits."""


def make_id(prefix: str = "run_") -> str:
    return f"{prefix}{uuid4().hex}"


def _start_run(folder: str, run_id: str, *lines: str) -> "asyncio.Task[commands.FinishedCommand]":
    """A run that stays until it is ended."""
    running = commands.run_command("\n".join(lines), cwd=folder, run_id=run_id, timeout_s=TIMEOUT)
    return asyncio.get_running_loop().create_task(running)


async def _end(*running: "asyncio.Task[commands.FinishedCommand]") -> None:
    for task in running:
        task.cancel()
    await asyncio.wait(running)


REFUSED = "refused"


def find_run(pid: int, started_at: int | None = None) -> str | None:
    try:
        return membership.find_run(pid, started_at)
    except ProcessUnattributed:
        return REFUSED


def find_run_for_socket(inode: int, uid: int | None = None) -> str | None:
    try:
        return membership.find_run_of_socket(inode, os.geteuid() if uid is None else uid)
    except ProcessUnattributed:
        return REFUSED


async def of_a_run(folder: str) -> None:
    """Each process belongs to its own run, whatever it did to its environment and its parents."""
    assert processes_orphans.become_subreaper()
    reports = PidReports(Path(folder, "reports"))
    one, two, shell = make_id(), make_id(), make_id(membership.SHELL_PREFIX)
    tell = f"exec sh -c 'echo $$ > {folder}/reports; exec sleep 1000'"
    first = _start_run(folder, one, tell)
    (pid_of_one,) = await reports.wait_for_pids(1, within=TIMEOUT)
    second = _start_run(folder, two, f"(setsid env -i {tell.removeprefix('exec ')} &)", "sleep 1000")
    pid_of_two = (await reports.wait_for_pids(2, within=TIMEOUT))[1]
    third = _start_run(folder, shell, tell)
    pid_of_shell = (await reports.wait_for_pids(3, within=TIMEOUT))[2]

    assert find_run(pid_of_one) == one
    assert find_run(pid_of_two) in (two, REFUSED), "also without its variables, its parent and its session"
    assert find_run(pid_of_shell) is None, "what a person started speaks for the person"
    assert find_run(os.getpid()) is None
    assert find_run(os.getppid()) is None, "what started the daemon is the owner's"
    assert find_run(pid_of_one, started_at=1) == REFUSED, "a process that has the pid of another"
    own = subprocess.Popen(["sleep", "1000"])
    try:
        assert find_run(own.pid) == REFUSED, "what the daemon starts for itself has nothing to ask of it"
    finally:
        own.kill()
        own.wait()
    assert find_run(own.pid) == REFUSED, "a process that has ended is nobody's"
    assert [find_run(pid) for pid in (-1, 2**22 + 1)] == [REFUSED, REFUSED]
    assert find_run(0) is None, "a process of another PID namespace, which no run of ours has started"

    await _end(first)
    assert find_run(pid_of_one) == REFUSED
    assert find_run(pid_of_two) in (two, REFUSED), "the end of one run is not another's"
    await _end(second, third)
    for run_id in (one, two, shell):
        await commands.end_run(run_id, grace_s=0.1)
    assert processes_orphans.active_runs() == frozenset()
    reports.close()


async def of_a_changed_mark(folder: str) -> None:
    """Below its command a process is of the run whatever its number; an orphan with another number is refused, also with that
    of a person's own command."""
    assert processes_orphans.become_subreaper()
    reports = PidReports(Path(folder, "reports"))
    run_id, shell = make_id(), make_id(membership.SHELL_PREFIX)
    while marks.ProcessMark(shell, 99_999).make_number() > marks.ProcessMark(run_id, 0).make_number():
        shell = make_id(membership.SHELL_PREFIX)  # a number can only be lowered
    limit = marks.find_free_limit()
    assert limit is not None
    lowered = f"env -i prlimit {limit.option}={{}} sh -c 'echo $$ > {folder}/reports; exec sleep 1000'"
    numbers: list[object] = [1, 0, marks.ProcessMark(shell, 7).make_number(), marks.ProcessMark(run_id, 0).make_number() - 1]
    capabilities = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    if int(capabilities, 16) & CAP_SYS_RESOURCE:
        numbers += ["unlimited", marks.UNCLAIMED]
    persons = _start_run(folder, shell, f"echo $$ > {folder}/reports; sleep 1000")
    (pid_of_shell,) = await reports.wait_for_pids(1, within=TIMEOUT)
    attached = [f"{lowered.format(number)} &" for number in numbers]
    orphaned = [f"(setsid {lowered.format(number)} &)" for number in numbers]
    running = _start_run(folder, run_id, *attached, "sleep 1000")
    below = (await reports.wait_for_pids(1 + len(numbers), within=TIMEOUT))[1:]
    assert [find_run(pid) for pid in below] == [run_id] * len(numbers)
    others = _start_run(folder, run_id, *orphaned, "sleep 1000")
    orphans = (await reports.wait_for_pids(1 + 2 * len(numbers), within=TIMEOUT))[1 + len(numbers) :]
    while any(proc.find_parent(pid) != os.getpid() for pid in orphans):
        await asyncio.sleep(0)  # their parents are still ending
    assert [find_run(pid) for pid in orphans] == [REFUSED] * len(numbers)
    assert find_run(pid_of_shell) is None
    await _end(running, others, persons)
    for ended in (run_id, shell):
        await commands.end_run(ended, grace_s=0.1)
    reports.close()


async def of_an_orphan(folder: str) -> None:
    assert processes_orphans.become_subreaper()
    reports = PidReports(Path(folder, "reports"))
    run_id = make_id()
    running = _start_run(folder, run_id, f"(setsid env -i sh -c 'echo $$ > {folder}/reports; exec sleep 1000' &)", "sleep 1000")
    (orphan,) = await reports.wait_for_pids(1, within=TIMEOUT)
    assert find_run(orphan) == run_id
    await _end(running)
    await commands.end_run(run_id, grace_s=0.1)
    reports.close()


async def of_a_socket(folder: str) -> None:
    """A socket is a run's as long as one of its processes has it, also beside others."""
    assert processes_orphans.become_subreaper()
    reports = PidReports(Path(folder, "reports"))
    run_id = make_id()
    path = f"{folder}/socket"
    program = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
    program += "open(sys.argv[2], 'w').write(f'{os.fstat(s.fileno()).st_ino}\\n'); time.sleep(1000)"
    Path(folder, "program.py").write_text(program)
    with socket.socket() as own:
        inode_of_own = os.fstat(own.fileno()).st_ino
        assert find_run_for_socket(inode_of_own) is None
        running = _start_run(folder, run_id, f"exec {shlex.join([sys.executable, 'program.py', path, f'{folder}/reports'])}")
        (inode,) = await reports.wait_for_pids(1, within=TIMEOUT)
        assert find_run_for_socket(inode) == run_id
        assert find_run_for_socket(inode_of_own) is None
        assert find_run_for_socket(0) == REFUSED, "a socket that no process has"
        await _end(running)
        await commands.end_run(run_id, grace_s=0.1)
        assert find_run_for_socket(inode) == REFUSED, "its process may have sent something before it ended"
    reports.close()


if __name__ == "__main__":
    scenes = (of_a_run, of_a_changed_mark, of_an_orphan, of_a_socket)
    asyncio.run({scene.__name__: scene for scene in scenes}[sys.argv[1]](sys.argv[2]))
