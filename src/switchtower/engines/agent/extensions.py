"""Finds and runs the extension that a message calls, and puts the resulting prompt in the message's place.

An extension can end at most its own run; one that does not stop when the run is cancelled is abandoned. Reading the repository
for an extension runs none of the repository's own programs and changes nothing.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.context import AgentServices, RunStopped
from switchtower.engines.agent.prompts import expansion, templates
from switchtower.extensions import loader, port
from switchtower.extensions.ui import RunContextUi
from switchtower.tools import concurrency, outcome, tool
from switchtower.tools.git import process as plumbing
from switchtower.tools.git import view as git_view
from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.processes import cancellation

_USUAL_BASES = ("main", "master", "trunk", "develop")
_REMOTE = "origin"


async def read_repository(task: engine.Task) -> port.RepositoryInfo | None:
    """Returns None when there is no repository, or none that may be read. Raises `ExtensionError` when it takes too long."""
    try:
        async with asyncio.timeout(tool.GIT_TIME):
            return await cancellation.run_in_cancel_scope(task.run_id, partial(_read_repository, task))
    except TimeoutError:
        raise port.ExtensionError(f"git did not answer within {tool.GIT_TIME:g} s") from None
    except (outcome.ToolFailed, GitUnavailable, plumbing.GitError, OSError):
        return None


def _read_repository(task: engine.Task, cancel_scope: cancellation.CancelScope) -> port.RepositoryInfo:
    with git_view.open_view(task.workspace.root, cancel_scope) as view:
        listed = view.run_git(
            "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all"
        )
        changed = sum(bool(entry) for entry in listed.split(b"\0"))
        base, ahead = None, 0
        if view.commit is not None:
            base, ahead = _find_base(task, view, cancel_scope)
        return port.RepositoryInfo(branch=view.branch, commit=view.commit, changed=changed, base=base, ahead=ahead)


def _find_base(
    task: engine.Task, view: git_view.RepositoryView, cancel_scope: cancellation.CancelScope
) -> tuple[str | None, int]:
    """Returns the first candidate that exists, and how many commits this branch is ahead of it."""
    with tempfile.TemporaryDirectory(prefix="tower-git-") as elsewhere:
        # Only references are read: no file of the workspace and no object is read with the repository's configuration.
        theirs = plumbing.GitRunner(elsewhere, {"GIT_DIR": view.found.git_dir})
        for name, reference in _list_base_candidates(task, theirs, cancel_scope):
            if name in (view.branch, f"{_REMOTE}/{view.branch}"):
                return None, 0
            commit = _run_git(theirs, cancel_scope, "rev-parse", "--quiet", "--verify", reference)
            if commit is not None:
                return name, int(view.run_git("rev-list", "--count", f"{commit}..{view.commit}"))
    return None, 0


def _list_base_candidates(
    task: engine.Task, theirs: plumbing.GitRunner, cancel_scope: cancellation.CancelScope
) -> Iterator[tuple[str, str]]:
    """Yields a name that git accepts in a command, and the full reference."""
    named = task.workspace.default_branch
    if named:
        yield named, f"refs/heads/{named}"
        yield f"{_REMOTE}/{named}", f"refs/remotes/{_REMOTE}/{named}"
    head = _run_git(theirs, cancel_scope, "symbolic-ref", "--quiet", f"refs/remotes/{_REMOTE}/HEAD")
    if head is not None:
        yield head.removeprefix("refs/remotes/"), head
    yield from ((name, f"refs/heads/{name}") for name in _USUAL_BASES)


def _run_git(theirs: plumbing.GitRunner, cancel_scope: cancellation.CancelScope, *args: str) -> str | None:
    attempt = theirs.try_run(cancel_scope, *args)
    return os.fsdecode(attempt.printed).strip() or None if attempt.exit_code == 0 else None


LONGEST_NOTE = 500


class RunExtensionContext:
    def __init__(self, task: engine.Task, context: engine.RunContext, services: AgentServices, name: str) -> None:
        self._task = task
        self._context = context
        self._name = name
        self._is_closed = False
        self.workspace = task.workspace.root
        self.session_id = task.session_id
        self.ui: port.Ui = RunContextUi(
            self._open_dialog, services.now_ms, timeout=services.dialog_timeout, headless=task.headless
        )
        self.last_note = ""

    def close(self) -> None:
        """Closes the context when the command has ended, or should have. Tasks that it left running can no longer affect the
        run.
        """
        self._is_closed = True

    async def notify(self, text: str) -> None:
        self._check_open()
        self.last_note = str(text).encode(errors="replace").decode()[:LONGEST_NOTE]
        await self._context.emit(events.PhaseChanged(f"/{self._name}", self.last_note))

    async def repository(self) -> port.RepositoryInfo | None:
        self._check_open()
        return await read_repository(self._task)

    async def _open_dialog(self, dialog: events.Dialog) -> engine.DialogAnswer:
        self._check_open()
        return await self._context.open_dialog(dialog)

    def _check_open(self) -> None:
        if self._is_closed:
            raise port.ExtensionError(f"`/{self._name}` has ended; its context cannot be used any more")


CANCEL_TIMEOUT = 1.0
LONGEST_PROMPT = 1024 * 1024
_PREFIX = f"{templates.EXTENSION_PREFIX}:"

log = logging.getLogger(__name__)


class ExtensionCall(Struct, frozen=True):
    offer: loader.LoadedCommand
    arguments: str
    shadowed_by: str | None = None
    """The file of a template that has the same name and takes precedence."""


class ExtensionFailed(Exception):
    """The extension failed. The text is one sentence for people."""


async def find_extension_call(text: str, task: engine.Task, services: AgentServices) -> ExtensionCall | None:
    """Returns the extension call that a message makes, or None when it makes none."""
    called = expansion.parse_call(text)
    if called is None:
        return None
    name, arguments = called
    offer = (await asyncio.to_thread(services.extensions.load)).offers.get(name.removeprefix(_PREFIX))
    if offer is None:
        return None
    template = await asyncio.to_thread(
        services.prompts.find_template, name, task.workspace.root
    )  # no template can be named `extension:…`
    return ExtensionCall(offer, arguments, shadowed_by=template.path if template is not None else None)


async def run_extension(call: ExtensionCall, task: engine.Task, run_context: engine.RunContext, services: AgentServices) -> str:
    """Returns the prompt that the extension made. Raises `ExtensionFailed`, or `RunStopped` when the model has nothing to do."""
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
        if not await concurrency.run_to_completion(_wait_for_end(running)):
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
        running.exception()  # retrieved, so that asyncio does not report it as never retrieved
    return running.done()
