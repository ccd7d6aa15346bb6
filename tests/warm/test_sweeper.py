"""A test process that is killed leaves nothing behind."""

import os
import select
import signal
import subprocess
import sys

import pytest
from tests.warm import sweeper

LEAVES_A_SHELL = f"""
import importlib.util, os, subprocess, sys
spec = importlib.util.spec_from_file_location("sweeper", {sweeper.__file__!r})
sweeper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sweeper)
guarding = sweeper.guard()
shell = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; echo $$; while :; do sleep 100; done"], start_new_session=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ending", ["killed", "ended"])
def test_what_a_process_has_left_is_killed_after_its_end(ending: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", LEAVES_A_SHELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        shell = os.pidfd_open(int(process.stdout.readline()))
        try:
            if ending == "killed":
                process.send_signal(signal.SIGKILL)
            else:
                process.stdin.write(b"\n")
                process.stdin.flush()
            process.wait(20)
            assert select.select([shell], [], [], 20)[0], "the shell still runs"
        finally:
            os.close(shell)
