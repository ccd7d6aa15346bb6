#!/usr/bin/env python3
"""Claims to be able to do anything, and cannot."""

import speaking

for request in speaking.read_requests():
    if request["method"] == "Runtime.Capabilities":
        speaking.answer(request, speaking.CAPABILITIES | {"step_kinds": ["log", "finish", "agent.run", "approval"]})
    else:
        speaking.refuse(request, 1002, "Unsupported step kind", step_id="one")
