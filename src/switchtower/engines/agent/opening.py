"""What a person says, as the model gets to read it: an extension or a template in its place, and the files it mentions behind
it. Pictures that no model could read end the run here, before they are a part of every later request.
"""

import asyncio

from msgspec.structs import replace

from switchtower.core import engine, events
from switchtower.engines.agent import extension_calls
from switchtower.engines.agent.kit import Kit
from switchtower.engines.agent.prompts import templates
from switchtower.models import pictures


class Unreadable(Exception):
    """A message that no model can be told. The text is one sentence for people."""


async def first(message: engine.Message, task: engine.Task, desk: engine.Desk, kit: Kit) -> engine.Message:
    """The message that began the run. Raises `Unreadable`, `extension_calls.Failed`, or `Stopped` when an extension wants
    nothing of the model."""
    _check_pictures(message.images)
    call = await extension_calls.find(message.text, task, kit)
    if call is not None and call.shadowed_by is None:
        prompt = await extension_calls.answer(call, task, desk, kit)
        await desk.emit(events.PromptExpanded(prompt, (_named(call),)))
        return replace(message, text=prompt)
    if call is not None:
        name = call.offer.command.name
        told = f"`/{name}` is `{call.shadowed_by}` here; the extension of that name is `/{_named(call)}`"
        await desk.emit(events.WarningRaised("EXTENSION_SHADOWED", told))
    expansion = await asyncio.to_thread(kit.shelf.expand, message.text, task.workspace.root)
    if expansion.sources:
        message = replace(message, text=expansion.text)
        await desk.emit(events.PromptExpanded(expansion.text, expansion.sources))
    for problem in expansion.problems:
        await desk.emit(events.WarningRaised("PROMPT_NOT_EXPANDED", problem))
    return message


async def steered(queued: events.MessageQueued, task: engine.Task, desk: engine.Desk, kit: Kit) -> engine.Message:
    """One that came while the run was at work. An extension is not started in the middle of it."""
    _check_pictures(queued.images)
    call = await extension_calls.find(queued.text, task, kit)
    if call is not None and call.shadowed_by is None:
        told = f"`/{call.offer.command.name}` was not run: an extension begins a run of its own; send it when this one has ended"
        await desk.emit(events.WarningRaised("EXTENSION_NOT_RUN", told))
    expansion = await asyncio.to_thread(kit.shelf.expand, queued.text, task.workspace.root)
    await desk.emit(events.MessageDelivered(queued.message_id, expansion.text, queued.images))
    return engine.Message(role="user", text=expansion.text, images=queued.images)


def _named(call: extension_calls.Call) -> str:
    return f"{templates.EXTENSION_PREFIX}:{call.offer.command.name}"


def _check_pictures(images: tuple[events.Image, ...]) -> None:
    for number, image in enumerate(images, start=1):
        if (problem := pictures.problem(image)) is not None:
            which = "the picture" if len(images) == 1 else f"picture {number}"
            raise Unreadable(f"{which} of this message cannot be used: {problem}")
