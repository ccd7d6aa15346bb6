"""Shows which runtimes there are and what they say of themselves."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.cli import console, output, table
from switchtower.cli.flows import running
from switchtower.daemon import flow_runs, flows
from switchtower.engines.flow.orchestrator import capability_cache
from switchtower.protocols.rep import client, errors, interrupts, negotiation
from switchtower.protocols.rep.child import NotStarted

if TYPE_CHECKING:
    from switchtower.engines.flow.runtime.kinds import descriptions


def list_(*, as_json: bool) -> int:
    """The one in use, the one that comes with us, and those of which something is remembered."""
    try:
        used = flow_runs.choose(Path.cwd(), None)
    except flows.Refused as refused:
        return running.refuse(refused)
    remembered = capability_cache.engines()
    names = sorted({used.engine, flow_runs.OURS, *remembered})
    rows = [_row(name, used, is_remembered=name in remembered) for name in names]
    if as_json:
        output.line(msgspec.json.encode(rows))
        return 0
    for line in table.rows([_cells(row) for row in rows]):
        output.line(console.printable(line))
    return 0


def _row(name: str, used: flow_runs.Chosen, *, is_remembered: bool) -> dict[str, Any]:
    is_used = name == used.engine
    argv = used.argv if is_used else flow_runs.our_argv() if name == flow_runs.OURS else None
    return {"engine": name, "used": is_used, "command": argv, "remembered": is_remembered}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["engine"],
        "used here" if row["used"] else "-",
        "remembered" if row["remembered"] else "-",
        " ".join(row["command"]) if row["command"] else "not of this project",
    )


def info(executor: str | None, timeout_s: float | None, *, as_json: bool) -> int:
    """Starts the runtime and asks it."""
    folder = Path.cwd()
    try:
        chosen = flow_runs.choose(folder, executor)
        said = asyncio.run(_ask(chosen, folder, timeout_s or 10.0))
        offer = negotiation.read(said, engine=chosen.engine)
    except flows.Refused as refused:
        return running.refuse(refused)
    except negotiation.Unacceptable as unacceptable:
        console.fail(str(unacceptable))
        return errors.Exit.VALIDATION
    except client.Refused as refused:
        console.fail(f"the runtime answered with the error {refused.code}: {refused.message}")
        return errors.exit_of(refused.code)
    except (client.Broken, NotStarted) as broken:
        console.fail(str(broken))
        return errors.Exit.RUNTIME_INTERNAL
    except TimeoutError:
        console.fail(f"the runtime did not answer within {timeout_s or 10.0:g} s", "allow more with `--timeout`")
        return errors.Exit.RUNTIME_INTERNAL
    except asyncio.CancelledError:
        console.fail("interrupted")
        return errors.Exit.RUNTIME_INTERNAL
    if as_json:
        output.line(msgspec.json.encode({"engine": chosen.engine, "command": chosen.argv, "capabilities": said}))
        return 0
    pairs = [
        ("engine", chosen.engine),
        ("command", " ".join(chosen.argv)),
        ("settings", str(chosen.settings) if chosen.settings else "none; hint: `tm init` writes them"),
        ("version", offer.version),
        ("step kinds", "\n".join(sorted(offer.step_kinds)) or "none"),
        ("limits", msgspec.json.encode(offer.limits).decode()),
    ]
    for line in table.fields(pairs):
        output.line(console.printable(line))
    return 0


async def _ask(chosen: flow_runs.Chosen, folder: Path, timeout_s: float) -> dict[str, Any]:
    with interrupts.as_cancel() as cancel:
        asking = asyncio.create_task(flow_runs.ask(chosen, folder=folder, timeout_s=timeout_s))
        cancelled = asyncio.create_task(cancel.wait())
        try:
            await asyncio.wait([asking, cancelled], return_when=asyncio.FIRST_COMPLETED)
            if cancelled.done():
                asking.cancel()
            return await asking
        finally:
            cancelled.cancel()


def kinds(names: tuple[str, ...], *, as_json: bool) -> int:
    """All of them on a line each, or the inputs and outputs of those that are named."""
    from switchtower.engines.flow.runtime.kinds import descriptions

    found = descriptions.describe_all()
    known = {description.kind: description for description in found}
    if unknown := [name for name in names if name not in known]:
        for name in unknown:
            console.fail(f"there is no step kind `{name[:100]}`", "`tm kinds` lists them all")
        return 1
    chosen = [known[name] for name in names] or found
    if as_json:
        output.line(msgspec.json.encode(chosen))
        return 0
    if names:
        lines = [line for description in chosen for line in _described(description)]
    else:
        lines = table.rows([(one.kind, one.source, one.problem or one.summary) for one in chosen])
    for line in lines:
        output.line(console.printable(line))
    return 0


def _described(description: "descriptions.Description") -> list[str]:
    lines = [f"{description.kind} ({description.source}): {description.problem or description.summary}"]
    for title, texts in (("inputs", description.inputs), ("outputs", description.outputs)):
        lines.append(f"  {title}:" + ("" if texts else " none"))
        lines += [f"    {line}" for line in table.rows(list(texts.items()))]
    return lines


def show(engine: str) -> int:
    try:
        said = capability_cache.show(engine)
    except capability_cache.BadName as bad:
        return running.refuse(flows.Refused([str(bad)]))
    if said is None:
        known = ", ".join(f"`{name}`" for name in capability_cache.engines())
        console.fail(f"nothing is remembered of `{engine}`", f"there is {known}" if known else "it is, once a flow was run")
        return 1
    output.line(msgspec.json.format(msgspec.json.encode(said), indent=2))
    return 0


def clear(engine: str) -> int:
    try:
        was_there = capability_cache.clear(engine)
    except capability_cache.BadName as bad:
        return running.refuse(flows.Refused([str(bad)]))
    except OSError as problem:
        console.fail(f"what is remembered of `{engine}` cannot be removed: {problem.strerror}")
        return 1
    console.say(f"what was remembered of `{engine}` is forgotten" if was_there else f"nothing was remembered of `{engine}`")
    return 0
