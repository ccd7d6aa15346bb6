#!/usr/bin/env python3
"""Claims that it could not read the request, and so does not know its id."""

import speaking

for _ in speaking.read_requests():
    speaking.write_line({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}})
