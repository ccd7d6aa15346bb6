#!/usr/bin/env python3
"""Leaves a child in a session of its own that keeps all pipes open, and is gone."""

import os
import signal
import sys
from pathlib import Path

import speaking

for _ in speaking.read_requests():
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(os.environ["CHILD"]).write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGUSR1)
        while True:
            signal.pause()
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
    signal.pause()
