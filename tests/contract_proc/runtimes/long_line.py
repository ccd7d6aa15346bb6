#!/usr/bin/env python3
"""Writes a line that does not end."""

import sys

import speaking

for _ in speaking.read_requests():
    for _ in range(17):
        sys.stdout.buffer.write(b"x" * 1024 * 1024)
    sys.stdout.buffer.flush()
