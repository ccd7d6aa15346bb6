"""What starting a process costs, and what a line of JSON there and back does, when nobody does anything with them."""

import subprocess
import sys
import time
from typing import Any

import msgspec

from bench.loads import rep

ECHO = """
import json, sys
summary = {"completed_steps": 0, "failed_steps": 0}
for line in sys.stdin.buffer:
    request = json.loads(line)
    result = {"status": "running", "events": [], "summary": summary}
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
    sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\\n")
    sys.stdout.flush()
"""


def spawn(times: int) -> float:
    """Milliseconds from starting the interpreter to its end, the shortest of a few."""
    took = []
    for _ in range(times + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        took.append(time.perf_counter() - began)
    return min(took[1:]) * 1_000


def measure_polls(seconds: float, cwd: str) -> float:
    return rep.measure_poll_rate([sys.executable, "-c", ECHO], cwd, seconds, rep.POLL % 0, b'"running"')


def main() -> None:
    arguments = msgspec.json.decode(sys.argv[1])
    work: Any = {"spawn": spawn, "polls": measure_polls}[arguments.pop("what")]
    print(msgspec.json.encode(work(**arguments)).decode())


if __name__ == "__main__":
    main()
