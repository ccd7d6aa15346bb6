"""`sleep`, `log` and `assert`: steps that need nothing but the run itself."""

from collections.abc import Mapping
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import events, faults, values
from switchtower.engines.flow.runtime.kinds import port

_LONGEST_SLEEP = 366 * 24 * 3600.0


class SleepKind:
    summary = "Wait"
    inputs: ClassVar[Mapping[str, str]] = {
        "seconds": "how long; or `ms`",
        "ms": "how long, in milliseconds",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "seconds": "how long it waited",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        if "ms" in given:
            seconds = values.get_number(given, "ms", most=_LONGEST_SLEEP * 1000) / 1000
        else:
            seconds = values.get_number(given, "seconds", most=_LONGEST_SLEEP)
        import asyncio

        await asyncio.sleep(seconds)
        return {"seconds": seconds}


class LogKind:
    summary = "Put a line among the run's events"
    inputs: ClassVar[Mapping[str, str]] = {
        "message": "what the line says; anything but a text is written as JSON",
        "level": "`debug`, `info` (default), `warning` or `error`",
    }
    outputs: ClassVar[Mapping[str, str]] = {}
    instant = True

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        level = values.get_text(given, "level", "info").lower()
        if level not in port.LEVELS:
            raise faults.StepFailed(f"`level` cannot be `{level[:100]}`; hint: one of {', '.join(sorted(port.LEVELS))}")
        message = given.get("message", "")
        context.log(level, message if isinstance(message, str) else _format_value(message))
        return {}


class AssertKind:
    summary = "Fail unless a value is true, or equal to another"
    inputs: ClassVar[Mapping[str, str]] = {
        "value": "what is checked",
        "equals": "what it has to equal; without it, `value` has to be true",
        "message": "the error otherwise",
    }
    outputs: ClassVar[Mapping[str, str]] = {}
    instant = True

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        if "value" not in given:
            raise faults.StepFailed("`value` is missing")
        value = given["value"]
        if "equals" in given:
            # Scalars are strings in an IR, and numbers in what a step put out.
            holds = value == given["equals"] or _format_value(value) == _format_value(given["equals"])
        else:
            holds = values.parse_truth(value)
        if not holds:
            # What it is given stays the same, but its retry policy is the flow's to choose.
            raise faults.StepFailed(values.get_text(given, "message", "the assertion does not hold"), retriable=True)
        return {}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else events.encode_json(value).decode()
