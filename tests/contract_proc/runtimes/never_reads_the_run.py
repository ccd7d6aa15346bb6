#!/usr/bin/env python3
"""Answers the first request, and reads nothing after it."""

import signal
import sys

import speaking

line = sys.stdin.buffer.readline()
speaking.answer({"id": 1}, speaking.CAPABILITIES)
signal.pause()
