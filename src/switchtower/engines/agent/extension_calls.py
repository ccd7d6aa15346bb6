"""A message that calls an extension: found, run, and what it says put in the message's place.

Whatever an extension does ends at most its own run. One that does not stop when the run is cancelled is left behind.
"""

import asyncio
import logging

from msgspec import Struct

from switchtower.core import engine, events
from switchtower.engines.agent.extension_context import RunExtensionContext
from switchtower.engines.agent.kit import AgentServices
from switchtower.engines.agent.prompts import expansion, templates
from switchtower.engines.agent.work import RunStopped
from switchtower.extensions import loader, port
from switchtower.tools.running import patience

CANCEL_TIMEOUT = 1.0
LONGEST_PROMPT = 1024 * 1024
_PREFIX = f"{templates.EXTENSION_PREFIX}:"

log = logging.getLogger(__name__)


class ExtensionCall(Struct, frozen=True):
    offer: loader.LoadedCommand
    arguments: str
    shadowed_by: str | None = None
    """The file of a template that has the same name and goes before it."""


class ExtensionFailed(Exception):
    """The extension did not do its work. The text is one sentence for people."""


async def find_extension_call(text: str, task: engine.Task, services: AgentServices) -> ExtensionCall | None:
    """The call that a message is, if it is one of an extension."""
    called = expansion.parse_call(text)
    if called is None:
        return None
    name, arguments = called
    offer = (await asyncio.to_thread(services.extensions.load)).offers.get(name.removeprefix(_PREFIX))
    if offer is None:
        return None
    template = await asyncio.to_thread(
        services.prompts.find_template, name, task.workspace.root
    )  # none can be called `extension:…`
    return ExtensionCall(offer, arguments, shadowed_by=template.path if template is not None else None)


async def run_extension(call: ExtensionCall, task: engine.Task, run_context: engine.RunContext, services: AgentServices) -> str:
    """The prompt that the extension made. Raises `Failed`, or `Stopped` when it wants the model to do nothing."""
    name = call.offer.command.name
    context = RunExtensionContext(task, run_context, services, name)
    await run_context.emit(events.PhaseChanged("Running an extension", f"/{name}"))
    try:
        prompt = await _run_to_end(call, context)
    except port.DialogDismissed as dismissed:
        raise RunStopped(engine.RunResult(events.Outcome.CANCELLED, f"`/{name}` was given up: {dismissed}")) from None
    except port.ExtensionError as error:
        raise ExtensionFailed(f"`/{name}` cannot go on: {loader.to_one_line(error)}") from None
    except (Exception, SystemExit) as error:
        log.error("the extension %s raised", call.offer.extension, exc_info=error)
        raise ExtensionFailed(f"`/{name}` failed ({type(error).__name__}: {loader.to_one_line(error)})") from None
    if prompt is None:
        raise RunStopped(engine.RunResult(events.Outcome.SUCCESS, context.last_note or f"`/{name}` has ended"))
    if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > LONGEST_PROMPT:
        raise ExtensionFailed(f"`/{name}` failed: what it returned is not a prompt of 1 to {LONGEST_PROMPT} characters")
    return prompt.encode(errors="replace").decode()


async def _run_to_end(call: ExtensionCall, context: RunExtensionContext) -> object:
    running = asyncio.create_task(_run_guarded(call, context), name=f"extension {call.offer.extension}")
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        running.cancel()
        if not await patience.run_to_completion(_wait_for_end(running)):
            log.warning("the extension %s does not stop when it is cancelled; it is left alone", call.offer.extension)
        raise
    finally:
        context.close()
    if running.cancelled():
        raise port.ExtensionError("it gave up")
    outcome = running.result()
    if isinstance(outcome, SystemExit):
        raise outcome
    return outcome


async def _run_guarded(call: ExtensionCall, context: RunExtensionContext) -> object:
    try:
        return await call.offer.command.run(context, call.arguments)
    except SystemExit as leaving:
        return leaving  # raised in a task, it would end the daemon


async def _wait_for_end(running: "asyncio.Task[object]") -> bool:
    await asyncio.wait([running], timeout=CANCEL_TIMEOUT)
    if running.done() and not running.cancelled():
        running.exception()  # seen, so that asyncio does not report it as forgotten
    return running.done()
