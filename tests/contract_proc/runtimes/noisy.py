#!/usr/bin/env python3
"""Writes ten megabytes of errors before each answer."""

import sys

import speaking


def poll(request: speaking.Request) -> None:
    sys.stderr.write("noise " * 1024 * 1024 * 2 + "\n")
    sys.stderr.flush()
    speaking.answer(request, speaking.make_poll_result("completed"))


speaking.serve(poll)
