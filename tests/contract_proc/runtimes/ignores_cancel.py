#!/usr/bin/env python3
"""Runs for ever, whatever it is told."""

import speaking

speaking.serve(
    lambda request: speaking.answer(request, speaking.make_poll_result("running")),
    lambda request: speaking.answer(request, {"ok": True}),
)
