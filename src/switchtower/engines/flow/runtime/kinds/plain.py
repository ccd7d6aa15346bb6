"""`sleep`, `log` and `assert`: steps that need nothing but the run itself."""

from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow.runtime import events, faults, values
from switchtower.engines.flow.runtime.kinds import port

_LONGEST_SLEEP = 366 * 24 * 3600.0


class Sleep:
    """`seconds` or `ms`."""

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        if "ms" in given:
            seconds = values.number(given, "ms", most=_LONGEST_SLEEP * 1000) / 1000
        else:
            seconds = values.number(given, "seconds", most=_LONGEST_SLEEP)
        import asyncio

        await asyncio.sleep(seconds)
        return {"seconds": seconds}


class Log:
    """`message`, and a `level` that is `info` unless given."""

    instant = True

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        level = values.text(given, "level", "info").lower()
        if level not in port.LEVELS:
            raise faults.StepFailed(f"`level` cannot be `{level[:100]}`; hint: one of {', '.join(sorted(port.LEVELS))}")
        message = given.get("message", "")
        context.log(level, message if isinstance(message, str) else _spelled(message))
        return {}


class Assert:
    """`value` has to be true, or with `equals` the same as that. `message` says what is wrong otherwise."""

    instant = True

    async def run(self, given: Mapping[str, Any], context: port.Context) -> Mapping[str, Any]:
        if "value" not in given:
            raise faults.StepFailed("`value` is missing")
        value = given["value"]
        if "equals" in given:
            # Scalars are strings in an IR, and numbers in what a step put out.
            holds = value == given["equals"] or _spelled(value) == _spelled(given["equals"])
        else:
            holds = values.truth(value)
        if not holds:
            raise faults.StepFailed(values.text(given, "message", "the assertion does not hold"))
        return {}


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else events.encoded(value).decode()
