#!/usr/bin/env python3
"""Behaves: two events, then a last one and the outputs, among them what it found in its environment."""

import os

import speaking

polls = 0


def poll(request: speaking.Request) -> None:
    global polls
    polls += 1
    if polls == 1:
        speaking.answer(request, speaking.make_poll_result("pending"))
    elif polls == 2:
        speaking.answer(
            request,
            speaking.make_poll_result("running", [speaking.make_step("one", "started"), speaking.make_unknown_event(of=1)]),
        )
    else:
        seen = {name: value for name, value in os.environ.items() if name.startswith("TRACE_MIND_")}
        last = speaking.make_step("one", "succeeded", outputs={"said": "hello"})
        speaking.answer(request, speaking.make_poll_result("completed", [last], completed_steps=1, outputs=seen))


speaking.serve(poll)
