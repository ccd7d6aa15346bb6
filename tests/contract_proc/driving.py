"""How these tests make runs: a runtime from `runtimes/`, a small flow, and an eye on what is left afterwards."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from switchtower.protocols.rep import client, driver

RUNTIMES = Path(__file__).parent / "runtimes"
DRIVER_TIMEOUT = 120
"""Seconds after which a test gives up: long, because the machine may be busy with something else."""
_HOOKS = ("cancel", "on_event", "on_capabilities", "adapt", "check", "drive_control")

IR: dict[str, Any] = {
    "version": "1.0.0",
    "flow": {"name": "greet", "timeout_ms": 0},
    "constants": {"policyRef": "none", "policy": {}},
    "inputs_schema": {},
    "graph": {"nodes": [{"id": "one", "type": "log", "with": {"message": "hello"}}], "edges": []},
    "metadata": {"generated_at": "2026-01-01T00:00:00Z", "source_file": "greet.yaml"},
}


def make_order(runtime: str, **settings: Any) -> driver.RuntimeRunOrder:
    """Variables for the runtime go in as `env`."""
    script = RUNTIMES / f"{runtime}.py"
    assert script.exists()
    environment = {**os.environ, **settings.pop("env", {})}
    defaults: dict[str, Any] = {
        "argv": [sys.executable, str(script)],
        "cwd": str(RUNTIMES),
        "ir": IR,
        "required": ["log"],
        "run_id": f"run-{uuid4().hex}",
        "trace_id": "trace-1",
        "timeout_s": 20.0,
        "environment": environment,
    }
    return driver.RuntimeRunOrder(**(defaults | settings))


async def drive(runtime: str, **settings: Any) -> client.FlowRunOutcome:
    hooks = {name: settings.pop(name) for name in _HOOKS if name in settings}
    return await drive_order(make_order(runtime, **settings), **hooks)


async def drive_order(wanted: driver.RuntimeRunOrder, **hooks: Any) -> client.FlowRunOutcome:
    """The outcome, once it is sure that nothing is left."""
    await asyncio.to_thread(int)  # the loop's own thread and descriptors are there before we count
    before = list_descriptors()
    try:
        async with asyncio.timeout(DRIVER_TIMEOUT):
            return await driver.drive_run(wanted, **hooks)
    finally:
        assert find_run_processes(wanted.run_id) == [], "a process is left"
        assert list_descriptors() == before, "a descriptor is left"


async def wait_until_asked(asked: Path, method: str) -> None:
    """Waits until the runtime was asked that, as the file of its notes says."""
    async with asyncio.timeout(DRIVER_TIMEOUT):
        while method not in [request["method"] for request in read_notes(asked)]:
            await asyncio.sleep(0.01)


async def is_cancelled(driving: "asyncio.Task[Any]") -> bool:
    """Whether it ends as cancelled, and by itself: nobody's patience ends it."""
    done, _ = await asyncio.wait([driving], timeout=DRIVER_TIMEOUT / 2)
    driving.cancel()
    await asyncio.wait([driving])
    return bool(done) and driving.cancelled()


def list_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def find_run_processes(run_id: str) -> list[int]:
    """Processes, dead ones that nobody reaped too, that were started for the run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if f"TRACE_MIND_RUN_ID={run_id}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    zombies = [
        pid for pid in list_children() if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    ]
    return found + zombies


def list_children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def read_notes(path: Path) -> list[dict[str, Any]]:
    """What the runtime was asked."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
