"""Lists the available runtimes and their capabilities."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.cli import console, output, table
from switchtower.cli.flows import flow_run
from switchtower.engines.flow import capabilities
from switchtower.flows import loader, orchestrator
from switchtower.protocols.rep import client, errors
from switchtower.protocols.rep.runtime_process import RuntimeNotStarted

if TYPE_CHECKING:
    from switchtower.engines.flow.runtime.kinds import registry


def list_runtimes(*, as_json: bool) -> int:
    """Lists the runtime in use, the one that comes with this program, and those with cached capabilities."""
    try:
        used = orchestrator.choose_runtime(Path.cwd(), None)
    except loader.FlowRefused as refused:
        return flow_run.print_problems(refused)
    remembered = capabilities.list_engines()
    names = sorted({used.engine, orchestrator.OWN_ENGINE, *remembered})
    rows = [_make_row(name, used, is_remembered=name in remembered) for name in names]
    if as_json:
        output.write_line(msgspec.json.encode(rows))
        return 0
    for line in table.format_rows([_format_row(row) for row in rows]):
        output.write_line(console.escape_unprintable(line))
    return 0


def _make_row(name: str, used: orchestrator.ChosenRuntime, *, is_remembered: bool) -> dict[str, Any]:
    is_used = name == used.engine
    argv = used.argv if is_used else orchestrator.make_own_argv() if name == orchestrator.OWN_ENGINE else None
    return {"engine": name, "used": is_used, "command": argv, "remembered": is_remembered}


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["engine"],
        "used here" if row["used"] else "-",
        "remembered" if row["remembered"] else "-",
        " ".join(row["command"]) if row["command"] else "not of this project",
    )


def print_runtime_info(executor: str | None, timeout_s: float | None, *, as_json: bool) -> int:
    """Starts the runtime and prints its capabilities."""
    folder = Path.cwd()
    try:
        chosen = orchestrator.choose_runtime(folder, executor)
        said = asyncio.run(_ask_runtime(chosen, folder, timeout_s or 10.0))
        offer = client.parse_capabilities(said, engine=chosen.engine)
    except loader.FlowRefused as refused:
        return flow_run.print_problems(refused)
    except client.RuntimeUnsuitable as unacceptable:
        console.print_error(str(unacceptable))
        return errors.RepExitCode.VALIDATION
    except client.RuntimeRequestError as refused:
        console.print_error(f"the runtime answered with the error {refused.code}: {refused.message}")
        return errors.get_exit_code(refused.code)
    except (client.RuntimeConnectionError, RuntimeNotStarted) as broken:
        console.print_error(str(broken))
        return errors.RepExitCode.RUNTIME_INTERNAL
    except TimeoutError:
        console.print_error(f"the runtime did not answer within {timeout_s or 10.0:g} s", "allow more with `--timeout`")
        return errors.RepExitCode.RUNTIME_INTERNAL
    except asyncio.CancelledError:
        console.print_error("interrupted")
        return errors.RepExitCode.RUNTIME_INTERNAL
    if as_json:
        output.write_line(msgspec.json.encode({"engine": chosen.engine, "command": chosen.argv, "capabilities": said}))
        return 0
    pairs = [
        ("engine", chosen.engine),
        ("command", " ".join(chosen.argv)),
        ("settings", str(chosen.settings) if chosen.settings else "none; hint: `tm init` writes them"),
        ("version", offer.version),
        ("step kinds", "\n".join(sorted(offer.step_kinds)) or "none"),
        ("limits", msgspec.json.encode(offer.limits).decode()),
    ]
    for line in table.format_fields(pairs):
        output.write_line(console.escape_unprintable(line))
    return 0


async def _ask_runtime(chosen: orchestrator.ChosenRuntime, folder: Path, timeout_s: float) -> dict[str, Any]:
    with flow_run.cancel_on_interrupt() as cancel:
        asking = asyncio.create_task(orchestrator.get_capabilities(chosen, folder=folder, timeout_s=timeout_s))
        cancelled = asyncio.create_task(cancel.wait())
        try:
            await asyncio.wait([asking, cancelled], return_when=asyncio.FIRST_COMPLETED)
            if cancelled.done():
                asking.cancel()
            return await asking
        finally:
            cancelled.cancel()


def print_kinds(names: tuple[str, ...], *, as_json: bool) -> int:
    """Prints all kinds on one line each, or the inputs and outputs of the named ones."""
    from switchtower.engines.flow.runtime.kinds import registry

    found = registry.describe_all()
    known = {description.kind: description for description in found}
    if unknown := [name for name in names if name not in known]:
        for name in unknown:
            console.print_error(f"there is no step kind `{name[:100]}`", "`tm kinds` lists them all")
        return 1
    chosen = [known[name] for name in names] or found
    if as_json:
        output.write_line(msgspec.json.encode(chosen))
        return 0
    if names:
        lines = [line for description in chosen for line in _format_kind(description)]
    else:
        lines = table.format_rows([(one.kind, one.source, one.problem or one.summary) for one in chosen])
    for line in lines:
        output.write_line(console.escape_unprintable(line))
    return 0


def _format_kind(description: "registry.KindDescription") -> list[str]:
    lines = [f"{description.kind} ({description.source}): {description.problem or description.summary}"]
    for title, texts in (("inputs", description.inputs), ("outputs", description.outputs)):
        lines.append(f"  {title}:" + ("" if texts else " none"))
        lines += [f"    {line}" for line in table.format_rows(list(texts.items()))]
    return lines


def show_cached_capabilities(engine: str) -> int:
    try:
        said = capabilities.read_capabilities(engine)
    except capabilities.InvalidEngineName as bad:
        return flow_run.print_problems(loader.FlowRefused([str(bad)]))
    if said is None:
        known = ", ".join(f"`{name}`" for name in capabilities.list_engines())
        console.print_error(
            f"nothing is remembered of `{engine}`", f"there is {known}" if known else "it is, once a flow was run"
        )
        return 1
    output.write_line(msgspec.json.format(msgspec.json.encode(said), indent=2))
    return 0


def clear_cached_capabilities(engine: str) -> int:
    try:
        was_there = capabilities.clear_capabilities(engine)
    except capabilities.InvalidEngineName as bad:
        return flow_run.print_problems(loader.FlowRefused([str(bad)]))
    except OSError as problem:
        console.print_error(f"what is remembered of `{engine}` cannot be removed: {problem.strerror}")
        return 1
    console.print_line(
        f"what was remembered of `{engine}` is forgotten" if was_there else f"nothing was remembered of `{engine}`"
    )
    return 0
