"""Processes of one run: started, waited for, asked for their figures, and ended by the same hand."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

ROOT = Path(__file__).parent.parent
_POLL = 0.001
_START_TIMEOUT = 60.0
_ANSWER_TIMEOUT = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A process that listens on a Unix socket. Ends with its `with` block."""

    def __init__(self, process: subprocess.Popen[bytes], socket_path: Path, home: Path, seconds_to_listening: float) -> None:
        self.socket = str(socket_path)
        self.home = home
        self.seconds_to_listening = seconds_to_listening
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read_endpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((self.home / "run" / "endpoints.json").read_bytes())
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def measure_cpu_seconds(self) -> float:
        return read_cpu_seconds(self._process.pid)

    def measure_resident_mb(self) -> float:
        return read_resident_bytes(self._process.pid) / 1_048_576


def read_resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError("the kernel does not tell the resident size")


def read_cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """What the process has used so far, user and system; on request also what its children had that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / _TICKS


def start_daemon(home: Path, module: list[str], variables: Mapping[str, str] | None = None) -> Server:
    """A Switchtower daemon in this home, ready when it has announced itself."""
    environment = {"TOWER_HOME": str(home), "TOWER_HTTP": "127.0.0.1:0", "TOWER_PI": "127.0.0.1:0", **(variables or {})}
    return start(module, home / "run" / "pushd.sock", home / "run" / "endpoints.json", environment, home)


def start(
    arguments: list[str],
    socket_path: Path,
    ready_file: Path | None = None,
    variables: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Server:
    """Starts a Python program and waits until its socket takes connections, and its file is there if it writes one."""
    foreign = ("TOWER_", "PUSHD_", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    began = time.perf_counter()
    said = tempfile.TemporaryFile()  # noqa: SIM115 - the process has it for as long as it lives
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment | dict(variables or {}), stdout=said, stderr=said
    )
    while not (_is_listening(socket_path) and (ready_file is None or ready_file.exists())):
        if process.poll() is not None or time.perf_counter() - began > _START_TIMEOUT:
            process.kill()
            said.seek(0)
            raise RuntimeError(f"`{' '.join(arguments)}` does not listen: {said.read().decode(errors='replace')}")
        time.sleep(_POLL)
    return Server(process, socket_path, home or socket_path.parent, time.perf_counter() - began)


def measure_first_line(arguments: list[str], variables: Mapping[str, str]) -> float:
    """From starting a Python program to the first line of its output. It is ended by the end of its input."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
        process.stdin.close()
        process.wait(20)
    assert line, "it says nothing"
    return took


def ask(arguments: list[str]) -> Any:
    """Runs a Python program to its end; what it printed, read as JSON."""
    finished = subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, timeout=_ANSWER_TIMEOUT, check=True)
    return msgspec.json.decode(finished.stdout)


def _is_listening(path: Path) -> bool:
    if not path.exists():
        return False
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        return probe.connect_ex(str(path)) == 0
