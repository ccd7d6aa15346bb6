"""A daemon that was started by a script with `&` or `nohup` passes no ignored signal on to what it runs."""

import re
import subprocess
import sys
from pathlib import Path

CODE = """
import asyncio, signal, sys
from switchtower.daemon import app
from switchtower.tools.processes import commands as processes

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTSTP):
    signal.signal(number, signal.SIG_IGN)
app.keep_ignored_signals_from_programs()
command = "grep SigIgn /proc/self/status; kill -HUP $$; echo still here"
print(asyncio.run(processes.run_command(command, cwd=sys.argv[1], run_id="run_1", timeout_s=20)))
"""

OF_THE_C_LIBRARY = 1 << 31 | 1 << 32
"""Signals 32 and 33: no program can change them, and a parent may have left one ignored."""


def test_what_the_daemon_starts_has_the_default_for_every_signal(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
    ignored = re.search(r"SigIgn:\\t([0-9a-f]{16})", ended.stdout)
    assert ignored is not None
    assert int(ignored[1], 16) & ~OF_THE_C_LIBRARY == 0
    assert "still here" not in ended.stdout
