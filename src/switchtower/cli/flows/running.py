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


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
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


def run(wishes: Wishes) -> int:
    try:
        ended = _made(wishes)
    except _Detached as detached:
        output.line(detached.told)
        return errors.Exit.OK
    if ended is None:
        console.fail("the run was interrupted, and nobody saw how it ended")
        return errors.Exit.RUNTIME_INTERNAL
    if wishes.as_json:
        output.line(msgspec.json.encode(ended.as_json()))
    _tell(ended, with_outputs=not wishes.as_json)
    return int(ended.exit_code)


def refuse(refused: flows.Refused) -> int:
    """Every problem on a line of its own."""
    for problem in refused.problems:
        console.fail(problem)
    return refused.exit_code


def _made(wishes: Wishes) -> outcome.Outcome | None:
    """None for who did not wait for the cancelling: exit code 2, that of an interruption, would say that nothing was started."""
    folder = Path.cwd()
    name = ""
    try:
        # rep 11: a flow that is not valid is found out before any process is started, and before its runtime is looked at.
        wanted = flows.find(wishes.flow, manifest=wishes.manifest, start=folder)
        name = wanted.flow.name
        inputs = flows.inputs_for(wanted, wishes.inputs)
        for sentence in inputs_check.describe_undeclared(wanted.flow.inputs_schema, inputs):
            console.say(f"warning: {sentence}", "yellow")
        chosen = flow_runs.choose(folder, wishes.executor)
    except flows.Refused as refused:
        refused.flow = refused.flow or name
        return flow_runs.not_run(refused)
    try:
        if not wishes.local and (settings := _daemon_for(wanted)) is not None:
            return asyncio.run(_attended(settings, wanted, inputs, chosen, folder, wishes))
        if wishes.detach:
            return flow_runs.not_run(flows.Refused(["no daemon runs that could go on with it; hint: `tower serve`"], flow=name))
        return asyncio.run(_run(wanted, inputs, chosen, folder, wishes))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return None


class _Detached(Exception):
    """Nobody waits for the end."""

    def __init__(self, told: bytes | str) -> None:
        super().__init__()
        self.told = told


def _daemon_for(wanted: flows.Wanted) -> "config.Settings | None":
    """Where the flow becomes a session: at the daemon that runs, or, for one that has to wait for people or agents, at one
    that is started for it."""
    from switchtower import config

    settings = config.load()
    needs_one = any(kind in catalogue.TOWERS for kind in wanted.flow.step_kinds())
    return settings if needs_one or settings.socket.exists() else None


async def _attended(
    settings: "config.Settings",
    wanted: flows.Wanted,
    inputs: dict[str, Any],
    chosen: flow_runs.Chosen,
    folder: Path,
    wishes: Wishes,
) -> outcome.Outcome:
    from switchtower.cli.flows import attending
    from switchtower.client import errors as client_errors

    order = attending.Order(
        document=wanted.document,
        inputs=inputs,
        runtime=chosen.engine,
        argv=[] if chosen.argv == flow_runs.our_argv() else chosen.argv,
        folder=folder,
        allow_shell=wishes.allow_shell,
        log_json=wishes.as_json,
        timeout_s=wishes.timeout_s,
        needs_daemon=any(kind in catalogue.TOWERS for kind in wanted.flow.step_kinds()),
    )
    try:
        attended = await attending.Attended.start(settings, order)
    except client_errors.DaemonUnreachable as nobody:
        if order.needs_daemon:
            return attending.broken(wanted.flow.name, str(nobody))
        return await _run(wanted, inputs, chosen, folder, wishes)  # a socket that somebody left behind
    except client_errors.ClientError as refused:
        return attending.broken(wanted.flow.name, str(refused))
    if wishes.detach:
        attended.close()
        told = msgspec.json.encode({"sessionId": attended.session_id}) if wishes.as_json else attended.session_id
        raise _Detached(told)
    return await attended.to_the_end()


async def _run(
    wanted: flows.Wanted, inputs: dict[str, Any], chosen: flow_runs.Chosen, folder: Path, wishes: Wishes
) -> outcome.Outcome:
    with interrupts.as_cancel() as cancel:
        told = asyncio.create_task(_tell_of(cancel))
        try:
            return await flow_runs.run(
                wanted,
                inputs,
                chosen,
                folder=folder,
                cancel=cancel,
                on_event=progress.show,
                timeout_s=wishes.timeout_s,
                allow_shell=wishes.allow_shell,
                log_json=wishes.as_json,
            )
        finally:
            told.cancel()


async def _tell_of(cancel: asyncio.Event) -> None:
    await cancel.wait()
    console.say("cancelling the run", "yellow")


def _tell(ended: outcome.Outcome, *, with_outputs: bool) -> None:
    if (error := ended.error) is not None:
        data = error.get("data") or {}
        details = data.get("details")
        if ended.before_handshake:
            for problem in error["message"].splitlines():
                console.fail(problem)
            return
        step = data.get("step_id")
        where = f"step `{progress.one_line(step)}`: " if isinstance(step, str) and step else ""
        console.fail(f"{ended.flow or 'the flow'} failed: {where}{progress.one_line(error['message'])} ({error['code']})")
        stderr = details.get("stderr") if isinstance(details, dict) else None
        if isinstance(stderr, str) and stderr.strip():
            console.say("the runtime's last words:", "dim")
            console.say(stderr.rstrip(), "dim")
        return
    steps = ended.summary.get("completed_steps")
    counted = f", {steps} step{'' if steps == 1 else 's'}" if isinstance(steps, int) else ""
    console.say(f"{ended.flow}: {ended.status}{counted}", "green")
    outputs = ended.summary.get("outputs")
    if with_outputs and outputs:
        output.answer(msgspec.json.format(msgspec.json.encode(outputs), indent=2).decode() + "\n")
