"""The kinds `sleep`, `log` and `assert`, which need nothing but the run itself, and `agent.run` and `approval`, which are
forwarded to the daemon.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from switchtower.engines.flow.runtime import event_buffer, failures, values
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
            raise failures.StepFailed(f"`level` cannot be `{level[:100]}`; hint: one of {', '.join(sorted(port.LEVELS))}")
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
            raise failures.StepFailed("`value` is missing")
        value = given["value"]
        if "equals" in given:
            # Scalars are strings in an IR, and may be numbers in the output of a step.
            holds = value == given["equals"] or _format_value(value) == _format_value(given["equals"])
        else:
            holds = values.parse_truth(value)
        if not holds:
            # The inputs stay the same, but the flow chooses its retry policy.
            raise failures.StepFailed(values.get_text(given, "message", "the assertion does not hold"), retriable=True)
        return {}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else event_buffer.encode_json(value).decode()


class RunAgentKind:
    summary = "Let an agent do the step, in a separate session; needs a daemon"
    inputs: ClassVar[Mapping[str, str]] = {
        "prompt": "what the agent is asked to do",
        "provider": "as for `tower run`",
        "model": "as for `tower run`",
        "preset": "as for `tower run`",
        "policy": "as for `tower run`",
        "thinking": "as for `tower run`",
        "acceptance": "a command, or a list of commands, that must succeed afterwards",
        "worktree": "`true`: in a worktree of the repository",
        "max_turns": "a budget; also `max_tokens`, `max_cost`, `max_minutes`",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "session_id": "the session",
        "run_id": "its run",
        "outcome": "`success`",
        "summary": "how the run describes itself",
        "text": "the agent's last message",
        "acceptance": "a list of results",
        "tokens": "how many it took",
        "cost": "what it cost",
    }
    patient = True

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        return await _get_session_steps(context).run_step("agent.run", given, context)


class ApprovalKind:
    summary = "Wait until a user decides; needs a daemon"
    inputs: ClassVar[Mapping[str, str]] = {
        "title": "the question",
        "message": "what is at stake; also `summary`",
        "details": "anything more to show",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "approved": "`true`",
        "by": "who decided",
        "via": "from where",
        "comment": "what they said, or null",
    }
    patient = True

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        return await _get_session_steps(context).run_step("approval", given, context)


def _get_session_steps(context: port.StepContext) -> port.SessionSteps:
    assert context.setting.tower is not None, "a run without a tower is refused at its start"
    return context.setting.tower
