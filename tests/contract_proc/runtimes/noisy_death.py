#!/usr/bin/env python3
"""Dies after ten megabytes of errors."""

import sys

import speaking

for _ in speaking.read_requests():
    sys.stderr.write("noise " * 1024 * 1024 * 2 + "and that was it\n")
    sys.exit(1)
