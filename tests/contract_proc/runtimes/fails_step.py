#!/usr/bin/env python3
"""Its only step fails, as the summary says."""

import speaking

ERROR = {"code": 2001, "message": "no such host", "data": {"step_id": "one", "attempt": 2, "retriable": True, "details": {}}}


def poll(request: speaking.Request) -> None:
    speaking.answer(
        request,
        speaking.make_poll_result("failed", [speaking.make_step("one", "failed", error=ERROR)], failed_steps=1, error=ERROR),
    )


speaking.serve(poll)
