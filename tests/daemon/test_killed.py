"""A daemon that is killed: what it leaves ends without another daemon, and the next one answers as who it says it is."""

import asyncio
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.tower_process import TIMEOUT
from tests.daemon.conftest import StartDaemon, read_endpoints

from switchtower.testing.push_client import PushClient

LEAVES = (
    "(setsid sleep 300 & echo $! > setsid.pid); (env -i setsid sleep 300 & echo $! > bare.pid); "
    "sleep 300 & echo $! > background.pid; touch ready; sleep 300 | cat"
)


async def wait_until_exists(path: Path) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not path.exists():
            await asyncio.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfds")
async def test_what_a_run_has_started_ends_with_a_killed_daemon(start_daemon_process: StartDaemon, workspace: Path) -> None:
    daemon = await start_daemon_process()
    async with await PushClient.connect_socket(daemon.socket) as client:
        session_id = (await client.start_session(workspace)).session_id
        await client.send(session_id, f"run: {LEAVES}")
        await client.decide((await client.read_until("approval_required"))[-1])
    await wait_until_exists(workspace / "ready")
    left = [os.pidfd_open(int((workspace / name).read_text())) for name in ("setsid.pid", "bare.pid", "background.pid")]
    try:
        daemon.process.kill()
        daemon.process.wait()
        waiting = set(left)
        async with asyncio.timeout(TIMEOUT):
            while waiting:
                waiting -= set((await asyncio.to_thread(select.select, list(waiting), [], [], 1.0))[0])
    finally:
        for pidfd in left:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


async def test_a_daemon_that_follows_a_killed_one_answers_only_when_its_endpoints_are_told(
    start_daemon_process: StartDaemon, home: Path
) -> None:
    first = await start_daemon_process(http="127.0.0.1:0")
    before = read_endpoints(home)
    first.process.kill()
    first.process.wait()
    assert read_endpoints(home) == before, "nobody has taken it away"

    async def answered() -> dict[str, object]:
        """What the file has at the moment of the first answer."""
        while True:
            try:
                async with await PushClient.connect_socket(home / "run" / "pushd.sock") as client:
                    await client.ping()
                    return dict(read_endpoints(home))
            except (OSError, EOFError):
                await asyncio.sleep(0)

    asking = asyncio.create_task(answered())
    second = await start_daemon_process(http="127.0.0.1:0")
    async with asyncio.timeout(TIMEOUT):
        told = await asking
    assert told["pid"] == second.pid
    assert told == read_endpoints(home)
