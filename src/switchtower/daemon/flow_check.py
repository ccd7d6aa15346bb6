"""Whether a flow that somebody wants to start can be run at all, asked before its session begins. Opens no files."""

from msgspec.structs import replace

from switchtower.core import errors, events

_MAX_PROBLEMS = 20


def complete_flow(flow: events.Flow) -> events.Flow:
    """With its inputs' defaults. Raises `InvalidCommand` with every problem."""
    from switchtower.engines.flow import ir
    from switchtower.engines.flow.ir import inputs
    from switchtower.engines.flow.runtime.kinds import catalogue

    try:
        parsed = ir.parse_flow(flow.document)
        given = inputs.check_inputs(parsed.inputs_schema, flow.inputs)
    except ir.InvalidFlow as invalid:
        told = str(invalid).splitlines()
        raise errors.InvalidCommand("\n".join(told[:_MAX_PROBLEMS]), hint="check it with `tower flow validate`") from None
    lasting = any(kind in catalogue.SESSION_KINDS for kind in parsed.list_step_kinds())
    return replace(flow, name=parsed.name, inputs=given, lasting=lasting)
