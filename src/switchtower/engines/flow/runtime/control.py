"""The kinds that only direct a flow: `switch`, `dsl.emit` and `finish`. Every runtime of ours executes them. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.runtime import events, faults, graph, values

if TYPE_CHECKING:
    from switchtower.engines.flow.runtime.kinds import port


def kinds_for(of: graph.Graph, scope: values.Scope) -> dict[str, "port.Kind"]:
    return {flows.SWITCH: _Switch(of, scope), flows.EMIT: _Emit(), flows.FINISH: _Finish()}


class _Switch:
    """Gets its parameters as they are written: what it looks at may be missing, which is what the default is for."""

    instant = True

    def __init__(self, of: graph.Graph, scope: values.Scope) -> None:
        self._graph = of
        self._scope = scope

    async def run(self, given: Mapping[str, Any], context: "port.Context") -> Mapping[str, Any]:
        try:
            key = graph.key_of(self._scope.key(given.get("key_from")))
        except values.Missing:
            key = None
        chosen = self._graph.choice(context.step_id, key)
        if chosen is None:
            shown = "nothing" if key is None else f"`{events.clipped(key, 100)}`"
            raise faults.StepFailed(f"the switch has no case for {shown}; hint: give it a `default`")
        return {"key": None if key is None else events.clipped(key), "chosen": chosen}


class _Emit:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.Context") -> Mapping[str, Any]:
        outputs = given.get("outputs")
        return outputs if len(given) == 1 and isinstance(outputs, Mapping) else given


class _Finish:
    instant = True

    async def run(self, given: Mapping[str, Any], context: "port.Context") -> Mapping[str, Any]:
        return {}
