#!/usr/bin/env python3
"""Says everything twice."""

import json

import speaking

for request in speaking.read_requests():
    line = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": speaking.CAPABILITIES}).encode() + b"\n"
    speaking.write_line(line + line)
