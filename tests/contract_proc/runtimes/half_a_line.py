#!/usr/bin/env python3
"""Writes half an answer, and is gone."""

import sys

import speaking

for _ in speaking.read_requests():
    speaking.write_line(b'{"jsonrpc": "2.0", "id": 1, "resu')
    sys.stderr.write("out of memory\n")
    sys.exit(3)
