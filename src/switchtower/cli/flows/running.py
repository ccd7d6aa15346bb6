"""Runs a flow for the command line: progress on stderr, the result on stdout, the exit code as REP has it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.cli import console, output
from switchtower.cli.flows import progress
from switchtower.daemon import flow_runs, flows
from switchtower.engines.flow.ir import inputs as inputs_check
from switchtower.engines.flow.runtime.kinds import catalogue
from switchtower.protocols.rep import errors, interrupts, outcome

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
    """On a runtime of our own, whether or not there is a daemon."""
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


def print_problems(error: flows.FlowRefused) -> int:
    """Every problem on a line of its own."""
    for problem in error.problems:
        console.print_error(problem)
    return error.exit_code


def _produce_outcome(options: FlowRunOptions) -> outcome.FlowRunOutcome | None:
    """None for who did not wait for the cancelling: exit code 2, that of an interruption, would say that nothing was started."""
    folder = Path.cwd()
    name = ""
    try:
        # rep 11: a flow that is not valid is found out before any process is started, and before its runtime is looked at.
        wanted = flows.find_flow(options.flow, manifest=options.manifest, start=folder)
        name = wanted.flow.name
        inputs = flows.load_inputs(wanted, options.inputs)
        for sentence in inputs_check.describe_undeclared(wanted.flow.inputs_schema, inputs):
            console.print_line(f"warning: {sentence}", "yellow")
        chosen = flow_runs.choose_runtime(folder, options.executor)
    except flows.FlowRefused as refused:
        refused.flow = refused.flow or name
        return flow_runs.make_refused_outcome(refused)
    try:
        if not options.local and (settings := _find_daemon(wanted)) is not None:
            return asyncio.run(_run_in_session(settings, wanted, inputs, chosen, folder, options))
        if options.detach:
            return flow_runs.make_refused_outcome(
                flows.FlowRefused(["no daemon runs that could go on with it; hint: `tower serve`"], flow=name)
            )
        return asyncio.run(_run_locally(wanted, inputs, chosen, folder, options))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return None


class _FlowDetached(Exception):
    """Nobody waits for the end."""

    def __init__(self, text: bytes | str) -> None:
        super().__init__()
        self.text = text


def _find_daemon(wanted: flows.RequestedFlow) -> "config.Settings | None":
    """Where the flow becomes a session: at the daemon that runs, or, for one that has to wait for people or agents, at one
    that is started for it."""
    from switchtower import config

    settings = config.load()
    needs_one = any(kind in catalogue.SESSION_KINDS for kind in wanted.flow.list_step_kinds())
    return settings if needs_one or settings.socket.exists() else None


async def _run_in_session(
    settings: "config.Settings",
    wanted: flows.RequestedFlow,
    inputs: dict[str, Any],
    chosen: flow_runs.ChosenRuntime,
    folder: Path,
    options: FlowRunOptions,
) -> outcome.FlowRunOutcome:
    from switchtower.cli.flows import attending
    from switchtower.client import errors as client_errors

    order = attending.FlowSessionRequest(
        document=wanted.document,
        inputs=inputs,
        runtime=chosen.engine,
        argv=[] if chosen.argv == flow_runs.make_own_argv() else chosen.argv,
        folder=folder,
        allow_shell=options.allow_shell,
        log_json=options.as_json,
        timeout_s=options.timeout_s,
        needs_daemon=any(kind in catalogue.SESSION_KINDS for kind in wanted.flow.list_step_kinds()),
    )
    try:
        attended = await attending.FlowSession.start(settings, order)
    except client_errors.DaemonUnreachable as nobody:
        if order.needs_daemon:
            return attending.make_failed_outcome(wanted.flow.name, str(nobody))
        return await _run_locally(wanted, inputs, chosen, folder, options)  # a socket that somebody left behind
    except client_errors.ClientError as refused:
        return attending.make_failed_outcome(wanted.flow.name, str(refused))
    if options.detach:
        attended.close()
        told = msgspec.json.encode({"sessionId": attended.session_id}) if options.as_json else attended.session_id
        raise _FlowDetached(told)
    return await attended.watch_to_end()


async def _run_locally(
    wanted: flows.RequestedFlow, inputs: dict[str, Any], chosen: flow_runs.ChosenRuntime, folder: Path, options: FlowRunOptions
) -> outcome.FlowRunOutcome:
    with interrupts.cancel_on_interrupt() as cancel:
        told = asyncio.create_task(_announce_cancel(cancel))
        try:
            return await flow_runs.run_flow(
                wanted,
                inputs,
                chosen,
                folder=folder,
                cancel=cancel,
                on_event=progress.print_flow_event,
                timeout_s=options.timeout_s,
                allow_shell=options.allow_shell,
                log_json=options.as_json,
            )
        finally:
            told.cancel()


async def _announce_cancel(cancel: asyncio.Event) -> None:
    await cancel.wait()
    console.print_line("cancelling the run", "yellow")


def _print_outcome(ended: outcome.FlowRunOutcome, *, with_outputs: bool) -> None:
    if (error := ended.error) is not None:
        data = error.get("data") or {}
        details = data.get("details")
        if ended.before_handshake:
            for problem in error["message"].splitlines():
                console.print_error(problem)
            return
        step = data.get("step_id")
        where = f"step `{progress.shorten_line(step)}`: " if isinstance(step, str) and step else ""
        console.print_error(
            f"{ended.flow or 'the flow'} failed: {where}{progress.shorten_line(error['message'])} ({error['code']})"
        )
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
