"""Writes the JSON Schema of the Flow IR to `documents/flow-ir/`; a test compares it with the code.

`python -m switchtower.engines.flow.ir.publish DIR` (`make schemas`).
"""

import sys
from pathlib import Path

import msgspec

from switchtower.engines.flow.ir import flow, schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE = f"flow-ir-{flow.VERSION}.schema.json"


def build_schema() -> schema.Schema:
    return {"$schema": DIALECT, "$id": FILE, "title": f"Flow IR {flow.VERSION}", **schema.FLOW_IR}


def encode_schema() -> bytes:
    return msgspec.json.format(msgspec.json.encode(build_schema()), indent=2) + b"\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(encode_schema())
