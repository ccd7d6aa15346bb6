"""`agent.run` and `approval`: steps that a tower does. Here is only the way to it."""

from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow.runtime.kinds import port


class RunAgent:
    patient = True

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        return await _tower(context).do("agent.run", given, context)


class Approval:
    patient = True

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        return await _tower(context).do("approval", given, context)


def _tower(context: port.Context) -> port.Tower:
    assert context.setting.tower is not None, "a run without a tower is refused at its start"
    return context.setting.tower
