"""What a person says, as the model gets to read it: an extension or a template in its place, and the files it mentions behind
it. Pictures that no model could read end the run here, before they are a part of every later request.
"""

import asyncio

from msgspec.structs import replace

from switchtower.core import engine, events
from switchtower.engines.agent import extension_calls
from switchtower.engines.agent.kit import AgentServices
from switchtower.engines.agent.prompts import templates
from switchtower.models import pictures


class UnreadableMessage(Exception):
    """A message that no model can be told. The text is one sentence for people."""


async def prepare_first_message(
    message: engine.Message, task: engine.Task, context: engine.RunContext, services: AgentServices
) -> engine.Message:
    """The message that began the run. Raises `Unreadable`, `extension_calls.Failed`, or `Stopped` when an extension wants
    nothing of the model."""
    _check_pictures(message.images)
    call = await extension_calls.find_extension_call(message.text, task, services)
    if call is not None and call.shadowed_by is None:
        prompt = await extension_calls.run_extension(call, task, context, services)
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
    """One that came while the run was at work. An extension is not started in the middle of it."""
    _check_pictures(queued.images)
    call = await extension_calls.find_extension_call(queued.text, task, services)
    if call is not None and call.shadowed_by is None:
        told = f"`/{call.offer.command.name}` was not run: an extension begins a run of its own; send it when this one has ended"
        await context.emit(events.WarningRaised("EXTENSION_NOT_RUN", told))
    expansion = await asyncio.to_thread(services.prompts.expand_message, queued.text, task.workspace.root)
    await context.emit(events.MessageDelivered(queued.message_id, expansion.text, queued.images))
    return engine.Message(role="user", text=expansion.text, images=queued.images)


def _format_call_name(call: extension_calls.ExtensionCall) -> str:
    return f"{templates.EXTENSION_PREFIX}:{call.offer.command.name}"


def _check_pictures(images: tuple[events.Image, ...]) -> None:
    for number, image in enumerate(images, start=1):
        if (problem := pictures.find_image_problem(image)) is not None:
            which = "the picture" if len(images) == 1 else f"picture {number}"
            raise UnreadableMessage(f"{which} of this message cannot be used: {problem}")
