#!/usr/bin/env python3
"""Sends valid but unusual JSON, in pieces: `1.0`, spaces, `\\r\\n`, escapes, half a character."""

import json
import sys

import speaking

OUTPUTS = r'{"half": "a\ud800", "whole": "\uD83D\ude00", "slash": "\\ud800"}'
LOG = r'{"type": "log", "timestamp": "2026-01-01T00:00:00Z", "level": "\u0069nfo", "message": "cut off \udc00"}'
RESULTS = {
    "Runtime.Capabilities": json.dumps(speaking.CAPABILITIES, indent=1).replace("\n", "\t"),
    "Runtime.StartRun": '{"run_id": "r"}',
    "Runtime.Poll": f'{{"events": [{LOG}], "status": "completed", "summary": {{"completed_steps": 1.0, "outputs": {OUTPUTS}}}}}',
}

for line in sys.stdin:
    request = json.loads(line)
    answer = f' {{ "result" : {RESULTS[request["method"]]}, "id": {request["id"]}.0, "error": null, "jsonrpc" : "2.0" }} \r\n'
    for piece in (answer[:1], answer[1:-1], answer[-1:]):
        sys.stdout.write(piece)
        sys.stdout.flush()
