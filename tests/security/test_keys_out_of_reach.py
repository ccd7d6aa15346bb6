"""The daemon's keys are where only the daemon reads them: an agent's command has the same user, and finds them nowhere."""

import json
import os
import resource
import shlex
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.crash.tower_process import DaemonProcess
from tests.daemon.conftest import StartDaemon
from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.conftest import workspace as workspace
from tests.security import ordinary_user

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer
from switchtower.testing.push_client import PushClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

KEY = "sk-test-0123456789abcdefghijklmnop"
TIMEOUT = 60.0

SEARCH = textwrap.dedent(
    """
    import json, os, pathlib, sys

    daemon, key = sys.argv[1], sys.argv[2].encode()

    def outcome(read):
        try:
            return "found" if key in read() else "not there"
        except OSError as problem:
            return type(problem).__name__

    def memory():
        found = b""
        maps = pathlib.Path(f"/proc/{daemon}/maps").read_text().splitlines()
        with open(f"/proc/{daemon}/mem", "rb", buffering=0) as file:
            for line in maps:
                if "[heap]" in line:
                    start, end = (int(place, 16) for place in line.split()[0].split("-"))
                    file.seek(start)
                    found += file.read(end - start)
        return found

    told = {
        "environ": outcome(pathlib.Path(f"/proc/{daemon}/environ").read_bytes),
        "memory": outcome(memory),
        "files": outcome(lambda: str(os.listdir(f"/proc/{daemon}/fd")).encode()),
        "own environ": outcome(pathlib.Path("/proc/self/environ").read_bytes),
    }
    pathlib.Path("told.json").write_text(json.dumps(told))
    """
)


@pytest.fixture
async def client(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PushClient, DaemonProcess]]:
    monkeypatch.setenv("HOME", str(home))
    for name, value in {"OPENAI_API_KEY": KEY, "JWT_SECRET": KEY * 2, "HOST_TOKEN": KEY, "MY_OWN_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    (workspace / "search.py").write_text(SEARCH)
    daemon = await start_daemon_process(http="127.0.0.1:0")
    async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as push:
        await push.send_hello()
        yield push, daemon


async def test_a_command_finds_the_daemons_keys_nowhere(client: tuple[PushClient, DaemonProcess], workspace: Path) -> None:
    push, daemon = client
    started = await push.start_session(workspace, policy="yolo")
    await push.run(started.session_id, f"run: {shlex.quote(sys.executable)} search.py {daemon.pid} {KEY}")
    told = json.loads((workspace / "told.json").read_text())
    assert told.pop("own environ") == "not there"
    if os.geteuid() != 0:  # root reads everything; below, an ordinary user tries
        assert told == {"environ": "PermissionError", "memory": "PermissionError", "files": "PermissionError"}


async def test_the_daemon_leaves_no_core_dump_and_its_programs_may(
    client: tuple[PushClient, DaemonProcess], workspace: Path
) -> None:
    push, daemon = client
    limits = Path(f"/proc/{daemon.pid}/limits").read_text()
    soft, hard = limits.partition("Max core file size")[2].split()[:2]
    allowed = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert (soft, hard) == ("0", "unlimited" if allowed == resource.RLIM_INFINITY else str(allowed))
    started = await push.start_session(workspace, policy="yolo")
    await push.run(started.session_id, "run: ulimit -c $(ulimit -Hc) && ulimit -c > core")
    assert (workspace / "core").read_text().strip() in (hard, str(allowed // 512), str(allowed // 1_024))


async def test_what_the_daemon_starts_for_itself_inherits_no_key(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git, for one, is started by the daemon and not by a command; a command could read its environment."""
    real, seen = shutil.which("git"), home / "seen-by-git"
    if real is None:
        pytest.skip("git is not installed")
    (home / "bin").mkdir()
    (home / "bin" / "git").write_text(f'#!/bin/sh\nenv >> {seen}\nexec {real} "$@"\n')
    (home / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    for name in ("OPENAI_API_KEY", "JWT_SECRET", "HOST_TOKEN"):
        monkeypatch.setenv(name, KEY)
    daemon = await start_daemon_process()
    async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as push:
        await push.send_hello()
        started = await push.start_session(workspace, policy="yolo")
        await push.run(started.session_id, "run: touch changed")
    assert "PATH=" in seen.read_text()
    assert KEY not in seen.read_text()


async def test_a_program_in_a_terminal_has_the_users_keys_and_not_the_daemons(
    client: tuple[PushClient, DaemonProcess], workspace: Path
) -> None:
    push, _ = client
    started = await push.start_session(workspace, provider="terminal", engine="pty", command=["sh", "-c", "env > seen"])
    await push.read_until("run_complete")
    assert started.session_id
    lines = (workspace / "seen").read_text().splitlines()
    assert f"OPENAI_API_KEY={KEY}" in lines
    assert f"MY_OWN_KEY={KEY}" in lines
    assert not [line for line in lines if line.startswith(("JWT_SECRET=", "HOST_TOKEN="))]


async def test_what_pass_env_names_reaches_commands(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    daemon = await start_daemon_process(pass_env="OPENAI_API_KEY")
    async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as push:
        await push.send_hello()
        started = await push.start_session(workspace, policy="yolo")
        await push.run(started.session_id, "run: env > seen")
    assert f"OPENAI_API_KEY={KEY}" in (workspace / "seen").read_text().splitlines()


async def test_an_mcp_server_is_given_the_key_that_its_entry_names(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    seen = workspace / "seen"
    entry = {"command": "sh", "args": ["-c", f"env > {seen}.part; mv {seen}.part {seen}"], "env": {"GIVEN": "${OPENAI_API_KEY}"}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"looker": entry}}))
    daemon = await start_daemon_process()
    async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as push:
        await push.send_hello()
        started = await push.start_session(workspace, policy="yolo")
        await push.run(started.session_id, "read README.md")
    lines = seen.read_text().splitlines()
    assert f"GIVEN={KEY}" in lines
    assert f"OPENAI_API_KEY={KEY}" not in lines


async def test_the_models_provider_still_gets_the_key(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", KEY)
    async with ModelServer([script.reply_call("run", command="env > seen"), script.reply_text("done")]) as server:
        (home / "config.toml").write_text(
            f'provider = "openai"\n[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\n'
            'key_env = "FAKE_KEY"\ncontext_window = 100000\n'
        )
        daemon = await start_daemon_process()
        async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as push:
            await push.send_hello()
            started = await push.start_session(workspace, provider="openai", policy="yolo")
            await push.run(started.session_id, "go")
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in (workspace / "seen").read_text()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_a_sandboxed_command_still_runs(client: tuple[PushClient, DaemonProcess], workspace: Path) -> None:
    push, daemon = client
    started = await push.start_session(workspace, policy="yolo", sandboxProvider="bubblewrap")
    await push.run(started.session_id, f"run: {shlex.quote(str(Path(sys.executable).resolve()))} search.py {daemon.pid} {KEY}")
    told = json.loads((workspace / "told.json").read_text())
    assert "found" not in told.values()


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    ordinary_user.run_tests(str(Path(__file__)))
