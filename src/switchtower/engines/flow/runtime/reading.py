"""A document and what it is run with become a flow that can be executed, or are refused in REP's numbers. Pure; what a flow is,
the room of the IR says.
"""

from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import inputs as checked_inputs
from switchtower.engines.flow.runtime import faults

_LONGEST_VERSION = 100
_MOST_REPORTED = 20


def load_flow(document: Mapping[str, Any]) -> ir.CheckedFlow:
    """Raises `faults.Invalid`."""
    version = document.get("version")
    if version != ir.VERSION:
        # rep 5.2: the version comes first. Another one may have any shape.
        shown = version[:_LONGEST_VERSION] if isinstance(version, str) else None
        details = {"expected": ir.VERSION, "received": shown}
        raise faults.FlowRejected(faults.UNSUPPORTED_IR_VERSION, "Unsupported IR version", details=details)
    try:
        return ir.parse_flow(document)
    except ir.InvalidFlow as invalid:
        raise _make_rejection("Invalid IR payload", invalid) from None


def resolve_inputs(flow: ir.CheckedFlow, given: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults. Inputs that the flow does not declare are passed on. Raises `faults.Invalid`."""
    try:
        return checked_inputs.check_inputs(flow.inputs_schema, given)
    except ir.InvalidFlow as invalid:
        raise _make_rejection("Invalid inputs", invalid) from None


def _make_rejection(what: str, invalid: ir.InvalidFlow) -> faults.FlowRejected:
    told = invalid.problems[:_MOST_REPORTED]
    problems = [{"path": problem.path, "message": problem.message, "node": problem.node} for problem in told]
    left_out = invalid.left_out + len(invalid.problems) - len(told)
    return faults.FlowRejected(
        faults.INVALID_IR,
        f"{what}: {told[0]}" + (f" (and {left_out + len(told) - 1} more)" if left_out + len(told) > 1 else ""),
        step_id=told[0].node,
        details={"problems": problems, "left_out": left_out},
    )
