"""Runs a flow on the runtime of its project: the orchestrator's parts joined. It starts the runtime, and prints nothing."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct

from switchtower.engines.flow import ports, project
from switchtower.flows import loader
from switchtower.protocols.rep import client, driver, errors, messages
from switchtower.tools.processes import marks

OWN_ENGINE = "python"
"""Our own engine."""


class ChosenRuntime(Struct, frozen=True, kw_only=True):
    engine: str
    argv: list[str]
    language: str | None = None
    settings: Path | None = None
    """The file that names the runtime, if any."""


def choose_runtime(start: Path, executor: str | None) -> ChosenRuntime:
    """Returns the override, the project's own runtime, or ours. Raises `loader.FlowRefused`."""
    if executor is not None:
        # rep 2: an override is for debugging, so it need not be of the project's family.
        return ChosenRuntime(engine="proc", argv=[str(start / Path(executor).expanduser())])
    place = project.find_project_file(start)
    if place is None:
        return ChosenRuntime(engine=OWN_ENGINE, argv=make_own_argv(), language="python")
    try:
        runtime = project.read_project_runtime(place)
        runtime.check_family()
    except project.ProjectRuntimeError as unusable:
        code = client.VALIDATION if isinstance(unusable, project.LanguageMismatch) else None
        raise loader.FlowRefused([str(unusable)], exit_code=unusable.exit_code, code=code) from None
    argv = make_own_argv() if runtime.executor_path is None else [runtime.executor_path]
    return ChosenRuntime(engine=runtime.engine, argv=argv, language=runtime.language, settings=place)


def make_own_argv() -> list[str]:
    # -P: a `json.py` in the run's folder must not be imported.
    return [sys.executable, "-P", "-m", "switchtower.flows.rep_runtime"]


async def run_flow(
    requested: loader.RequestedFlow,
    inputs: dict[str, Any],
    chosen: ChosenRuntime,
    *,
    folder: Path,
    cancel: asyncio.Event,
    on_event: driver.OnRunEvent,
    timeout_s: float | None = None,
    allow_shell: bool = False,
    log_json: bool = False,
) -> client.FlowRunOutcome:
    order = driver.RuntimeRunOrder(
        argv=chosen.argv,
        cwd=str(folder),
        ir=requested.document,
        required=requested.flow.list_step_kinds(),
        run_id=str(uuid4()),
        trace_id=str(uuid4()),
        engine=chosen.engine,
        inputs=inputs,
        allow_shell=allow_shell,
        log_json=log_json,
        timeout_s=timeout_s or driver.TIMEOUT,
        environment=_make_environment(chosen),
    )
    return await driver.drive_run(
        order,
        cancel=cancel,
        on_event=on_event,
        on_capabilities=lambda said: _cache_capabilities(chosen, said),
        adapt=ports.remove_kinds,
        drive_control=make_step_driver(order),
    )


async def get_capabilities(chosen: ChosenRuntime, *, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Returns a runtime's capabilities. Raises `client.RuntimeConnectionError`, `client.RuntimeRequestError`,
    `runtime_process.RuntimeNotStarted` and `TimeoutError`."""
    marching = client.RuntimeEnvironment(run_id=str(uuid4()), trace_id=str(uuid4()), timeout_s=timeout_s)
    started = client.RuntimeClient.start(
        chosen.argv, cwd=str(folder), runtime_environment=marching, environment=_make_environment(chosen)
    )
    async with started as runtime, asyncio.timeout(timeout_s):
        said = await runtime.call(messages.CAPABILITIES, {}, dict[str, Any])
    _cache_capabilities(chosen, said)
    return said


def make_refused_outcome(refused: loader.FlowRefused) -> client.FlowRunOutcome:
    """Makes the outcome of a run for which no runtime was started."""
    error = client.make_error(refused.code, str(refused), details={"problems": refused.problems})
    summary = {"completed_steps": 0, "failed_steps": 0, "error": error}
    before = refused.exit_code == errors.RepExitCode.INVALID_BEFORE_HANDSHAKE
    return client.FlowRunOutcome(flow=refused.flow, status="failed", summary=summary, events=[], before_handshake=before)


def _make_environment(chosen: ChosenRuntime) -> dict[str, str]:
    """Our own runtime has to find the daemon through which users and agents are asked; another runtime does not."""
    seen = marks.current_environment()
    home = os.environ.get("TOWER_HOME")
    return {**seen, "TOWER_HOME": home} if home is not None and chosen.argv == make_own_argv() else seen


def _cache_capabilities(chosen: ChosenRuntime, reported: dict[str, Any]) -> None:
    ports.write_capabilities(chosen.engine, reported)


def make_step_driver(order: driver.RuntimeRunOrder) -> driver.DriveControl:
    """Makes the driver of a runtime that lacks control kinds."""

    async def direct(
        lend: driver.RunStep, cancel: asyncio.Event, hand_on: Callable[[list[dict[str, Any]], int], Awaitable[None]]
    ) -> Mapping[str, Any]:
        # The import is late: only a runtime without control kinds needs our executor here.
        from switchtower.engines.flow import delegation

        director = delegation.StepDelegator(
            order.ir, order.inputs, run_id=order.run_id, workspace=order.cwd, allow_shell=order.allow_shell
        )
        return await director(lend, cancel, hand_on)

    return direct
