#!/usr/bin/env python3
"""Runs until it is cancelled, and says so."""

import speaking

CANCELLED = {"code": 2001, "message": "cancelled", "data": {"cause": "Cancelled"}}
cancelled = False


def poll(request: speaking.Request) -> None:
    if cancelled:
        speaking.answer(request, speaking.make_poll_result("failed", [speaking.log("the last one")], error=CANCELLED))
    else:
        speaking.answer(request, speaking.make_poll_result("running"))


def cancel(request: speaking.Request) -> None:
    global cancelled
    cancelled = True
    speaking.answer(request, {"ok": True})


speaking.serve(poll, cancel)
