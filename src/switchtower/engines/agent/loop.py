"""The agent: ask the model, run what it calls for, tell it what came of that, until it calls for nothing more.

The model, the tools and the desk are passed in, and all that is known comes from the task: a run that a restart cut short
enters the same loop, with its open calls first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from switchtower.core import engine, errors, events, policy
from switchtower.engines.agent import (
    attempts,
    budget,
    calls,
    chores,
    conversation,
    extension_calls,
    guests,
    opening,
    trust_question,
    turns,
)
from switchtower.engines.agent.changes import ChangeKeeper
from switchtower.engines.agent.compaction import Compactor
from switchtower.engines.agent.kit import Kit
from switchtower.engines.agent.work import Stopped, Work
from switchtower.models import port
from switchtower.tools.files import scope
from switchtower.tools.running import patience
from switchtower.tools.sandboxes import sandbox

_LONGEST_SUMMARY = 500

log = logging.getLogger(__name__)

_OpenModel = Callable[[engine.Task], Awaitable[port.Model]]


class AgentEngine:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        """For runs that start from now on; a run keeps the one that it started with."""

    async def run(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        if task.purpose in (events.Purpose.UNDO, events.Purpose.REDO):
            return await chores.restore(task, desk, self.kit.checkpoints)
        try:
            await asyncio.to_thread(sandbox.choose, task.sandbox)
            # A run that a restart cut short settles its open calls first: an approval waits even while the model cannot be used.
            model = None if task.open_calls else await self._opened(task)
            if task.purpose is events.Purpose.COMPACT:
                return await self._compact(task, desk, model or await self._opened(task))
            return await self._work(task, desk, model)
        except Stopped as stopped:
            return stopped.result
        except port.ModelTrouble as trouble:
            return await _failed(desk, "MODEL_ERROR", trouble.message, retryable=trouble.transient)
        except turns.ModelFailed as failed:
            log.error("the model raised", exc_info=failed.__cause__)
            return await _failed(desk, "MODEL_ERROR", f"the model failed ({type(failed.__cause__).__name__})")
        except budget.Exceeded as exceeded:
            return await _failed(desk, "BUDGET_EXCEEDED", str(exceeded))
        except opening.Unreadable as problem:
            return await _failed(desk, "INVALID_IMAGE", str(problem))
        except extension_calls.Failed as failure:
            return await _failed(desk, "EXTENSION_FAILED", str(failure))
        except (errors.ProviderNotConfigured, errors.SandboxUnavailable) as refusal:
            return await _failed(desk, refusal.code, refusal.message, retryable=refusal.retryable)

    async def _opened(self, task: engine.Task) -> port.Model:
        try:
            return await self.kit.open_model(task.provider, task.model)
        except errors.CoreError:
            raise
        except Exception as error:
            raise turns.ModelFailed from error

    async def _work(self, task: engine.Task, desk: engine.Desk, model: port.Model | None) -> engine.Result:
        changes = ChangeKeeper(self.kit.checkpoints, task, desk)
        rules = policy.Policy(task.policy, (*self.kit.rules, *task.run_rules), task.rules)
        folder = await _existing_workspace(task)
        work = Work(task, desk, self.kit.toolbox, rules, changes, folder)
        try:
            await trust_question.ask(work, self.kit)
            work.toolbox = await guests.welcome(work, self.kit)
            result = await _Conversation(work, model, self._opened, self.kit).to_the_end()
        except asyncio.CancelledError:
            await patience.to_the_end(self._leave(work, changes.after_cancelled_run()))
            raise
        except BaseException:
            await patience.to_the_end(self._leave(work, changes.after_run()))
            raise
        await patience.to_the_end(self._leave(work, changes.after_run()))
        return result

    async def _leave(self, work: Work, keep_changes: Awaitable[None]) -> None:
        """What a run started ends with it, before its last checkpoint: nothing may change files behind that."""
        try:
            await work.toolbox.end_run(work.task.run_id)
        finally:
            await keep_changes

    async def _compact(self, task: engine.Task, desk: engine.Desk, model: port.Model) -> engine.Result:
        messages = list(conversation.mended(task.messages, ()))
        compactor = Compactor(model, self.kit, desk, budget.Meter.of(task))
        shorter = await compactor.compact(messages, "requested", task.context_tokens, task.instructions)
        if shorter is None:
            return engine.Result(events.Outcome.FAILED, f"The context was not compacted: {compactor.failure}")
        return engine.Result(events.Outcome.SUCCESS, f"The context was compacted to {len(shorter)} messages")


class _Conversation:
    """The loop itself, with what it keeps from turn to turn."""

    def __init__(self, work: Work, model: port.Model | None, open_model: _OpenModel, kit: Kit) -> None:
        self._work = work
        self._task = work.task
        self._desk = work.desk
        self._open_model = open_model
        self._kit = kit
        self._messages: list[engine.Message] = []
        self._system = ""
        self._specs: tuple[port.ToolSpec, ...] = ()
        self._meter = budget.Meter.of(work.task)
        self._is_cut = False
        """The last message was stopped at a limit of its length."""
        self._context_tokens = work.task.context_tokens
        self._model: port.Model
        self._compactor: Compactor
        if model is not None:
            self._use(model)

    def _use(self, model: port.Model) -> None:
        self._model = model
        self._compactor = Compactor(model, self._kit, self._desk, self._meter)

    async def to_the_end(self) -> engine.Result:
        task = self._task
        open_calls = task.open_calls
        self._messages = list(conversation.mended(task.messages, {call.call_id for call in open_calls}))
        if not open_calls and (said := conversation.final_text(task.messages)) is not None:
            return engine.Result(events.Outcome.SUCCESS, _summary(said))
        await self._prepare()
        if open_calls:
            await calls.settle_all(open_calls, self._work, self._messages)
            open_calls = ()
            self._use(await self._open_model(task))
        while True:
            await calls.settle_all(open_calls, self._work, self._messages)
            await self._deliver_steering()
            self._meter.check(self._kit.now_ms())
            await _existing_workspace(task)  # without it no call can succeed: the model is not asked for another
            if task.auto_compact and self._compactor.due(self._context_tokens) and await self._compact("threshold"):
                open_calls = ()
                continue
            message = await self._next_message()
            self._messages.append(message)
            open_calls = message.calls
            if not open_calls and not await self._deliver_steering():
                return await self._finished(message)

    async def _finished(self, message: engine.Message) -> engine.Result:
        """The model has nothing more to do. A run whose last answer was cut by its budget has failed, and so has one whose
        workspace was removed; one that took more than it may is marked."""
        if self._is_cut and self._meter.is_out_of_tokens:
            raise budget.Exceeded(f"the answer was cut by the run's budget: {self._meter.overrun() or 'its tokens are used up'}")
        await _existing_workspace(self._task)
        notes = ["cut at the model's limit for one answer"] if self._is_cut else []
        if (overrun := self._meter.overrun()) is not None:
            await self._desk.emit(events.WarningRaised("BUDGET_OVERRUN", f"The run took more than its budget: {overrun}"))
            notes.append(f"over budget: {overrun}")
        return engine.Result(events.Outcome.SUCCESS, _summary(message.text, *notes))

    async def _prepare(self) -> None:
        """What the model reads besides the conversation; and a message just sent, with what it calls and mentions brought in."""
        task, shelf = self._task, self._kit.shelf
        tools = self._work.toolbox.tools
        self._specs = tuple(port.ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
        names = [tool.name for tool in tools]
        self._system = await asyncio.to_thread(
            shelf.system,
            task.workspace.root,
            tools=names,
            policy=task.policy,
            sandbox=task.sandbox,
            headless=task.headless,
            preset=task.preset,
        )
        if self._messages and self._messages[-1].role == "user" and task.turns_taken == 0:
            self._messages[-1] = await opening.first(self._messages[-1], task, self._desk, self._kit)

    async def _deliver_steering(self) -> bool:
        """Whether there was something to tell the model that was said while it worked."""
        steered = self._desk.steered()
        for queued in steered:
            self._messages.append(await opening.steered(queued, self._task, self._desk, self._kit))
        return bool(steered)

    async def _next_message(self) -> engine.Message:
        await self._desk.emit(events.PhaseChanged("Thinking"))
        try:
            turn = await self._attempted()
        except port.ModelTrouble as trouble:
            # The one failure that a shorter conversation can mend. Once: if it does not, the run has failed.
            if not trouble.overflow or self._compactor.in_vain or not await self._compact("overflow"):
                raise
            self._compactor.in_vain = True
            turn = await self._attempted()
        self._compactor.turns_since += 1
        self._context_tokens = turn.usage.input_tokens + turn.usage.output_tokens
        self._is_cut = turn.is_cut
        if turn.is_cut:
            whose = "the run's budget" if self._meter.is_out_of_tokens else "the model's limit for one answer"
            await self._desk.emit(events.WarningRaised("ANSWER_CUT", f"The answer was cut: {whose} was reached", "length"))
        return turn.message

    async def _attempted(self) -> turns.Turn:
        return await attempts.take(
            self._model,
            self._request(),
            self._desk,
            self._kit,
            self._meter,
            retries=self._task.auto_retry,
        )

    def _request(self) -> port.Request:
        return port.Request(
            conversation=tuple(self._messages),
            tools=self._specs,
            system=self._system,
            thinking=self._task.thinking,
        )

    async def _compact(self, reason: str) -> bool:
        compacted = await self._compactor.compact(self._messages, reason, self._context_tokens)
        self._meter.check(self._kit.now_ms())  # the summary was a call, too
        if compacted is None:
            return False
        self._messages = compacted
        return True


async def _existing_workspace(task: engine.Task) -> tuple[int, int]:
    """The device and inode of the workspace's folder. Raises `SandboxUnavailable` when the folder does not exist."""
    root = task.workspace.root
    folder = await asyncio.to_thread(scope.identity_of, root)
    if folder is None:
        hint = "restore the folder and send a message, or start a session in another folder"
        raise errors.SandboxUnavailable(f"the workspace `{root}` does not exist any more", hint=hint)
    return folder


async def _failed(desk: engine.Desk, code: str, message: str, *, retryable: bool = False) -> engine.Result:
    await desk.emit(events.ErrorRaised(code=code, message=message, retryable=retryable))
    return engine.Result(events.Outcome.FAILED, _summary(message))


def _summary(text: str, *notes: str) -> str:
    text, behind = text.strip(), f" [{'; '.join(notes)}]" if notes else ""
    room = _LONGEST_SUMMARY - len(behind)
    return (text if len(text) <= room else f"{text[: room - 1]}…") + behind
