#!/usr/bin/env python3
"""Completes, and then does not go."""

import signal

import speaking

speaking.serve(lambda request: speaking.answer(request, speaking.make_poll_result("completed")))
while True:
    signal.pause()
