"""Writes the JSON Schema of the Flow IR: `documents/flow-ir/` holds it, and a test compares.

`python -m switchtower.engines.flow.ir.publish DIR` (`make schemas`).
"""

import sys
from pathlib import Path

import msgspec

from switchtower.engines.flow.ir import flow, schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE = f"flow-ir-{flow.VERSION}.schema.json"


def document() -> schema.Schema:
    return {"$schema": DIALECT, "$id": FILE, "title": f"Flow IR {flow.VERSION}", **schema.FLOW_IR}


def encode() -> bytes:
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(encode())
