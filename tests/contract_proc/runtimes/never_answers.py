#!/usr/bin/env python3
"""Reads, and never answers."""

import speaking

for _ in speaking.read_requests():
    pass
