"""The peers of each role: an orchestrator that writes its lines by hand, and the command with runtimes around it.

Every line that our runtime or our orchestrator writes is checked against the closed types.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.conformance.rep import closed
from tests.contract_proc.driving import RUNTIMES

TIMEOUT = 120
"""Seconds after which a test gives up; the limit is long because the machine may be busy."""
OURS = (sys.executable, "-P", "-m", "switchtower.flows.rep_runtime")
HERE = Path(__file__).parent / "runtimes"
_TM = "from switchtower.cli.main import tm; tm()"
_NOT_HERE = ("TRACE_MIND_", "TOWER_", "PUSHD_", "XDG_")
_ABSENT: Any = object()


def make_node(name: str, kind: str, given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "with": given or {}, **more}


def make_edge(source: str, target: str, on: str = "success", **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, "on": on, **more}


def make_flow(
    *nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), timeout_ms: int = 0, **inputs: str
) -> dict[str, Any]:
    """Makes a flow; `inputs` are names and types."""
    return {
        "version": "1.0.0",
        "flow": {"name": "shown", "timeout_ms": timeout_ms},
        "constants": {"policyRef": "none", "policy": {}},
        "inputs_schema": {name: {"type": kind} for name, kind in inputs.items()},
        "graph": {"nodes": list(nodes), "edges": list(edges)},
        "metadata": {"generated_at": "2026-01-02T03:04:05Z", "source_file": "shown.yaml"},
    }


HELLO = make_flow(make_node("say", "log", {"message": "hello"}))
NAP = make_flow(make_node("nap", "sleep", {"seconds": "3600"}))


def make_environment(**variables: str) -> dict[str, str]:
    """Returns our environment without an outer orchestrator's variables and without the settings of a daemon."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_HERE)} | variables


def make_python_path(folder: Path) -> str:
    """Returns a `PYTHONPATH` that starts with the folder."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


class Orchestrator:
    """A foreign orchestrator that runs our runtime as its process."""

    def __init__(
        self, folder: Path, *, command: tuple[str, ...] = OURS, stderr: int = subprocess.DEVNULL, **variables: str
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env=make_environment(**variables),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._asked = 0
        # The timer ensures that a read does not wait forever.
        self._watchdog = threading.Timer(TIMEOUT, self.process.kill)
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
        self.process.wait()

    def write(self, content: bytes) -> None:
        self._stdin.write(content)
        self._stdin.flush()

    def read(self, method: str | None = None) -> dict[str, Any]:
        """Reads the next answer. Without a method it must be an error."""
        return closed.answer(self._stdout.readline(), method)

    def ask(self, method: str, params: Any = _ABSENT) -> Any:
        """Sends a request and returns its result."""
        answered = self._exchange(method, params)
        assert "result" in answered, answered
        return answered["result"]

    def expect_refusal(self, method: str, params: Any = _ABSENT) -> Any:
        """Sends a request and returns its error."""
        answered = self._exchange(method, params)
        assert "error" in answered, answered
        return answered["error"]

    def start(self, document: dict[str, Any], **params: Any) -> str:
        run_id: str = self.ask("Runtime.StartRun", {"ir": document, **params})["run_id"]
        return run_id

    def poll_to_end(self) -> list[dict[str, Any]]:
        """Returns every answer until the run has ended."""
        polled = [self.ask("Runtime.Poll", {})]
        while polled[-1]["status"] in ("pending", "running"):
            time.sleep(0.002)
            polled.append(self.ask("Runtime.Poll", {}))
        return polled

    def run(self, document: dict[str, Any], **params: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Returns the last answer to a poll, and the events of all polls."""
        self.start(document, **params)
        polled = self.poll_to_end()
        return polled[-1], [event for each in polled for event in each["events"]]

    def close_input(self) -> tuple[int, bytes]:
        """Returns the exit code, and the output after the end of input."""
        self._stdin.close()
        rest = self._stdout.read()
        return self.process.wait(TIMEOUT), rest

    def _exchange(self, method: str, params: Any) -> dict[str, Any]:
        self._asked += 1
        request = {"jsonrpc": "2.0", "id": self._asked, "method": method}
        self.write(json.dumps(request if params is _ABSENT else {**request, "params": params}).encode() + b"\n")
        answered = self.read(method)
        assert answered["id"] == self._asked
        return answered


def list_states(events: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(event["step_id"], event["state"], event["attempt"]) for event in events if event["type"] == "step"]


class TmResult(NamedTuple):
    code: int
    stdout: bytes
    stderr: str

    @property
    def outcome(self) -> dict[str, Any]:
        return closed.parse_outcome(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.outcome["summary"]["error"]
        return error


class TmCommand:
    """`tm` with a separate folder and home. The home has a short path, because the path of a Unix socket in it must be short."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder / "work"
        self.home = home
        self.folder.mkdir()
        self.notes = folder / "notes"
        # The runtimes of this folder import modules that they share with the contract tests from there.
        self.environment = make_environment(HOME=str(self.home), NOTES=str(self.notes), PYTHONPATH=make_python_path(RUNTIMES))

    def __call__(self, *arguments: str, **variables: str) -> TmResult:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _TM, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.folder,
            env=self.environment | variables,
            timeout=TIMEOUT,
        )
        return TmResult(ended.returncode, ended.stdout, ended.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _TM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
        )

    def run(self, document: dict[str, Any], runtime: str | None = None, *arguments: str, **variables: str) -> TmResult:
        """Runs `tm run` on a document, with one of the runtimes of these tests or with ours."""
        chosen = () if runtime is None else ("--executor-path", runtime)
        return self("run", self.write("flow.json", document), "--json", *chosen, *arguments, **variables)

    def write(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    def make_tap(self, *command: str) -> str:
        """Creates a runtime that records its input, its output and its process id."""
        script = self.folder / "tap"
        script.write_text(f"#!/bin/sh\necho $$ >> pids\ntee -a sent | {shlex.join(command)} | tee -a answered\n")
        script.chmod(0o755)
        return "./tap"

    def read_sent(self) -> list[dict[str, Any]]:
        """Returns the recorded input, with each line checked against the closed types."""
        return [closed.request(line) for line in (self.folder / "sent").read_bytes().splitlines(keepends=True)]

    def read_requests(self) -> list[dict[str, Any]]:
        """Returns the requests that a runtime of these tests recorded."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def list_methods(self) -> list[str]:
        return [request["method"] for request in self.read_requests()]

    def list_processes(self) -> list[int]:
        """Lists the running processes with this command's environment."""
        mark, found = f"NOTES={self.notes}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def get_foreign_runtime(name: str) -> str:
    """Returns the path of a runtime from this folder or from the contract tests."""
    return str(next(path for path in (HERE / f"{name}.py", RUNTIMES / f"{name}.py") if path.exists()))
