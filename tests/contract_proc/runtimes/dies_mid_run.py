#!/usr/bin/env python3
"""Dies of a signal at the second poll, with last words that hold a key."""

import os
import signal
import sys

import speaking

polls = 0


def poll(request: speaking.Request) -> None:
    global polls
    polls += 1
    if polls == 2:
        sys.stderr.write("fatal: password=swordfish-77-xyzzy\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    speaking.answer(request, speaking.make_poll_result("running", [speaking.log("still here")], completed_steps=4))


speaking.serve(poll)
