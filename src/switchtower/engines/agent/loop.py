"""The agent engine: it asks the model, runs the tools that the model calls and sends it their results, until the model calls no
more tools.

The model, the tools and the run context are passed in, and all state comes from the task: a run that a restart interrupted enters
the same loop and settles its open calls first.

Messages of the user are prepared here: an extension or a template replaces the text, and mentioned files follow it. A picture
that no model can read ends the run here, before it becomes a part of every later request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from switchtower.core import errors, events, policy
from switchtower.core.ports import engine
from switchtower.engines.agent import approvals, extensions, retries, tool_calls, turns, undo
from switchtower.engines.agent.compaction import Compactor
from switchtower.engines.agent.context import AgentRun, AgentServices, RunStopped
from switchtower.engines.agent.prompts import templates
from switchtower.engines.agent.undo import ChangeTracker
from switchtower.models import port
from switchtower.tools import concurrency
from switchtower.tools.files import scope
from switchtower.tools.sandboxes import sandbox

_LONGEST_SUMMARY = 500

log = logging.getLogger(__name__)

_OpenModel = Callable[[engine.Task], Awaitable[port.Model]]


class AgentEngine:
    def __init__(self, services: AgentServices) -> None:
        self.services = services
        """The services of runs that start from now on; a run keeps the services that it started with."""

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        if task.purpose in (events.Purpose.UNDO, events.Purpose.REDO):
            return await undo.restore_workspace(task, context, self.services.checkpoints)
        try:
            await asyncio.to_thread(sandbox.choose_sandbox, task.sandbox)
            # A run that a restart interrupted settles its open calls first: an approval can wait even while the model is
            # unavailable.
            model = None if task.open_calls else await self._open_model(task)
            if task.purpose is events.Purpose.COMPACT:
                return await self._compact(task, context, model or await self._open_model(task))
            return await self._run_agent(task, context, model)
        except RunStopped as stopped:
            return stopped.result
        except port.ModelError as trouble:
            return await _report_failure(context, "MODEL_ERROR", trouble.message, retryable=trouble.transient)
        except turns.ModelFailed as failed:
            log.error("the model raised", exc_info=failed.__cause__)
            return await _report_failure(context, "MODEL_ERROR", f"the model failed ({type(failed.__cause__).__name__})")
        except retries.BudgetExceeded as exceeded:
            return await _report_failure(context, "BUDGET_EXCEEDED", str(exceeded))
        except UnreadableMessage as problem:
            return await _report_failure(context, "INVALID_IMAGE", str(problem))
        except extensions.ExtensionFailed as failure:
            return await _report_failure(context, "EXTENSION_FAILED", str(failure))
        except (errors.ProviderNotConfigured, errors.SandboxUnavailable) as refusal:
            return await _report_failure(context, refusal.code, refusal.message, retryable=refusal.retryable)

    async def _open_model(self, task: engine.Task) -> port.Model:
        try:
            return await self.services.open_model(task.provider, task.model)
        except errors.CoreError:
            raise
        except Exception as error:
            raise turns.ModelFailed from error

    async def _run_agent(self, task: engine.Task, context: engine.RunContext, model: port.Model | None) -> engine.RunResult:
        changes = ChangeTracker(self.services.checkpoints, task, context)
        rules = policy.Policy(task.policy, (*self.services.rules, *task.run_rules), task.rules)
        folder = await _check_workspace(task)
        work = AgentRun(task, context, self.services.toolbox, rules, changes, folder)
        try:
            await approvals.request_trust(work, self.services)
            work.toolbox = await tool_calls.assemble_toolbox(work, self.services)
            result = await _AgentLoop(work, model, self._open_model, self.services).run()
        except asyncio.CancelledError:
            await concurrency.run_to_completion(self._clean_up(work, changes.record_after_cancel()))
            raise
        except BaseException:
            await concurrency.run_to_completion(self._clean_up(work, changes.record_after()))
            raise
        await concurrency.run_to_completion(self._clean_up(work, changes.record_after()))
        return result

    async def _clean_up(self, agent_run: AgentRun, keep_changes: Awaitable[None]) -> None:
        """Ends what the run started, before its last checkpoint is taken: nothing may change files after that."""
        try:
            await agent_run.toolbox.end_run(agent_run.task.run_id)
        finally:
            await keep_changes

    async def _compact(self, task: engine.Task, context: engine.RunContext, model: port.Model) -> engine.RunResult:
        messages = list(close_open_calls(task.messages, ()))
        compactor = Compactor(model, self.services, context, retries.BudgetMeter.from_task(task))
        shorter = await compactor.compact(messages, "requested", task.context_tokens, task.instructions)
        if shorter is None:
            return engine.RunResult(events.Outcome.FAILED, f"The context was not compacted: {compactor.failure}")
        return engine.RunResult(events.Outcome.SUCCESS, f"The context was compacted to {len(shorter)} messages")


class _AgentLoop:
    """The loop of one run, with the state that it keeps from turn to turn."""

    def __init__(self, agent_run: AgentRun, model: port.Model | None, open_model: _OpenModel, services: AgentServices) -> None:
        self._agent_run = agent_run
        self._task = agent_run.task
        self._context = agent_run.context
        self._open_model = open_model
        self._services = services
        self._messages: list[engine.Message] = []
        self._system = ""
        self._specs: tuple[port.ToolSpec, ...] = ()
        self._meter = retries.BudgetMeter.from_task(agent_run.task)
        self._is_cut = False
        """The provider truncated the last message at a length limit."""
        self._context_tokens = agent_run.task.context_tokens
        self._model: port.Model
        self._compactor: Compactor
        if model is not None:
            self._use(model)

    def _use(self, model: port.Model) -> None:
        self._model = model
        self._compactor = Compactor(model, self._services, self._context, self._meter)

    async def run(self) -> engine.RunResult:
        task = self._task
        open_calls = task.open_calls
        self._messages = list(close_open_calls(task.messages, {call.call_id for call in open_calls}))
        if not open_calls and (said := find_final_text(task.messages)) is not None:
            return engine.RunResult(events.Outcome.SUCCESS, _shorten_summary(said))
        await self._prepare()
        if open_calls:
            await tool_calls.execute_calls(open_calls, self._agent_run, self._messages)
            open_calls = ()
            self._use(await self._open_model(task))
        while True:
            await tool_calls.execute_calls(open_calls, self._agent_run, self._messages)
            await self._take_steering()
            self._meter.raise_if_exceeded(self._services.now_ms())
            await _check_workspace(task)  # without the workspace no call can succeed, so the model is not asked for another one
            if task.auto_compact and self._compactor.is_due(self._context_tokens) and await self._compact("threshold"):
                open_calls = ()
                continue
            message = await self._request_message()
            self._messages.append(message)
            open_calls = message.calls
            if not open_calls and not await self._take_steering():
                return await self._make_result(message)

    async def _make_result(self, message: engine.Message) -> engine.RunResult:
        """Makes the result once the model calls no more tools. A run has failed when its last answer was truncated by its budget
        or when its workspace was removed; a run that exceeded its budget is marked.
        """
        if self._is_cut and self._meter.is_out_of_tokens:
            raise retries.BudgetExceeded(
                f"the answer was cut by the run's budget: {self._meter.describe_overrun() or 'its tokens are used up'}"
            )
        await _check_workspace(self._task)
        notes = ["cut at the model's limit for one answer"] if self._is_cut else []
        if (overrun := self._meter.describe_overrun()) is not None:
            await self._context.emit(events.WarningRaised("BUDGET_OVERRUN", f"The run took more than its budget: {overrun}"))
            notes.append(f"over budget: {overrun}")
        return engine.RunResult(events.Outcome.SUCCESS, _shorten_summary(message.text, *notes))

    async def _prepare(self) -> None:
        """Builds the system prompt, and prepares a message that was just sent: its extension or template, and the files it
        mentions.
        """
        task, shelf = self._task, self._services.prompts
        tools = self._agent_run.toolbox.tools
        self._specs = tuple(port.ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
        names = [tool.name for tool in tools]
        self._system = await asyncio.to_thread(
            shelf.build_system_prompt,
            task.workspace.root,
            tools=names,
            policy=task.policy,
            sandbox=task.sandbox,
            headless=task.headless,
            preset=task.preset,
        )
        if self._messages and self._messages[-1].role == "user" and task.turns_taken == 0:
            self._messages[-1] = await prepare_first_message(self._messages[-1], task, self._context, self._services)

    async def _take_steering(self) -> bool:
        """Adds the messages that the user sent while the model worked; returns whether there were any."""
        steered = self._context.take_steering_messages()
        for queued in steered:
            self._messages.append(await prepare_steering_message(queued, self._task, self._context, self._services))
        return bool(steered)

    async def _request_message(self) -> engine.Message:
        await self._context.emit(events.PhaseChanged("Thinking"))
        try:
            turn = await self._take_turn()
        except port.ModelError as trouble:
            # This is the only failure that a shorter conversation can fix. It is tried once; if that does not help, the run
            # fails.
            if not trouble.overflow or self._compactor.was_ineffective or not await self._compact("overflow"):
                raise
            self._compactor.was_ineffective = True
            turn = await self._take_turn()
        self._compactor.turns_since += 1
        self._context_tokens = turn.usage.input_tokens + turn.usage.output_tokens
        self._is_cut = turn.is_cut
        if turn.is_cut:
            whose = "the run's budget" if self._meter.is_out_of_tokens else "the model's limit for one answer"
            await self._context.emit(events.WarningRaised("ANSWER_CUT", f"The answer was cut: {whose} was reached", "length"))
        return turn.message

    async def _take_turn(self) -> turns.ModelTurn:
        return await retries.take_turn_with_retries(
            self._model,
            self._make_request(),
            self._context,
            self._services,
            self._meter,
            retries=self._task.auto_retry,
        )

    def _make_request(self) -> port.CompletionRequest:
        return port.CompletionRequest(
            conversation=tuple(self._messages),
            tools=self._specs,
            system=self._system,
            thinking=self._task.thinking,
        )

    async def _compact(self, reason: str) -> bool:
        compacted = await self._compactor.compact(self._messages, reason, self._context_tokens)
        self._meter.raise_if_exceeded(self._services.now_ms())  # the summary was a model call, too
        if compacted is None:
            return False
        self._messages = compacted
        return True


async def _check_workspace(task: engine.Task) -> tuple[int, int]:
    """Returns the device and inode of the workspace's folder. Raises `SandboxUnavailable` when the folder does not exist."""
    root = task.workspace.root
    folder = await asyncio.to_thread(scope.find_identity, root)
    if folder is None:
        hint = "restore the folder and send a message, or start a session in another folder"
        raise errors.SandboxUnavailable(f"the workspace `{root}` does not exist any more", hint=hint)
    return folder


async def _report_failure(context: engine.RunContext, code: str, message: str, *, retryable: bool = False) -> engine.RunResult:
    await context.emit(events.ErrorRaised(code=code, message=message, retryable=retryable))
    return engine.RunResult(events.Outcome.FAILED, _shorten_summary(message))


def _shorten_summary(text: str, *notes: str) -> str:
    text, behind = text.strip(), f" [{'; '.join(notes)}]" if notes else ""
    room = _LONGEST_SUMMARY - len(behind)
    return (text if len(text) <= room else f"{text[: room - 1]}…") + behind


class UnreadableMessage(Exception):
    """A message cannot be sent to any model. The text is one sentence for people."""


async def prepare_first_message(
    message: engine.Message, task: engine.Task, context: engine.RunContext, services: AgentServices
) -> engine.Message:
    """Prepares the message that started the run. Raises `UnreadableMessage`, `extensions.ExtensionFailed`, or `RunStopped` when
    an extension leaves nothing for the model to do.
    """
    _check_pictures(message.images)
    call = await extensions.find_extension_call(message.text, task, services)
    if call is not None and call.shadowed_by is None:
        prompt = await extensions.run_extension(call, task, context, services)
        await context.emit(events.PromptExpanded(prompt, (_format_call_name(call),)))
        return replace(message, text=prompt)
    if call is not None:
        name = call.offer.command.name
        told = f"`/{name}` is `{call.shadowed_by}` here; the extension of that name is `/{_format_call_name(call)}`"
        await context.emit(events.WarningRaised("EXTENSION_SHADOWED", told))
    expansion = await asyncio.to_thread(services.prompts.expand_message, message.text, task.workspace.root)
    if expansion.sources:
        message = replace(message, text=expansion.text)
        await context.emit(events.PromptExpanded(expansion.text, expansion.sources))
    for problem in expansion.problems:
        await context.emit(events.WarningRaised("PROMPT_NOT_EXPANDED", problem))
    return message


async def prepare_steering_message(
    queued: events.MessageQueued, task: engine.Task, context: engine.RunContext, services: AgentServices
) -> engine.Message:
    """Prepares a message that arrived during the run. It cannot start an extension."""
    _check_pictures(queued.images)
    call = await extensions.find_extension_call(queued.text, task, services)
    if call is not None and call.shadowed_by is None:
        told = f"`/{call.offer.command.name}` was not run: an extension begins a run of its own; send it when this one has ended"
        await context.emit(events.WarningRaised("EXTENSION_NOT_RUN", told))
    expansion = await asyncio.to_thread(services.prompts.expand_message, queued.text, task.workspace.root)
    await context.emit(events.MessageDelivered(queued.message_id, expansion.text, queued.images))
    return engine.Message(role="user", text=expansion.text, images=queued.images)


def _format_call_name(call: extensions.ExtensionCall) -> str:
    return f"{templates.EXTENSION_PREFIX}:{call.offer.command.name}"


def _check_pictures(images: tuple[events.Image, ...]) -> None:
    for number, image in enumerate(images, start=1):
        if (problem := port.find_image_problem(image)) is not None:
            which = "the picture" if len(images) == 1 else f"picture {number}"
            raise UnreadableMessage(f"{which} of this message cannot be used: {problem}")


def close_open_calls(messages: Sequence[engine.Message], still_open: Collection[str]) -> Iterator[engine.Message]:
    """Yields the conversation with a result for every call. A run that was cancelled or denied leaves some calls without a
    result, and models reject that. Calls that are still to be settled are left alone.
    """
    answered = engine.answered_call_ids(messages)
    for message in messages:
        yield message
        for call in message.calls:
            if call.call_id not in answered and call.call_id not in still_open:
                yield engine.Message(
                    role="tool", text="not run: the run had ended", call_id=call.call_id, tool=call.tool, is_error=True
                )


def find_final_text(messages: Sequence[engine.Message]) -> str | None:
    """Returns the final message of a run that had nothing left to do when a restart interrupted it."""
    if messages and messages[-1].role == "assistant" and not messages[-1].calls:
        return messages[-1].text
    return None
