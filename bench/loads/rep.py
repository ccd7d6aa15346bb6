"""REP's orchestrator: starts runtimes, has them run a flow, and polls them, through the same rooms as `tm` does."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import msgspec

from switchtower.flows import orchestrator
from switchtower.protocols.rep import client, driver, messages

POLL = b'{"jsonrpc":"2.0","id":%d,"method":"Runtime.Poll","params":{"run_id":"bench"}}\n'


def make_flow(kind: str, **given: str) -> dict[str, Any]:
    """A flow of one step."""
    return {
        "version": messages.IR_VERSION,
        "flow": {"name": "bench", "timeout_ms": 0},
        "constants": {},
        "inputs_schema": {},
        "metadata": {},
        "graph": {"nodes": [{"id": "only", "type": kind, "with": given}], "edges": []},
    }


async def measure_handshake(times: int, cwd: str) -> float:
    """Milliseconds from the start of our runtime until it has said what it can."""

    async def once() -> float:
        began = time.perf_counter()
        marching = client.RuntimeEnvironment(run_id=str(uuid4()), trace_id=str(uuid4()), timeout_s=60)
        async with client.RuntimeClient.start(orchestrator.make_own_argv(), cwd=cwd, runtime_environment=marching) as runtime:
            await runtime.call(messages.CAPABILITIES, {}, messages.Capabilities)
            return time.perf_counter() - began

    return await _measure_shortest(times, once)


async def measure_trivial_flow(times: int, cwd: str) -> float:
    """Milliseconds of a flow that logs one line, from nothing to nothing: the runtime is gone when it is told."""

    async def once() -> float:
        began = time.perf_counter()
        order = driver.RuntimeRunOrder(
            argv=orchestrator.make_own_argv(),
            cwd=cwd,
            ir=make_flow("log", message="hello"),
            required=["log"],
            run_id=str(uuid4()),
            trace_id=str(uuid4()),
        )
        ended = await driver.drive_run(order)
        assert ended.status == "completed", ended
        return time.perf_counter() - began

    return await _measure_shortest(times, once)


async def measure_polls(seconds: float, cwd: str) -> float:
    """Answers a second of our runtime while a step is under way."""
    start = {"ir": make_flow("sleep", seconds="600"), "options": {"run_id": "bench"}}
    request = {"jsonrpc": "2.0", "id": 0, "method": messages.START_RUN, "params": start}
    return measure_poll_rate(
        orchestrator.make_own_argv(), cwd, seconds, msgspec.json.encode(request) + b"\n", b'"state":"started"'
    )


def measure_poll_rate(argv: list[str], cwd: str, seconds: float, first: bytes, begun: bytes) -> float:
    """One poll after the other over bare pipes, so that nothing of ours is measured but the other end. They count from the
    answer that has `begun` in it."""
    with subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to_child, from_child = process.stdin.fileno(), process.stdout.fileno()
        os.write(to_child, first)
        assert b'"result"' in os.read(from_child, 65_536)
        answer = b""
        while begun not in answer:
            os.write(to_child, POLL % 0)
            answer = os.read(from_child, 65_536)
        count, began, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < seconds:
            count += 1
            os.write(to_child, POLL % count)
            answer = os.read(from_child, 65_536)
            elapsed = time.perf_counter() - began
        assert b'"status":"running"' in answer, answer
        process.stdin.close()
        process.wait(30)
    return count / elapsed


async def _measure_shortest(times: int, once: Callable[[], Awaitable[float]]) -> float:
    """Of a few: the start of a process has nothing in it that varies but the neighbours. The first one is not counted, because it
    loads and compiles what later ones find ready."""
    await once()
    return min([await once() for _ in range(times)]) * 1_000


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a runtime that is compiled anew each time is nobody's runtime
    arguments = msgspec.json.decode(sys.argv[1])
    work: Any = {"handshake": measure_handshake, "trivial": measure_trivial_flow, "polls": measure_polls}[arguments.pop("what")]
    print(msgspec.json.encode(asyncio.run(work(**arguments))).decode())


if __name__ == "__main__":
    main()
