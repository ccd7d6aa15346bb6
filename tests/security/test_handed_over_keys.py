"""Provider keys that the owner's shell hands over: who can hand them over, and that they are found nowhere afterwards."""

import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.tower_process import DaemonProcess
from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.conftest import workspace as workspace

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer
from switchtower.testing.push_client import PushClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

KEY = "sk-test-handed-over-0123456789abcdef"
NOBODY = 65_534
TIMEOUT = 60.0
Start = Callable[..., Awaitable[DaemonProcess]]

INSIDE = textwrap.dedent(
    """
    import json, os, pathlib, socket, sys

    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(sys.argv[1])
        frame = {"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": "set_provider_variables"}
        frame["payload"] = {"variables": {"OPENAI_API_KEY": "sk-of-the-run-0123456789", "OPENAI_BASE_URL": "http://evil.test"}}
        client.sendall(json.dumps(frame).encode() + b"\\n")
        answer = json.loads(client.makefile().readline())
    told = {
        "answer": answer["error"]["code"],
        "environ": sorted(name for name in os.environ if name.endswith("_API_KEY")),
        "in environ": sys.argv[2] in str(dict(os.environ)),
    }
    pathlib.Path("told.json").write_text(json.dumps(told))
    """
)


async def open_client(daemon: DaemonProcess) -> PushClient:
    client = await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT)
    await client.send_hello()
    return client


async def send_keys(client: PushClient, variables: Any) -> str | None:
    return (await client.request("set_provider_variables", {"variables": variables})).code


async def list_sources(client: PushClient) -> dict[str, str | None]:
    return {
        model["name"]: model["keySource"]
        for model in (await client.request_payload("list_models", {}))["models"]
        if model["usable"]
    }


async def test_the_owner_hands_a_key_over_and_it_is_found_nowhere(
    start_daemon_process: Start, home: Path, workspace: Path
) -> None:
    daemon = await start_daemon_process(policy="yolo")
    (workspace / "inside.py").write_text(INSIDE)
    async with await open_client(daemon) as client:
        assert await send_keys(client, {"OPENAI_API_KEY": KEY}) is None
        assert await list_sources(client) == {"openai": "`OPENAI_API_KEY` of your shell", "demo": None}
        session = (await client.start_session(workspace)).session_id
        command = shlex.join([sys.executable, "inside.py", str(daemon.socket), KEY[:-1] + "X"])
        # The model repeats the key, as one would that found it somewhere; the command looks for it in its environment.
        events = await client.run(session, f"say: the key is {KEY}\nrun: {command}\nrun: env | grep -c {KEY[8:]}")
        told = json.loads((workspace / "told.json").read_text())
        assert told == {"answer": "ATTACH_FORBIDDEN", "environ": [], "in environ": False}
        assert await list_sources(client) == {"openai": "`OPENAI_API_KEY` of your shell", "demo": None}, "a run changes nothing"
        assert KEY not in json.dumps([msgspec.to_builtins(event.payload) for event in events])
    daemon.kill()
    daemon.end()
    for file in home.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), f"the key is in {file}"


async def test_a_websocket_client_cannot_hand_keys_over(start_daemon_process: Start, home: Path) -> None:
    daemon = await start_daemon_process(http="127.0.0.1:0")
    endpoints = json.loads((home / "run" / "endpoints.json").read_text())
    async with await PushClient.connect_websocket(endpoints["http"], endpoints["token"], timeout=TIMEOUT) as page:
        await page.send_hello()
        assert await send_keys(page, {"OPENAI_API_KEY": KEY}) == "ATTACH_FORBIDDEN"
    async with await open_client(daemon) as client:
        assert await list_sources(client) == {"demo": None}


@pytest.mark.parametrize(
    "variables",
    [
        None,
        [],
        "OPENAI_API_KEY",
        {"OPENAI_API_KEY": 5},
        {"OPENAI_API_KEY": None},
        {"OPENAI_API_KEY": ""},
        {"OPENAI_API_KEY": "k" * 20_000},
        {"OPENAI_API_KEY": "a\nb"},
        {"LD_PRELOAD": "/tmp/x.so"},
        {"TOWER_POLICY": "yolo"},
        {f"N{number}": "x" for number in range(100)},
        {"N" * 100: "x"},
    ],
    ids=lambda variables: str(variables)[:30],
)
async def test_wrong_and_oversized_requests_get_an_error(client: PushClient, variables: Any) -> None:
    assert await send_keys(client, variables) == "INVALID_REQUEST"


async def test_a_token_for_attaching_does_not_stop_the_owner(start_daemon_process: Start) -> None:
    daemon = await start_daemon_process(attach_token_required="true")
    async with await open_client(daemon) as client:
        assert await send_keys(client, {"OPENAI_API_KEY": KEY}) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
async def test_another_user_of_this_machine_cannot_reach_the_socket(start_daemon_process: Start, home: Path) -> None:
    daemon = await start_daemon_process()
    for folder in (home, home / "run"):
        folder.chmod(0o755)
    daemon.socket.chmod(0o777)  # even where the folders and the socket are open to all
    code = (
        f"import os, socket; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); s = socket.socket(socket.AF_UNIX); "
        f"s.settimeout(20); s.connect({str(daemon.socket)!r}); s.sendall(b'{{}}\\n'); print(repr(s.recv(100)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stdout.strip() == "b''" or "Error" in done.stderr, "it is not answered"


async def test_a_run_that_continues_after_a_restart_without_its_key_fails_and_names_it(
    start_daemon_process: Start, home: Path, workspace: Path
) -> None:
    async with ModelServer([script.reply_call("run", command="true")]) as server:
        (home / "config.toml").write_text(
            f'provider = "work"\n[models.work]\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n'
            'key_env = "OPENAI_API_KEY"\n'
        )
        daemon = await start_daemon_process()
        async with await open_client(daemon) as client:
            assert await send_keys(client, {"OPENAI_API_KEY": KEY}) is None
            session = (await client.start_session(workspace, provider="work")).session_id
            await client.send(session, "do it")
            asked = (await client.read_until("approval_required"))[-1]
        daemon.kill()
        daemon.end()
        daemon = await start_daemon_process()
        async with await open_client(daemon) as client:
            await client.attach(session, asked.seq)
            assert (await client.decide(asked)).code is None
            events = await client.read_until("run_complete")
    assert events[-1].payload["outcome"] == "failed"
    assert "`OPENAI_API_KEY` is not set" in events[-1].payload["summary"]


async def test_an_approval_keeps_waiting_after_a_restart_without_the_key(
    start_daemon_process: Start, home: Path, workspace: Path
) -> None:
    async with ModelServer([script.reply_call("run", command="true"), script.reply_text("finished")]) as server:
        (home / "config.toml").write_text(
            f'provider = "work"\n[models.work]\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.url}"\n'
            'key_env = "OPENAI_API_KEY"\n'
        )
        daemon = await start_daemon_process()
        async with await open_client(daemon) as client:
            assert await send_keys(client, {"OPENAI_API_KEY": KEY}) is None
            session = (await client.start_session(workspace, provider="work")).session_id
            await client.send(session, "do it")
            asked = (await client.read_until("approval_required"))[-1]
        daemon.kill()
        daemon.end()
        daemon = await start_daemon_process()
        async with await open_client(daemon) as client:
            await client.attach(session, asked.seq)
            # A second session shows that the daemon has had the time to fail the first one.
            other = (await client.start_session(workspace, provider="demo")).session_id
            await client.send(other, "say: hello")
            await client.read_until("run_complete")
            assert await send_keys(client, {"OPENAI_API_KEY": KEY}) is None
            assert (await client.decide(asked)).code is None
            events = await client.read_until("run_complete")
    assert events[-1].payload["outcome"] == "success"
