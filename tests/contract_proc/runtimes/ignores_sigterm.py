#!/usr/bin/env python3
"""Runs for ever, takes no signal, and does not mind that its input ends."""

import signal

import speaking

signal.signal(signal.SIGTERM, signal.SIG_IGN)
speaking.serve(lambda request: speaking.answer(request, speaking.make_poll_result("running")))
while True:
    signal.pause()
