#!/usr/bin/env python3
"""Puts out events by the ten thousand."""

import os

import speaking

polls = 0
TOTAL = int(os.environ["POLLS"])


def poll(request: speaking.Request) -> None:
    global polls
    events = [speaking.log(f"{polls}/{number}") for number in range(10_000)]
    polls += 1
    speaking.answer(request, speaking.make_poll_result("completed" if polls == TOTAL else "running", events))


speaking.serve(poll)
