"""A daemon's home: one daemon a home, private files, and a trace of where it listens only while it does."""

import asyncio
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.tower_process import DaemonDidNotStart, DaemonProcess
from tests.daemon.conftest import Connect, StartDaemon, read_endpoints


def _get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_second_daemon_on_the_same_home_is_refused_and_harms_nothing(
    start_daemon_process: StartDaemon, connect: Connect, home: Path, run_tower: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    first = await start_daemon_process()
    told = read_endpoints(home)
    with pytest.raises(DaemonDidNotStart) as refused:
        await start_daemon_process()
    message, exit_code = refused.value.args
    assert exit_code != 0
    assert f"already running for {home / 'run'} (pid {first.pid})" in message
    assert "hint: `tower stop`" in message

    commanded = run_tower("serve", "--http", "off", "--socket", str(home / "other.sock"))
    assert commanded.returncode != 0
    assert "already running" in commanded.stderr
    assert "Traceback" not in commanded.stderr
    assert not (home / "other.sock").exists()

    assert read_endpoints(home) == told
    assert (await (await connect(first)).ask("ping", {}))["pong"]


async def test_of_daemons_that_start_at_once_exactly_one_gets_the_home(
    start_daemon_process: StartDaemon, connect: Connect, home: Path
) -> None:
    outcomes = await asyncio.gather(*(start_daemon_process() for _ in range(4)), return_exceptions=True)
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, DaemonProcess)]
    refusals = [outcome for outcome in outcomes if isinstance(outcome, DaemonDidNotStart)]
    assert len(refusals) == 3
    assert all("already running" in refusal.args[0] for refusal in refusals)
    assert read_endpoints(home)["pid"] == winner.pid
    assert (await (await connect(winner)).ask("ping", {}))["pong"]


async def test_the_endpoints_are_told_while_it_runs_and_to_the_owner_alone(start_daemon_process: StartDaemon, home: Path) -> None:
    daemon = await start_daemon_process(http="127.0.0.1:0")
    endpoints = read_endpoints(home)
    assert {"pid", "socket", "http", "pi", "token"} <= endpoints.keys()
    assert endpoints["pid"] == daemon.pid
    assert endpoints["socket"] == str(home / "run" / "pushd.sock")
    assert endpoints["http"].startswith("http://127.0.0.1:")
    assert len(endpoints["token"]) >= 32
    assert _get_mode(home / "run" / "endpoints.json") == 0o600
    assert (home / "run" / "pushd.pid").read_text() == str(daemon.pid)

    assert await daemon.stop() == 0
    assert sorted(path.name for path in (home / "run").iterdir()) == ["tower.lock"]


async def test_everything_that_it_keeps_is_for_the_owner_alone(
    start_daemon_process: StartDaemon, connect: Connect, home: Path, workspace: Path
) -> None:
    daemon = await start_daemon_process()
    await (await connect(daemon)).start_session(workspace)
    assert _get_mode(home / "run" / "pushd.sock") == 0o600
    for folder in ("run", "data", "logs"):
        assert _get_mode(home / folder) == 0o700
        for file in (home / folder).iterdir():
            assert _get_mode(file) == 0o600, file


async def test_the_owner_s_token_outlives_the_daemon(start_daemon_process: StartDaemon, home: Path) -> None:
    daemon = await start_daemon_process()
    token = read_endpoints(home)["token"]
    await daemon.stop()
    await start_daemon_process()
    assert read_endpoints(home)["token"] == token


async def test_the_socket_can_be_elsewhere(start_daemon_process: StartDaemon, connect: Connect, home: Path) -> None:
    elsewhere = home / "a" / "b" / "tower.sock"
    daemon = await start_daemon_process(socket=elsewhere)
    assert read_endpoints(home)["socket"] == str(elsewhere)
    assert _get_mode(elsewhere) == 0o600
    assert _get_mode(elsewhere.parent) == 0o700
    assert not (home / "run" / "pushd.sock").exists()
    assert (await (await connect(daemon)).ask("ping", {}))["pong"]
    await daemon.stop()
    assert not elsewhere.exists()


async def test_a_socket_that_another_process_listens_on_is_not_taken(start_daemon_process: StartDaemon, home: Path) -> None:
    taken = home / "taken.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(taken))
        other.listen()
        with pytest.raises(DaemonDidNotStart) as refused:
            await start_daemon_process(socket=taken)
        assert "already listens" in refused.value.args[0]
        assert "hint:" in refused.value.args[0]
        assert taken.exists()
    assert not (home / "run" / "endpoints.json").exists()


async def test_a_journal_that_is_no_journal_is_reported_and_left_alone(start_daemon_process: StartDaemon, home: Path) -> None:
    (home / "data").mkdir(mode=0o700)
    journal = home / "data" / "journal.db"
    journal.write_bytes(b"my diary " * 1_000)
    with pytest.raises(DaemonDidNotStart) as refused:
        await start_daemon_process()
    message, exit_code = refused.value.args
    assert exit_code != 0
    assert "not a database" in message
    assert "Traceback" not in message
    assert journal.read_bytes() == b"my diary " * 1_000
