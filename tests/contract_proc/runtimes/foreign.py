#!/usr/bin/env python3
"""Knows no control kinds. Runs one node: says its message, fails, crashes, or takes for ever."""

import os
from typing import Any

import speaking

node: dict[str, Any] = {}


def poll(request: speaking.Request) -> None:
    name, given = str(node["id"]), node["with"]
    match given["do"]:
        case "fail":
            error = {"code": 2001, "message": "as it was told", "data": {"details": {"why": "told"}}}
            speaking.answer(
                request, speaking.make_poll_result("failed", [speaking.make_step(name, "failed", error=error)], error=error)
            )
        case "crash":
            os._exit(9)
        case "wait":
            speaking.answer(request, speaking.make_poll_result("running"))
        case text:
            events = [speaking.log(f"saying {text}"), speaking.make_step(name, "succeeded", outputs={"said": text})]
            speaking.answer(request, speaking.make_poll_result("completed", events, completed_steps=1))


for request in speaking.read_requests():
    if request["method"] == "Runtime.Capabilities":
        speaking.answer(request, speaking.CAPABILITIES | {"step_kinds": ["log"]})
    elif request["method"] == "Runtime.StartRun":
        (node,) = request["params"]["ir"]["graph"]["nodes"]
        speaking.answer(request, {"run_id": "mine"})
    else:
        poll(request)
