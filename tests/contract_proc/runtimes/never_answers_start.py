#!/usr/bin/env python3
"""Is silent once it is to start."""

import speaking

for request in speaking.read_requests():
    if request["method"] == "Runtime.Capabilities":
        speaking.answer(request, speaking.CAPABILITIES)
