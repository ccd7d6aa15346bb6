#!/usr/bin/env python3
"""Answers the first request with the line that the environment has for it."""

import os

import speaking

for _ in speaking.requests():
    speaking.say(os.environ["LINE"].encode("latin-1") + b"\n")
