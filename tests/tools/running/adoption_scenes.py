"""What `test_adoption.py` runs in processes of their own, because nobody can stop being a subreaper. Each scene is a function
that becomes one and then raises when something is wrong. `python -m tests.tools.running.adoption_scenes SCENE ARGUMENT…`
"""

import asyncio
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

from tests.tools.running.watching import PidReports, find_processes_with, is_alive

from switchtower.tools.processes import commands, marks, orphans, proc

HOSTILE = Path(__file__).with_name("hostile.py")
TIMEOUT = 60


def run_id() -> str:
    return f"run_{uuid4().hex}"


async def wait_until_childless() -> None:
    """But the watchdog, which ends with this process."""
    async with asyncio.timeout(TIMEOUT):
        while any(not is_watchdog(child) for child in proc.list_children(os.getpid())):
            await asyncio.sleep(0.01)


def is_watchdog(pid: int) -> bool:
    return pid in find_processes_with("watchdog_process.py")


async def outcasts(folder: str, token: str) -> None:
    """Trees that drop every mark there is. The runs end in three ways; one run goes on and keeps its own."""
    assert orphans.become_subreaper()
    reports = PidReports(Path(folder, "reports"))
    hostile = [sys.executable, "-IS", str(HOSTILE), token, f"{folder}/reports"]
    ways = ("doubly-forked low", "low doubly-forked deaf silent", "forked session low", "doubly-forked low forked phoenix")
    lines = "\n".join(shlex.join(["env", "-i", *hostile, *way.split()]) + " &" for way in ways)
    options = {"cwd": folder, "grace_s": 0.1}
    other = run_id()
    beside = await commands.run_command("setsid sleep 1000 & echo $!", run_id=other, timeout_s=TIMEOUT, **options)  # type: ignore[arg-type]

    mine = run_id()
    await commands.run_command(lines, run_id=mine, timeout_s=TIMEOUT, **options)  # type: ignore[arg-type]
    await reports.wait_for_pids(len(ways), within=TIMEOUT)
    assert len(find_processes_with(token)) >= len(ways)
    await commands.end_run(mine, grace_s=0.1)
    assert find_processes_with(token) == {}

    running = asyncio.create_task(
        commands.run_command(f"{lines}\nsleep 1000", run_id=mine, timeout_s=TIMEOUT, **options)  # type: ignore[arg-type]
    )
    await reports.wait_for_pids(2 * len(ways), within=TIMEOUT)
    running.cancel()
    await asyncio.wait([running])
    assert find_processes_with(token) == {}

    timed_out = await commands.run_command(f"{lines}\nsleep 1000", run_id=mine, timeout_s=1, **options)  # type: ignore[arg-type]
    assert timed_out.timed_out
    await commands.end_run(mine, grace_s=0.1)
    assert find_processes_with(token) == {}

    assert is_alive(int(beside.output)), "another run's process carries its mark and is none of them"
    await commands.end_run(other, grace_s=0.1)
    await wait_until_childless()


async def own_children(folder: str) -> None:
    """What the daemon starts for itself is neither killed nor reaped by anybody else."""
    before = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    assert orphans.become_subreaper()
    with_session = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
    plain = subprocess.Popen(["sleep", "1000"])
    ended = [
        (subprocess.Popen(["sh", "-c", f"exit {code}"], start_new_session=own_session), code)
        for code, own_session in enumerate([True, False] * 4)
    ]
    for process, _ in ended:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    asynchronous = await asyncio.create_subprocess_exec("sh", "-c", "exit 9", start_new_session=True)

    run = run_id()
    await commands.run_command("(setsid true &)", cwd=folder, run_id=run, timeout_s=TIMEOUT)
    await commands.end_run(run)
    orphans.reap_adopted()

    assert [process.wait() for process, _ in ended] == [code for _, code in ended]
    assert await asynchronous.wait() == 9
    for process in (before, with_session, plain):
        assert process.poll() is None
        process.kill()
        process.wait()
    await wait_until_childless()


async def exit_codes(folder: str) -> None:
    """Commands keep their exit codes while somebody collects the dead all the time."""
    assert orphans.become_subreaper()
    run = run_id()
    over = threading.Event()

    def collect() -> None:
        while not over.is_set():
            orphans.reap_adopted()

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        finished = await asyncio.gather(
            *(
                commands.run_command(f"(setsid true &); exit {code}", cwd=folder, run_id=run, timeout_s=TIMEOUT)
                for code in range(30)
            )
        )
    finally:
        over.set()
        collector.join()
    assert [end.exit_code for end in finished] == list(range(30))
    await commands.end_run(run)
    await wait_until_childless()


async def the_dead(folder: str) -> None:
    """Orphans that end while their run goes on do not pile up."""
    assert orphans.become_subreaper()
    run = run_id()
    # Each leaves its parent before it ends, in a session that is not its own.
    command = "for i in $(seq 50); do (setsid sh -c 'true & sleep 0' >/dev/null 2>&1 &); done; echo $$ > reports; sleep 1000"
    reports = PidReports(Path(folder, "reports"))
    running = asyncio.create_task(commands.run_command(command, cwd=folder, run_id=run, timeout_s=TIMEOUT, grace_s=0.1))
    await reports.wait_for_pids(1, within=TIMEOUT)
    async with asyncio.timeout(TIMEOUT):
        while len(proc.list_children(os.getpid())) > 2:  # the command, and the watchdog
            await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    await commands.end_run(run)
    await wait_until_childless()


async def nested(folder: str) -> None:
    """A daemon in another daemon's run uses the next limit, and its processes are both daemons'."""
    outer = os.environ[marks.RUN_VARIABLE]
    assert orphans.become_subreaper()
    limit = marks.find_free_limit()
    assert limit is not None
    assert limit.name != b"Max file locks"
    inner = run_id()
    await commands.run_command("env -i setsid sleep 1000 >/dev/null 2>&1 &", cwd=folder, run_id=inner, timeout_s=TIMEOUT)
    held = orphans.hold_marked(inner)
    assert len(held) == 1
    assert held.keys() <= orphans.hold_marked(outer).keys()
    await commands.end_run(inner, grace_s=0.1)
    assert not orphans.has_marked_processes(inner)
    await wait_until_childless()


SCENES = {scene.__name__: scene for scene in (outcasts, own_children, exit_codes, the_dead, nested)}

if __name__ == "__main__":
    asyncio.run(SCENES[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]
