"""`agent.run` and `approval`: steps that a tower does. Here is only the way to it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from switchtower.engines.flow.runtime.kinds import port


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
