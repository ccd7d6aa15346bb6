#!/usr/bin/env python3
"""Closes its input after the first answer and lives on."""

import os
import signal
import sys

import speaking

sys.stdin.buffer.readline()
os.close(0)
speaking.answer({"id": 1}, speaking.CAPABILITIES)
signal.pause()
