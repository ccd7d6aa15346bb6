#!/usr/bin/env python3
"""Is gone in the moment that it has said its last word."""

import os

import speaking


def poll(request: speaking.Request) -> None:
    speaking.answer(request, speaking.make_poll_result("completed", [speaking.log("x" * 1000)] * 1000))
    os._exit(0)


speaking.serve(poll)
