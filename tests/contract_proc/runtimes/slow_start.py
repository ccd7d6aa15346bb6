#!/usr/bin/env python3
"""Takes its time before the first answer, and behaves then."""

import time

import speaking

time.sleep(0.4)
speaking.serve(lambda request: speaking.answer(request, speaking.make_poll_result("completed")))
