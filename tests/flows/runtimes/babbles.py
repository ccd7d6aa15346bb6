#!/usr/bin/env python3
"""Says whatever a runtime should not, around a run that completes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "contract_proc" / "runtimes"))

import speaking

deep: object = "bottom"
for _ in range(300):
    deep = {"down": deep}

polls = 0


def make_rounds() -> list[list[object]]:
    step, log = speaking.make_step, speaking.log
    return [
        [
            step("nobody", "started"),
            step("one", "succeeded", attempt=7, duration_ms=True, outputs={"n": 10**30, "deep": deep}),
            step("one", "failed", attempt=True, duration_ms=-5, error="a text"),
            {**step("one", "started"), "step_id": 3, "state": ["started"]},
            {**log("level is no text"), "level": {"a": 1}},
            {**log(""), "message": ["no text"]},
            speaking.make_unknown_event(text="password=swordfish-77-xyzzy"),
        ],
        [
            log("half a character \ud83d and a \0 and \x1b[31mred"),
            log("password=swordfish-77-xyzzy"),
            log("x" * 2_000_000),
            *(log(f"line {number}") for number in range(3_000)),
            step("one", "started", attempt=2**40),
            step("one", "started", attempt=0),
            step("one", "started", attempt=0),
            step("one", "succeeded", attempt=0, outputs={"big": "y" * 2_000_000}),
            step("one", "succeeded", attempt=0, outputs={"big": "again"}),
        ],
    ]


def poll(request: speaking.Request) -> None:
    global polls
    told = make_rounds()
    if polls < len(told):
        speaking.answer(request, speaking.make_poll_result("running", told[polls], completed_steps="many"))
    else:
        speaking.answer(
            request, speaking.make_poll_result("completed", [], completed_steps=1, outputs={"said": "\ud83d", "n": 10**25})
        )
    polls += 1


speaking.serve(poll)
