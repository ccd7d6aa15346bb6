"""The end of a daemon as pi's clients see it: told first, short work done, closed with 1001; and `pi-server` on its own."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.pi_stage import TIMEOUT, PiHarness, get_text
from tests.warm import processes

from switchtower.testing.pi_client import PiClient
from switchtower.testing.wire import WebSocketWire


async def read_to_end(client: PiClient) -> None:
    with pytest.raises(EOFError):
        await client.wait_for(lambda frame: False)


async def wait_for_exit(pi_harness: PiHarness) -> int:
    return await asyncio.to_thread(pi_harness.daemon.process.wait, TIMEOUT)


async def test_a_short_prompt_finishes_and_everybody_is_told_first_and_closed_with_1001(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2, shutdown_timeout=20)
    client, quiet, by_socket = (
        await pi_harness.connect(),
        await pi_harness.connect(lifecycle=False),
        await pi_harness.connect(unix=True),
    )
    session_id = await pi_harness.start_session(client)
    await quiet.execute("switch_session", sessionId=session_id)
    prompt = await client.begin("prompt", sessionId=session_id, message="count 150")
    await client.next_event("message_update")
    pi_harness.daemon.process.send_signal(signal.SIGTERM)
    told = await client.wait_for(lambda frame: frame["type"] == "server_shutdown")
    assert told == {"type": "server_shutdown", "data": {"reason": "graceful_shutdown", "timeoutMs": 20_000}}
    refused = await client.request("list_sessions")
    assert refused["error"] == "Server is shutting down"
    assert client.list_lifecycle(refused["id"]) == [refused], "what is not admitted has no lifecycle"
    assert (await client.wait_for_response(prompt))["success"] is True
    for other in (client, quiet, by_socket):
        await read_to_end(other)
        assert [frame["type"] for frame in other.frames].count("server_shutdown") == 1
    for follower in (client, quiet):
        events = follower.list_events()
        assert get_text(events[-1]["messages"][-1]).endswith(" 150")
        assert isinstance(follower.wire, WebSocketWire)
        assert follower.wire.close_code == 1001
    assert await wait_for_exit(pi_harness) == 0


@pytest.mark.requirement("pi:replay:shutdown")
async def test_work_that_takes_too_long_is_answered_all_the_same(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2, shutdown_timeout=0.5)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    prompt = await client.begin("prompt", sessionId=session_id, message="count 1000000")
    bash = await client.begin("bash", sessionId=session_id, command="sleep 1000")
    await client.next_event("message_update")
    pi_harness.daemon.process.send_signal(signal.SIGTERM)
    for id_ in (prompt, bash):
        answer = await client.wait_for_response(id_)
        assert answer["success"] is False
        assert answer["error"] == "Server is shutting down"
        finished = [frame for frame in client.list_lifecycle(id_) if frame["type"] == "command_finished"]
        assert len(finished) == 1
    await read_to_end(client)
    assert await wait_for_exit(pi_harness) == 0
    # The next daemon sends the same.
    await pi_harness.open()
    again = await pi_harness.connect()
    for id_, fields in ((prompt, {"message": "count 1000000"}), (bash, {"command": "sleep 1000"})):
        before = next(frame for frame in client.list_lifecycle(id_) if frame["type"] == "response")
        answer = await again.request(before["command"], id=id_, sessionId=session_id, **fields)
        assert answer == {**before, "replayed": True}
    assert (await again.execute("get_state", sessionId=session_id))["isStreaming"] is False


async def test_with_a_client_that_does_not_read_the_daemon_still_ends(pi_harness: PiHarness) -> None:
    await pi_harness.open(shutdown_timeout=1)
    client, deaf = await pi_harness.connect(), await pi_harness.connect(unix=True)
    session_id = await pi_harness.start_session(client)
    await deaf.execute("switch_session", sessionId=session_id)
    await client.execute("prompt", sessionId=session_id, message="count 3000")
    pi_harness.daemon.process.send_signal(signal.SIGTERM)
    await read_to_end(client)
    assert await wait_for_exit(pi_harness) == 0


# pi-server

NOISY = """
import ctypes, os, sys, threading, time
stdout = os.fstat(1)
def make_noise():
    while os.path.samestat(os.fstat(1), stdout):  # until it is claimed for the protocol
        time.sleep(0.001)
    while True:
        print("a library says hello")
        sys.stdout.flush()
        os.write(1, b"and below Python\\n")
        ctypes.CDLL(None).puts(b"and in C")
        time.sleep(0.005)
threading.Thread(target=make_noise, daemon=True).start()
from switchtower.cli.main import pi_server
pi_server()
"""
QUIET = "from switchtower.cli.main import pi_server; pi_server()"


class PiServerProcess:
    """`pi-server` with pipes for its ends."""

    def __init__(self, home: Path, code: str = QUIET, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_", "PI_"))}
        given = {"TOWER_HOME": str(home), "HOME": str(home), "TOWER_HTTP": "off", "PI_SERVER_PORT": "0"}
        self.process = processes.Popen(
            [sys.executable, "-P", "-c", code],
            loaded="daemon",
            cwd=home / "ws",
            env={**inherited, **given, "TOWER_DEMO_DELAY_MS": "0", "TOWER_PROVIDER": "demo", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.frames: list[dict[str, Any]] = []

    def send_line(self, **command: object) -> None:
        self.stdin.write(json.dumps(command).encode() + b"\n")
        self.stdin.flush()

    def wait_for_frame(self, type_: str, id_: str | None = None) -> dict[str, Any]:
        while True:
            line = self.stdout.readline()
            assert line.endswith(b"\n"), f"stdout ended before {type_}"
            self.frames.append(json.loads(line))
            if self.frames[-1]["type"] == type_ and id_ in (None, self.frames[-1].get("id")):
                return self.frames[-1]

    def end(self) -> tuple[int, str]:
        """What is left on stdout must be frames too. The exit code, and what people were told."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.stdin = None
        rest = self.stdout.read()  # what `readline` has taken in already is here, and nowhere else
        _, stderr = self.process.communicate(timeout=TIMEOUT)
        self.frames += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode, stderr.decode()


StartPiServer = Callable[..., PiServerProcess]


@pytest.fixture
def pi_server(home: Path) -> Iterator[StartPiServer]:
    servers: list[PiServerProcess] = []

    def start(*args: Any, **environment: str) -> PiServerProcess:
        servers.append(PiServerProcess(home, *args, **environment))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.communicate()


async def test_its_two_doors_lead_to_one_core(pi_server: StartPiServer, home: Path, pi_harness: PiHarness) -> None:
    server = pi_server()
    await asyncio.to_thread(server.wait_for_frame, "server_ready")
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    server.send_line(type="switch_session", id="1", sessionId=session_id)
    assert (await asyncio.to_thread(server.wait_for_frame, "response", "1"))["success"] is True
    await client.execute("prompt", sessionId=session_id, message="say: over the socket")
    await asyncio.to_thread(
        lambda: next(
            frame for frame in iter(lambda: server.wait_for_frame("event"), None) if frame["event"]["type"] == "agent_end"
        )
    )
    # Ids of a stdio client are its own: the same one means another command elsewhere.
    assert (await client.request("list_sessions", id="1"))["success"] is True
    server.stdin.close()
    server.process.stdin = None
    await read_to_end(client)
    assert isinstance(client.wire, WebSocketWire)
    assert client.wire.close_code == 1001
    code, _ = await asyncio.to_thread(server.end)
    assert code == 0
    assert [frame["type"] for frame in server.frames].count("server_shutdown") == 1


@pytest.mark.parametrize("end", ["EOF", "SIGTERM"])
async def test_what_is_under_way_on_stdin_is_answered_before_the_end(pi_server: StartPiServer, end: str) -> None:
    server = pi_server(TOWER_DEMO_DELAY_MS="2", TOWER_SHUTDOWN_TIMEOUT="20")
    await asyncio.to_thread(server.wait_for_frame, "server_ready")
    server.send_line(type="create_session", id="1")
    session_id = (await asyncio.to_thread(server.wait_for_frame, "response", "1"))["data"]["sessionId"]
    server.send_line(type="prompt", id="2", sessionId=session_id, message="count 100")
    await asyncio.to_thread(server.wait_for_frame, "command_started")
    if end == "SIGTERM":
        server.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.wait_for_frame, "server_shutdown")
    code, _ = await asyncio.to_thread(server.end)
    assert code == 0
    [answer] = [frame for frame in server.frames if frame.get("id") == "2"]
    assert answer["success"] is True
    assert [frame["type"] for frame in server.frames].count("server_shutdown") == 1


async def test_whatever_prints_in_the_process_its_stdout_carries_frames_alone(pi_server: StartPiServer, home: Path) -> None:
    server = pi_server(NOISY, TOWER_POLICY="yolo")
    await asyncio.to_thread(server.wait_for_frame, "server_ready")
    server.send_line(type="create_session", id="1", cwd=str(home / "ws"))
    session_id = (await asyncio.to_thread(server.wait_for_frame, "response", "1"))["data"]["sessionId"]
    server.send_line(type="switch_session", id="2", sessionId=session_id)
    server.send_line(type="prompt", id="3", sessionId=session_id, message="run: echo loud; echo louder >&2\ncount 50")
    server.send_line(type="bash", id="4", sessionId=session_id, command="echo from bash > /dev/stdout; echo to stderr >&2")
    assert (await asyncio.to_thread(server.wait_for_frame, "response", "3"))["success"] is True
    server.stdin.close()
    server.process.stdin = None
    code, said = await asyncio.to_thread(server.end)
    assert code == 0
    assert "a library says hello" in said
    assert "and below Python" in said
    assert {frame["type"] for frame in server.frames} >= {"event", "response", "command_finished", "server_shutdown"}


async def test_a_used_port_and_a_daemon_that_runs_are_failures_without_a_word_on_stdout(
    pi_server: StartPiServer, pi_harness: PiHarness
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        server = pi_server(PI_SERVER_PORT=str(holder.getsockname()[1]))
        code, said = await asyncio.to_thread(server.end)
        assert (code, server.frames) == (1, [])
        assert f"127.0.0.1:{holder.getsockname()[1]}" in said
    await pi_harness.open()
    server = pi_server()
    code, said = await asyncio.to_thread(server.end)
    assert (code, server.frames) == (1, [])
    assert "already running" in said
    assert (await (await pi_harness.connect()).execute("list_sessions")) == {"sessions": []}, "the one that runs is not disturbed"
