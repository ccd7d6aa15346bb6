#!/usr/bin/env python3
"""Has a command under way, marked as a runtime of ours marks it where limits cannot carry marks, and is killed."""

import os
import resource
import signal
import sys
from pathlib import Path

import speaking

polls = 0


def start_command() -> None:
    if os.fork() == 0:
        os.setsid()
        for limit in (10, 15, 5):  # those that `marks` uses
            resource.setrlimit(limit, (0, 0))
        program = "import os, pathlib, signal; pathlib.Path(os.environ['CHILD']).write_text(str(os.getpid())); signal.pause()"
        marks = {"TOWER_RUN": os.environ["TRACE_MIND_RUN_ID"], "TOWER_COMMAND": str(int(os.environ["TOWER_COMMAND"]) + 1)}
        os.execve(sys.executable, [sys.executable, "-c", program], {**os.environ, **marks})


def poll(request: speaking.Request) -> None:
    global polls
    polls += 1
    if polls == 1:
        start_command()
    child = Path(os.environ["CHILD"])
    if child.exists() and child.read_text():
        os.kill(os.getpid(), signal.SIGKILL)
    speaking.answer(request, speaking.make_poll_result("running"))


speaking.serve(poll)
