"""`opcua.read` and `opcua.write` on a plant that exists only in this process. No connection is opened."""

from collections.abc import Mapping
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import failures, values
from switchtower.engines.flow.runtime.kinds import port

UNTOUCHED = 80.0
"""What a node reads as that was never written."""
MOST_NODES = 1000

_WRITTEN: dict[tuple[str, str], Any] = {}
"""By endpoint and node id. A runtime process executes one run, so no other run sees it."""


class Read:
    summary = "Read values of a simulated OPC UA server"
    inputs: ClassVar[Mapping[str, str]] = {
        "endpoint": "the server, as opc.tcp://…",
        "node_ids": "a list of node ids, at most 1000",
    }
    outputs: ClassVar[Mapping[str, str]] = {"endpoint": "as given", "values": "node id to value", "simulated": "true"}

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        endpoint, node_ids = _endpoint(given), given.get("node_ids")
        if not isinstance(node_ids, list) or len(node_ids) > MOST_NODES or not all(isinstance(node, str) for node in node_ids):
            raise failures.StepFailed(f"`node_ids` is not a list of at most {MOST_NODES} texts")
        return {
            "endpoint": endpoint,
            "values": {node: _WRITTEN.get((endpoint, node), UNTOUCHED) for node in node_ids},
            "simulated": True,
        }


class Write:
    summary = "Write a value to a simulated OPC UA server"
    inputs: ClassVar[Mapping[str, str]] = {
        "endpoint": "the server, as opc.tcp://…",
        "node_id": "the node",
        "value": "what is written",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "endpoint": "as given",
        "node_id": "as given",
        "value": "as given",
        "status": "ok",
        "simulated": "true",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        endpoint, node_id = _endpoint(given), values.get_text(given, "node_id")
        if "value" not in given:
            raise failures.StepFailed("`value` is missing")
        _WRITTEN[endpoint, node_id] = given["value"]
        context.log("info", f"simulated: {node_id} is {given['value']}")
        return {"endpoint": endpoint, "node_id": node_id, "value": given["value"], "status": "ok", "simulated": True}


def _endpoint(given: Mapping[str, Any]) -> str:
    endpoint = values.get_text(given, "endpoint")
    if not endpoint.startswith("opc.tcp://"):
        raise failures.StepFailed("`endpoint` is not an address that begins with `opc.tcp://`")
    return endpoint
