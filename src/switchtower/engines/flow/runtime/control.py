"""The kinds that only direct a flow: `switch`, `dsl.emit` and `finish`. Every runtime of ours executes them. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import events, faults, graph, values

if TYPE_CHECKING:
    from switchtower.engines.flow.runtime.kinds import port


def make_control_kinds(of: graph.RunGraph, scope: values.ReferenceValues) -> dict[str, "port.StepKind"]:
    return {flows.SWITCH: _SwitchKind(of, scope), flows.EMIT: _EmitKind(), flows.FINISH: _FinishKind()}


class _SwitchKind:
    """Gets its parameters as they are written: what it looks at may be missing, which is what the default is for."""

    instant = True

    def __init__(self, of: graph.RunGraph, scope: values.ReferenceValues) -> None:
        self._graph = of
        self._scope = scope

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        try:
            key = graph.format_case_key(self._scope.resolve_key(given.get("key_from")))
        except values.MissingValue:
            key = None
        chosen = self._graph.resolve_switch(context.step_id, key)
        if chosen is None:
            shown = "nothing" if key is None else f"`{events.clip_text(key, 100)}`"
            raise faults.StepFailed(f"the switch has no case for {shown}; hint: give it a `default`")
        return {"key": None if key is None else events.clip_text(key), "chosen": chosen}


class _EmitKind:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        outputs = given.get("outputs")
        return outputs if len(given) == 1 and isinstance(outputs, Mapping) else given


class _FinishKind:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.StepContext") -> Mapping[str, Any]:
        return {}
