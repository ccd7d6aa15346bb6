#!/usr/bin/env python3
"""Sends more fields than the document has, everywhere, and uses its own id for the run."""

import speaking

polls = 0


def answer(request: speaking.Request, result: dict[str, object]) -> None:
    speaking.write_line({"jsonrpc": "2.0", "id": request["id"], "result": {**result, "more": [1]}, "more": {}})


for request in speaking.read_requests():
    match request["method"]:
        case "Runtime.Capabilities":
            answer(request, {**speaking.CAPABILITIES, "limits": {"concurrency": 4, "memory_mb": 64}})
        case "Runtime.StartRun":
            answer(request, {"run_id": "a name of its own"})
        case "Runtime.Poll":
            polls += 1
            events = [speaking.make_unknown_event(number=polls), {**speaking.log(f"poll {polls}"), "more": 1}]
            answer(
                request,
                speaking.make_poll_result("completed" if polls == 3 else "running", events, outputs={"polls": polls}, more=1),
            )
