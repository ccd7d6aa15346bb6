#!/usr/bin/env python3
"""Answers the first request with the line that the environment has for it."""

import os

import speaking

for _ in speaking.read_requests():
    speaking.write_line(os.environ["LINE"].encode("latin-1") + b"\n")
