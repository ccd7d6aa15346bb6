"""What the runtimes of these tests share: lines in, lines out, and the answers of one that behaves."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CAPABILITIES = {"version": "0.1.0", "step_kinds": ["log", "switch", "dsl.emit", "finish"], "limits": {"concurrency": 1}}

Request = dict[str, Any]


def read_requests() -> Iterator[Request]:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        note(request)
        yield request


def note(request: Request) -> None:
    """Where a test wants to know what was asked, it names a file."""
    if path := os.environ.get("NOTES"):
        with Path(path).open("a") as notes:
            notes.write(json.dumps(request) + "\n")


def write_line(line: Any) -> None:
    text = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def answer(request: Request, result: Any) -> None:
    write_line({"jsonrpc": "2.0", "id": request["id"], "result": result})


def refuse(request: Request, code: int, message: str, **data: Any) -> None:
    write_line({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message, "data": data}})


def begin(request: Request) -> bool:
    """Answers as it should be whatever comes before the first poll. Whether it did."""
    match request["method"]:
        case "Runtime.Capabilities":
            answer(request, CAPABILITIES)
        case "Runtime.StartRun":
            answer(request, {"run_id": request["params"]["options"]["run_id"]})
        case _:
            return False
    return True


def serve(poll: Callable[[Request], None], cancel: Callable[[Request], None] | None = None) -> None:
    for request in read_requests():
        if begin(request):
            continue
        if request["method"] == "Runtime.Cancel" and cancel is not None:
            cancel(request)
        else:
            poll(request)


def make_poll_result(status: str, events: Any = (), **summary: Any) -> dict[str, Any]:
    return {"status": status, "events": events, "summary": {"completed_steps": 0, "failed_steps": 0, **summary}}


def log(message: str) -> dict[str, Any]:
    return {"type": "log", "timestamp": "2026-01-01T00:00:00Z", "level": "info", "message": message}


def make_unknown_event(**more: Any) -> dict[str, Any]:
    """Of a type that REP does not have yet."""
    return {"type": "novel", "timestamp": "2026-01-01T00:00:00Z", **more}


def make_step(step_id: str, state: str, **more: Any) -> dict[str, Any]:
    return {"type": "step", "timestamp": "2026-01-01T00:00:00Z", "step_id": step_id, "state": state, **more}
