#!/usr/bin/env python3
"""Fails, and only an event tells of it."""

import os

import speaking

EVENTS = {"event": [speaking.make_step("one", "failed", error={"code": 2001, "message": "told by the step"})], "nothing": None}


def poll(request: speaking.Request) -> None:
    speaking.answer(request, {"status": "failed", "events": EVENTS[os.environ["TOLD_BY"]], "summary": None})


speaking.serve(poll)
