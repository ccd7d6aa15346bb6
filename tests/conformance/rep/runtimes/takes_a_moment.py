#!/usr/bin/env python3
"""A runtime whose only step takes 50 ms by its own clock and sends no event meanwhile."""

import time

import speaking

began = 0.0


def poll(request: speaking.Request) -> None:
    global began
    began = began or time.monotonic()
    is_over = time.monotonic() >= began + 0.05
    speaking.answer(request, speaking.make_poll_result("completed" if is_over else "running"))


speaking.serve(poll)
