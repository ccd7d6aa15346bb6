"""Runs a flow for the command line: progress on stderr, the result on stdout, and REP's exit codes. Ctrl-C cancels the run.

A runtime's texts are data: they must not control the terminal, and events of unknown kinds are skipped (rep 5.3). It handles the
process's signals, so it is for a command line and not for a daemon.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.cli import console, output
from switchtower.engines.flow.ir import parser as inputs_check
from switchtower.engines.flow.runtime.kinds import catalog
from switchtower.flows import loader, orchestrator
from switchtower.protocols.rep import client, errors

if TYPE_CHECKING:
    from switchtower import config


class FlowRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    manifest: Path | None = None
    inputs: str | None = None
    executor: str | None = None
    timeout_s: float | None = None
    allow_shell: bool = False
    as_json: bool = False
    local: bool = True
    """True to use our own runtime without a daemon, even if one is running."""
    detach: bool = False


def run_flow(options: FlowRunOptions) -> int:
    try:
        ended = _produce_outcome(options)
    except _FlowDetached as detached:
        output.write_line(detached.text)
        return errors.RepExitCode.OK
    if ended is None:
        console.print_error("the run was interrupted, and nobody saw how it ended")
        return errors.RepExitCode.RUNTIME_INTERNAL
    if options.as_json:
        output.write_line(msgspec.json.encode(ended.make_report()))
    _print_outcome(ended, with_outputs=not options.as_json)
    return int(ended.exit_code)


def print_problems(error: loader.FlowRefused) -> int:
    """Prints every problem on a separate line."""
    for problem in error.problems:
        console.print_error(problem)
    return error.exit_code


def _produce_outcome(options: FlowRunOptions) -> client.FlowRunOutcome | None:
    """Returns None when the user did not wait for the cancellation: exit code 2 would mean that nothing was started."""
    folder = Path.cwd()
    name = ""
    try:
        # rep 11: an invalid flow is reported before any process is started and before its runtime is checked.
        wanted = loader.find_flow(options.flow, manifest=options.manifest, start=folder)
        name = wanted.flow.name
        inputs = loader.load_inputs(wanted, options.inputs)
        for sentence in inputs_check.describe_undeclared(wanted.flow.inputs_schema, inputs):
            console.print_line(f"warning: {sentence}", "yellow")
        chosen = orchestrator.choose_runtime(folder, options.executor)
    except loader.FlowRefused as refused:
        refused.flow = refused.flow or name
        return orchestrator.make_refused_outcome(refused)
    try:
        if not options.local and (settings := _find_daemon(wanted)) is not None:
            return asyncio.run(_run_in_session(settings, wanted, inputs, chosen, folder, options))
        if options.detach:
            return orchestrator.make_refused_outcome(
                loader.FlowRefused(["no daemon runs that could go on with it; hint: `tower serve`"], flow=name)
            )
        return asyncio.run(_run_locally(wanted, inputs, chosen, folder, options))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return None


class _FlowDetached(Exception):
    """The command ends without waiting for the flow's end."""

    def __init__(self, text: bytes | str) -> None:
        super().__init__()
        self.text = text


def _find_daemon(wanted: loader.RequestedFlow) -> "config.Settings | None":
    """Returns the settings if the flow becomes a session: of the running daemon, or of one that is started because the flow waits
    for people or agents."""
    from switchtower import config

    settings = config.load()
    needs_one = any(kind in catalog.SESSION_KINDS for kind in wanted.flow.list_step_kinds())
    return settings if needs_one or settings.socket.exists() else None


async def _run_in_session(
    settings: "config.Settings",
    wanted: loader.RequestedFlow,
    inputs: dict[str, Any],
    chosen: orchestrator.ChosenRuntime,
    folder: Path,
    options: FlowRunOptions,
) -> client.FlowRunOutcome:
    from switchtower.cli.flows import session_run
    from switchtower.client import errors as client_errors

    order = session_run.FlowSessionRequest(
        document=wanted.document,
        inputs=inputs,
        runtime=chosen.engine,
        argv=[] if chosen.argv == orchestrator.make_own_argv() else chosen.argv,
        folder=folder,
        allow_shell=options.allow_shell,
        log_json=options.as_json,
        timeout_s=options.timeout_s,
        needs_daemon=any(kind in catalog.SESSION_KINDS for kind in wanted.flow.list_step_kinds()),
    )
    try:
        attended = await session_run.FlowSession.start(settings, order)
    except client_errors.DaemonUnreachable as nobody:
        if order.needs_daemon:
            return session_run.make_failed_outcome(wanted.flow.name, str(nobody))
        return await _run_locally(wanted, inputs, chosen, folder, options)  # the socket is left over from a stopped daemon
    except client_errors.ClientError as refused:
        return session_run.make_failed_outcome(wanted.flow.name, str(refused))
    if options.detach:
        attended.close()
        told = msgspec.json.encode({"sessionId": attended.session_id}) if options.as_json else attended.session_id
        raise _FlowDetached(told)
    return await attended.watch_to_end()


async def _run_locally(
    wanted: loader.RequestedFlow,
    inputs: dict[str, Any],
    chosen: orchestrator.ChosenRuntime,
    folder: Path,
    options: FlowRunOptions,
) -> client.FlowRunOutcome:
    with cancel_on_interrupt() as cancel:
        told = asyncio.create_task(_announce_cancel(cancel))
        try:
            return await orchestrator.run_flow(
                wanted,
                inputs,
                chosen,
                folder=folder,
                cancel=cancel,
                on_event=print_flow_event,
                timeout_s=options.timeout_s,
                allow_shell=options.allow_shell,
                log_json=options.as_json,
            )
        finally:
            told.cancel()


async def _announce_cancel(cancel: asyncio.Event) -> None:
    await cancel.wait()
    console.print_line("cancelling the run", "yellow")


def _print_outcome(ended: client.FlowRunOutcome, *, with_outputs: bool) -> None:
    if (error := ended.error) is not None:
        data = error.get("data") or {}
        details = data.get("details")
        if ended.before_handshake:
            for problem in error["message"].splitlines():
                console.print_error(problem)
            return
        step = data.get("step_id")
        where = f"step `{shorten_line(step)}`: " if isinstance(step, str) and step else ""
        console.print_error(f"{ended.flow or 'the flow'} failed: {where}{shorten_line(error['message'])} ({error['code']})")
        stderr = details.get("stderr") if isinstance(details, dict) else None
        if isinstance(stderr, str) and stderr.strip():
            console.print_line("the runtime's last words:", "dim")
            console.print_line(stderr.rstrip(), "dim")
        return
    steps = ended.summary.get("completed_steps")
    counted = f", {steps} step{'' if steps == 1 else 's'}" if isinstance(steps, int) else ""
    console.print_line(f"{ended.flow}: {ended.status}{counted}", "green")
    outputs = ended.summary.get("outputs")
    if with_outputs and outputs:
        output.write_answer(msgspec.json.format(msgspec.json.encode(outputs), indent=2).decode() + "\n")


_MAX_LINE_CHARS = 2000
_EVENT_COLOURS = {"succeeded": "green", "failed": "red", "error": "red", "warning": "yellow", "warn": "yellow"}


def print_flow_event(event: dict[str, Any]) -> None:
    match event:
        case {"type": "step", "step_id": str(step), "state": str(state)}:
            console.print_line(
                f"{shorten_line(step)}: {shorten_line(state)}{_format_details(event)}", _EVENT_COLOURS.get(state, "dim")
            )
        case {"type": "log", "message": str(message)}:
            level, about = event.get("level"), event.get("step_id")
            where = f"{shorten_line(about)}: " if isinstance(about, str) and about else ""
            mark = f"[{shorten_line(level)}] " if isinstance(level, str) and level else ""
            console.print_line(
                f"{where}{mark}{shorten_line(message)}", _EVENT_COLOURS.get(level) if isinstance(level, str) else None
            )


def shorten_line(text: str) -> str:
    shown = " ".join(text[: _MAX_LINE_CHARS + 1].splitlines())
    return shown if len(shown) <= _MAX_LINE_CHARS else shown[:_MAX_LINE_CHARS] + "…"


def _format_details(event: dict[str, Any]) -> str:
    attempt, duration, error = event.get("attempt"), event.get("duration_ms"), event.get("error")
    facts = []
    # rep 6: the first attempt is 0.
    if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0:
        facts.append(f"try {attempt + 1}")
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        facts.append(f"{duration:.0f} ms")
    told = f" ({', '.join(facts)})" if facts else ""
    message = error.get("message") if isinstance(error, dict) else None
    return f"{told}: {shorten_line(message)}" if isinstance(message, str) else told


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def cancel_on_interrupt() -> Iterator[asyncio.Event]:
    """Yields an event that is set by the first Ctrl-C. A second one cancels the current task, for a user who does not want to
    wait. Signal handlers are restored only afterwards: a signal that ended the process at once would leave a runtime behind."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancel = asyncio.Event()
    ordinary = {number: signal.getsignal(number) for number in _SIGNALS}

    def interrupt() -> None:
        if cancel.is_set():
            task.cancel()
        cancel.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield cancel
    finally:
        for number, handler in ordinary.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
