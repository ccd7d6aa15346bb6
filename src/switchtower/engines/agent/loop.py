"""The agent: ask the model, run what it calls for, tell it what came of that, until it calls for nothing more.

The model, the tools and the desk are passed in, and all that is known comes from the task: a run that a restart cut short
enters the same loop, with its open calls first.
"""

import logging
from collections.abc import Callable

from switchtower.core import engine, errors, events
from switchtower.engines.agent import calls, conversation, turns
from switchtower.models import port
from switchtower.tools import registry

MAX_TURNS = 50
_LONGEST_SUMMARY = 500

OpenModel = Callable[[str, str | None], port.Model]
"""From a provider's name and a model's to a model; raises `errors.ProviderNotConfigured`."""

log = logging.getLogger(__name__)


class AgentEngine:
    def __init__(self, open_model: OpenModel, toolbox: registry.Toolbox, *, max_turns: int = MAX_TURNS) -> None:
        self._open_model = open_model
        self._toolbox = toolbox
        self._max_turns = max_turns
        self._specs = tuple(
            port.ToolSpec(name=tool.name, description=tool.description, parameters=tool.schema) for tool in toolbox.tools
        )

    async def run(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        try:
            if task.sandbox != "local":
                raise errors.SandboxUnavailable(f"`{task.sandbox}`", hint="use `local`")
            model = self._open_model(task.provider, task.model)
        except errors.CoreError as refusal:
            return await _failed(desk, refusal.code, refusal.message, retryable=refusal.retryable)
        except Exception as error:
            return await _model_failed(desk, error)
        try:
            return await self._converse(task, desk, model)
        except turns.ModelFailed as failed:
            return await _model_failed(desk, failed.__cause__)
        finally:
            await self._toolbox.end_run(task.run_id)

    async def _converse(self, task: engine.Task, desk: engine.Desk, model: port.Model) -> engine.Result:
        open_calls = task.open_calls
        if not open_calls and (said := conversation.final_text(task.messages)) is not None:
            return engine.Result(events.Outcome.SUCCESS, _summary(said))
        messages = list(conversation.mended(task.messages, {call.call_id for call in open_calls}))
        turns_left = self._max_turns - conversation.turns_taken(messages)
        while True:
            for call in open_calls:
                settled = await calls.settle(call, task, desk, self._toolbox)
                messages.append(settled.message)
                if settled.stop is not None:
                    return settled.stop
            if turns_left <= 0:
                return await _failed(desk, "TURN_LIMIT", f"the run was stopped after {self._max_turns} turns of the model")
            turns_left -= 1
            await desk.emit(events.PhaseChanged("Thinking"))
            message = await turns.take(model, tuple(messages), self._specs, desk)
            messages.append(message)
            open_calls = message.calls
            if not open_calls:
                return engine.Result(events.Outcome.SUCCESS, _summary(message.text))


async def _model_failed(desk: engine.Desk, cause: BaseException | None) -> engine.Result:
    if isinstance(cause, errors.CoreError):
        return await _failed(desk, "MODEL_ERROR", cause.message, retryable=cause.retryable)
    log.error("the model raised", exc_info=cause)
    message = f"the model failed ({type(cause).__name__})"
    # A network that is down comes up again; a bug stays.
    return await _failed(desk, "MODEL_ERROR", message, retryable=isinstance(cause, OSError))


async def _failed(desk: engine.Desk, code: str, message: str, *, retryable: bool = False) -> engine.Result:
    await desk.emit(events.ErrorRaised(code=code, message=message, retryable=retryable))
    return engine.Result(events.Outcome.FAILED, _summary(message))


def _summary(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[: _LONGEST_SUMMARY - 1]}…"
