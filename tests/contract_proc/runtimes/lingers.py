#!/usr/bin/env python3
"""Completes, and then does not go."""

import signal

import speaking

speaking.serve(lambda request: speaking.answer(request, speaking.polled("completed")))
while True:
    signal.pause()
