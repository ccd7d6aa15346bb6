"""A flow's run on the runtime of its project: the orchestrator's parts put together. Starts the runtime, and prints nothing."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct

from switchtower.daemon import flows
from switchtower.engines.flow.orchestrator import capability_cache, control, project
from switchtower.protocols.rep import client, collecting, driver, errors, messages, outcome
from switchtower.tools.running import environment

OURS = "python"
"""The engine that comes with us."""


class Chosen(Struct, frozen=True, kw_only=True):
    """The runtime to use."""

    engine: str
    argv: list[str]
    language: str | None = None
    settings: Path | None = None
    """The file that says so, where one does."""


def choose(start: Path, executor: str | None) -> Chosen:
    """The override, the project's own, or the runtime that comes with us. Raises `flows.Refused`."""
    if executor is not None:
        # rep 2: an override is for looking into things, so it need not be of the project's family.
        return Chosen(engine="proc", argv=[str(start / Path(executor).expanduser())])
    place = project.find(start)
    if place is None:
        return Chosen(engine=OURS, argv=our_argv(), language="python")
    try:
        runtime = project.read(place)
        runtime.check_family()
    except project.Unusable as unusable:
        code = outcome.VALIDATION if isinstance(unusable, project.Mismatch) else None
        raise flows.Refused([str(unusable)], exit_code=unusable.exit_code, code=code) from None
    argv = our_argv() if runtime.executor_path is None else [runtime.executor_path]
    return Chosen(engine=runtime.engine, argv=argv, language=runtime.language, settings=place)


def our_argv() -> list[str]:
    # -P: a `json.py` in the folder of the run is not ours to load.
    return [sys.executable, "-P", "-m", "switchtower.daemon.flow_runtime"]


async def run(
    wanted: flows.Wanted,
    inputs: dict[str, Any],
    chosen: Chosen,
    *,
    folder: Path,
    cancel: asyncio.Event,
    on_event: collecting.OnEvent,
    timeout_s: float | None = None,
    allow_shell: bool = False,
    log_json: bool = False,
) -> outcome.Outcome:
    order = driver.Order(
        argv=chosen.argv,
        cwd=str(folder),
        ir=wanted.document,
        required=wanted.flow.step_kinds(),
        run_id=str(uuid4()),
        trace_id=str(uuid4()),
        engine=chosen.engine,
        inputs=inputs,
        allow_shell=allow_shell,
        log_json=log_json,
        timeout_s=timeout_s or driver.TIMEOUT,
        environment=_environment(chosen),
    )
    return await driver.run(
        order,
        cancel=cancel,
        on_event=on_event,
        remember=lambda said: _remember(chosen, said),
        adapt=control.without,
        drive_control=directing(order),
    )


async def ask(chosen: Chosen, *, folder: Path, timeout_s: float) -> dict[str, Any]:
    """What a runtime says of itself. Raises `client.Broken`, `client.Refused`, `child.NotStarted` and `TimeoutError`."""
    marching = client.Marching(run_id=str(uuid4()), trace_id=str(uuid4()), timeout_s=timeout_s)
    started = client.Client.start(chosen.argv, cwd=str(folder), marching=marching, environment=_environment(chosen))
    async with started as runtime, asyncio.timeout(timeout_s):
        said = await runtime.call(messages.CAPABILITIES, {}, dict[str, Any])
    _remember(chosen, said)
    return said


def not_run(refused: flows.Refused) -> outcome.Outcome:
    """A run that no runtime was asked for, as its caller is told of it."""
    error = outcome.error(refused.code, str(refused), details={"problems": refused.problems})
    summary = {"completed_steps": 0, "failed_steps": 0, "error": error}
    before = refused.exit_code == errors.Exit.INVALID_BEFORE_HANDSHAKE
    return outcome.Outcome(flow=refused.flow, status="failed", summary=summary, events=[], before_handshake=before)


def _environment(chosen: Chosen) -> dict[str, str]:
    """Ours has to find the daemon that people, and agents, are asked through; another's business that is not."""
    seen = environment.current()
    home = os.environ.get("TOWER_HOME")
    return {**seen, "TOWER_HOME": home} if home is not None and chosen.argv == our_argv() else seen


def _remember(chosen: Chosen, said: dict[str, Any]) -> None:
    capability_cache.write(chosen.engine, said)


def directing(order: driver.Order) -> driver.DriveControl:
    """For a runtime that lacks control kinds."""

    async def direct(
        lend: driver.Lend, cancel: asyncio.Event, hand_on: Callable[[list[dict[str, Any]], int], Awaitable[None]]
    ) -> Mapping[str, Any]:
        # Late: only a runtime without control kinds needs our executor here.
        from switchtower.engines.flow.orchestrator import borrowing

        director = borrowing.Director(
            order.ir, order.inputs, run_id=order.run_id, workspace=order.cwd, allow_shell=order.allow_shell
        )
        return await director(lend, cancel, hand_on)

    return direct
