"""`pi-server`: one process that speaks pi at a port and over its own stdin and stdout, and ends with its input."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import TIMEOUT, TowerCommand
from tests.warm import processes

ENTRY = "from switchtower.cli.main import pi_server; pi_server()"


def _drop_pi_settings(environment: dict[str, str]) -> dict[str, str]:
    """Whoever starts the alias says nothing of our own variable."""
    return {name: value for name, value in environment.items() if name != "TOWER_PI"}


def start(tower: TowerCommand, *arguments: str, **environment: str) -> "subprocess.Popen[bytes]":
    return processes.Popen(
        [sys.executable, "-P", "-c", ENTRY, *arguments],
        loaded="daemon",
        cwd=tower.folder,
        env={**_drop_pi_settings(tower.environment), "PI_SERVER_PORT": "0", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_ready(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    first = process.stdout.readline()
    assert json.loads(first)["type"] == "server_ready"


def read_rest(process: "subprocess.Popen[bytes]") -> tuple[list[str], str]:
    """The types of the lines still to come, and what people were told."""
    stdout, stderr = process.communicate(timeout=TIMEOUT)
    assert stdout.endswith(b"\n")
    return [json.loads(line)["type"] for line in stdout.splitlines()], stderr.decode()


def test_it_is_ready_first_and_the_end_of_its_input_stops_it(tower_command: TowerCommand) -> None:
    process = start(tower_command)
    wait_ready(process)
    assert tower_command.endpoints["pid"] == process.pid
    assert tower_command.endpoints["pi"].startswith("ws://127.0.0.1:")
    types, said = read_rest(process)
    assert types[-1] == "server_shutdown"
    assert process.returncode == 0
    assert "is listening" in said
    assert list((tower_command.home / "run").glob("*.sock")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_as_gracefully(tower_command: TowerCommand, number: signal.Signals) -> None:
    process = start(tower_command)
    wait_ready(process)
    process.send_signal(number)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["type"] == "server_shutdown"
    assert process.wait(TIMEOUT) == 0
    process.communicate()


def test_what_is_asked_is_answered_between_the_two(tower_command: TowerCommand) -> None:
    process = start(tower_command)
    wait_ready(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"type": "list_sessions", "id": "1"}\n')
    process.stdin.flush()
    answer = next(line for line in map(json.loads, process.stdout) if line.get("type") != "server_ready" and "id" in line)
    assert answer["id"] == "1"
    types, _ = read_rest(process)
    assert types == ["server_shutdown"]
    assert process.returncode == 0


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_port_that_is_taken_ends_it_with_a_remedy(tower_command: TowerCommand, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        process = (
            start(tower_command, "--pi", f"127.0.0.1:{port}") if way == "flag" else start(tower_command, PI_SERVER_PORT=port)
        )
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, stdout) == (1, b"")
    assert f"127.0.0.1:{port}" in stderr.decode()
    assert b"hint: " in stderr
    assert stderr.count(b"\n") == 1


def test_beside_a_running_daemon_it_names_the_way_to_talk_to_that_one(tower_command: TowerCommand) -> None:
    tower_command("sessions")
    process = start(tower_command)
    stdout, stderr = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, stdout) == (1, b"")
    assert b"already running" in stderr
    assert stderr.endswith(b"hint: `tower stdio --protocol pi` talks to it\n")


def test_a_stdout_that_nobody_reads_stops_neither_the_daemon_nor_its_end(tower_command: TowerCommand) -> None:
    process = start(tower_command, "--shutdown-timeout", "1")
    wait_ready(process)
    assert process.stdin is not None
    requests = b"\n".join(b'{"type":"nonsense","id":"%d"}' % number for number in range(20_000)) + b"\n"
    # It may stop reading as well when nobody takes its answers.
    asking = threading.Thread(target=_write, args=(process.stdin.fileno(), requests), daemon=True)
    asking.start()
    assert tower_command("status").code == 0, "others are served"
    process.terminate()
    assert process.wait(TIMEOUT) == 0
    asking.join(TIMEOUT)
    process.communicate()


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, data)


def test_the_entry_point_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["pi-server"] == "switchtower.cli.main:pi_server"
