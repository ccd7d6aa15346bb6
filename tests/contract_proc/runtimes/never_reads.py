#!/usr/bin/env python3
"""Does not even read."""

import signal

signal.pause()
