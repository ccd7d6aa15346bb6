"""What `test_membership.py` runs in processes of their own, because runs are known only to a subreaper, and nobody can stop being
one. `python -m tests.tools.running.membership_scenes SCENE FOLDER`
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from tests.tools.running.watching import Reports

from switchtower.tools.running import adoption, membership, processes

PATIENCE = 60


def new_id(prefix: str = "run_") -> str:
    return f"{prefix}{uuid4().hex}"


def _started(folder: str, run_id: str, *lines: str) -> "asyncio.Task[processes.Finished]":
    """A run that stays until it is ended."""
    running = processes.run_command("\n".join(lines), cwd=folder, run_id=run_id, timeout_s=PATIENCE)
    return asyncio.get_running_loop().create_task(running)


async def _end(*running: "asyncio.Task[processes.Finished]") -> None:
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def of_a_run(folder: str) -> None:
    """Each process belongs to its own run, whatever it did to its environment and its parents."""
    assert adoption.become_subreaper()
    reports = Reports(Path(folder, "reports"))
    one, two, shell = new_id(), new_id(), new_id(membership.SHELL_PREFIX)
    tell = f"exec sh -c 'echo $$ > {folder}/reports; exec sleep 1000'"
    first = _started(folder, one, tell)
    (pid_of_one,) = await reports.pids(1, within=PATIENCE)
    second = _started(folder, two, f"(setsid env -i {tell.removeprefix('exec ')} &)", "sleep 1000")
    pid_of_two = (await reports.pids(2, within=PATIENCE))[1]
    third = _started(folder, shell, tell)
    pid_of_shell = (await reports.pids(3, within=PATIENCE))[2]

    assert membership.run_of(pid_of_one) == one
    assert membership.run_of(pid_of_two) == two, "also without its variables, its parent and its session"
    assert membership.run_of(pid_of_shell) is None, "what a person started speaks for the person"
    assert membership.run_of(os.getpid()) is None
    own = subprocess.Popen(["sleep", "1000"])
    try:
        assert membership.run_of(own.pid) is None, "what the daemon starts for itself is no run's"
    finally:
        own.kill()
        own.wait()
    assert membership.run_of(own.pid) is None, "who is gone is nobody"
    assert not any(map(membership.run_of, (0, -1, 2**22 + 1)))

    await _end(first)
    assert membership.run_of(pid_of_one) is None
    assert membership.run_of(pid_of_two) == two, "the end of one run is not another's"
    await _end(second, third)
    for run_id in (one, two, shell):
        await processes.end_run(run_id, grace_s=0.1)
    assert adoption.runs_under_way() == frozenset()
    reports.close()


async def of_a_socket(folder: str) -> None:
    """A socket is a run's as long as one of its processes has it, also beside others."""
    assert adoption.become_subreaper()
    reports = Reports(Path(folder, "reports"))
    run_id = new_id()
    path = f"{folder}/socket"
    program = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
    program += "open(sys.argv[2], 'w').write(f'{os.fstat(s.fileno()).st_ino}\\n'); time.sleep(1000)"
    Path(folder, "program.py").write_text(program)
    with socket.socket() as own:
        inode_of_own = os.fstat(own.fileno()).st_ino
        assert membership.run_holding_socket(inode_of_own) is None
        running = _started(folder, run_id, f"exec {sys.executable} program.py {path} {folder}/reports")
        (inode,) = await reports.pids(1, within=PATIENCE)
        assert membership.run_holding_socket(inode) == run_id
        assert membership.run_holding_socket(inode_of_own) is None
        assert membership.run_holding_socket(0) is None
        await _end(running)
        await processes.end_run(run_id, grace_s=0.1)
        assert membership.run_holding_socket(inode) is None
    reports.close()


if __name__ == "__main__":
    asyncio.run({"of_a_run": of_a_run, "of_a_socket": of_a_socket}[sys.argv[1]](sys.argv[2]))
