#!/usr/bin/env python3
"""Leaves a poll unanswered until a cancel arrives. What it does then, the environment says."""

import os

import speaking

CANCELLED = {"code": 2001, "message": "stopped", "data": {}}
unanswered: speaking.Request | None = None

for request in speaking.read_requests():
    if speaking.begin(request):
        continue
    if request["method"] == "Runtime.Poll":
        if unanswered is not None:
            speaking.answer(request, speaking.make_poll_result("failed", [speaking.log("the last one")], error=CANCELLED))
        unanswered = request
        continue
    match os.environ["AFTER_CANCEL"], unanswered:
        case "ends", {}:
            speaking.answer(request, {"ok": True})
            speaking.answer(unanswered, speaking.make_poll_result("running"))
        case _:
            pass
