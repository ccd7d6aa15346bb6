"""Lists the available runtimes and their capabilities.

Creates the files of a flow project: its `runtime.yaml`, compiled flows and manifest. It starts nothing."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from switchtower.cli import console, output, table
from switchtower.cli.flows import flow_run
from switchtower.engines.flow import ports, project
from switchtower.engines.flow.ir import flow as ir_flow
from switchtower.engines.flow.ir import manifest as manifests
from switchtower.engines.flow.runtime.kinds import catalog
from switchtower.flows import loader, orchestrator
from switchtower.protocols.rep import client, errors
from switchtower.protocols.rep.runtime_process import RuntimeNotStarted

if TYPE_CHECKING:
    from switchtower.engines.flow.runtime.kinds import registry


_LANGUAGES = {".py": "python", ".js": "javascript", ".mjs": "javascript"}


def init_project(runtime: str, language: str | None, plugins_language: str | None, *, force: bool) -> int:
    folder = Path.cwd()
    place = folder / project.PLACE
    try:
        if place.exists() and not force:
            raise loader.FlowRefused([f"there is a {project.PLACE} already; hint: `--force` writes it again"])
        settings = _make_settings(folder, runtime, language, plugins_language)
        manifests.replace_file(place, _encode_settings(settings))
    except OSError as problem:
        return flow_run.print_problems(loader.FlowRefused([f"{project.PLACE} cannot be written: {problem.strerror}"]))
    except loader.FlowRefused as refused:
        return flow_run.print_problems(refused)
    console.print_line(f"{project.PLACE} is written: {settings.get('executor_path', 'the runtime that comes with us')}", "green")
    return 0


def _make_settings(folder: Path, runtime: str, language: str | None, plugins_language: str | None) -> dict[str, str]:
    is_ours = runtime == "python"
    path = folder / Path(runtime).expanduser()
    if not is_ours and not (path.is_file() and os.access(path, os.X_OK)):
        raise loader.FlowRefused([f"`{runtime}` is no program that could be started; hint: give its path, or `python` for ours"])
    language = language or ("python" if is_ours else _LANGUAGES.get(path.suffix))
    if language is None:
        raise loader.FlowRefused(
            [f"nobody can tell what `{runtime}` is written in; hint: say it with `--language`, as in `rust`"]
        )
    settings = {"engine": "python" if is_ours else "proc", "language": language, "plugins_language": plugins_language or language}
    if not is_ours:
        # Paths inside the project are relative to its folder, so that it can be moved.
        settings["executor_path"] = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    for name, value in settings.items():
        if not value.isprintable() or not value.strip():
            raise loader.FlowRefused([f"`{name}` cannot be {value!r}; hint: use characters that print"])
    fits = project.ProjectRuntime(
        engine=settings["engine"], language=language, plugins_language=settings["plugins_language"], executor_path=None
    )
    try:
        fits.check_family()
    except project.LanguageMismatch as mismatch:
        raise loader.FlowRefused([str(mismatch)], exit_code=mismatch.exit_code) from None
    return settings


def _encode_settings(settings: dict[str, str]) -> bytes:
    # Every JSON string is also a YAML string.
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    return ("runtime:\n" + "\n".join(lines) + "\n").encode(errors="surrogateescape")


def validate_flows(files: tuple[Path, ...]) -> int:
    code, kinds = 0, _list_known_kinds()
    _warn_about_languages()
    for file in files:
        try:
            flow = loader.load_from_file(file, kinds=kinds).flow
        except loader.FlowRefused as refused:
            code = flow_run.print_problems(refused)
            console.print_line(f"{file}: not valid", "red")
        else:
            steps = sum(node.kind not in (ir_flow.EMIT, ir_flow.FINISH) for node in flow.nodes)
            output.write_line(
                console.escape_unprintable(f"{file}: valid, flow `{flow.name}` with {_format_count(steps, 'step')}")
            )
    return code


def _list_known_kinds() -> list[str] | None:
    """Returns the step kinds of the runtime in use here; None for a runtime that must be asked."""
    try:
        chosen = orchestrator.choose_runtime(Path.cwd(), None)
    except loader.FlowRefused:
        return None
    return catalog.list_step_kinds(tower=True) if chosen.argv == orchestrator.make_own_argv() else None


def _warn_about_languages() -> None:
    """rep 2: warns about a project whose runtime and plugins use different languages."""
    place = project.find_project_file(Path.cwd())
    try:
        if place is not None:
            project.read_project_runtime(place).check_family()
    except project.ProjectRuntimeError as unusable:
        console.print_line(f"warning: {unusable}", "yellow")


def compile_flow(file: Path, out: Path | None, manifest: Path | None) -> int:
    import msgspec

    _warn_about_languages()
    try:
        wanted = loader.load_from_file(file)
        content = msgspec.json.format(msgspec.json.encode(wanted.document), indent=2) + b"\n"
        if manifest is None and out is None:
            output.write(content)
            return 0
        if manifest is None:
            assert out is not None
            manifests.replace_file(out, content)
        else:
            out = out or manifest.parent / f"{wanted.flow.name}.json"
            _register_flow(wanted, content, out, manifest)
    except OSError as problem:
        return flow_run.print_problems(loader.FlowRefused([f"`{problem.filename or out}` cannot be written: {problem.strerror}"]))
    except manifests.InvalidManifest as bad:
        return flow_run.print_problems(loader.FlowRefused([str(bad)]))
    except loader.FlowRefused as refused:
        return flow_run.print_problems(refused)
    console.print_line(f"`{wanted.flow.name}` is compiled to {out}" + (f" and is in {manifest}" if manifest else ""), "green")
    return 0


def _register_flow(wanted: loader.RequestedFlow, content: bytes, out: Path, manifest: Path) -> None:
    folder, target = manifest.absolute().parent.resolve(), out.absolute().parent.resolve() / out.name
    if not target.is_relative_to(folder) or target == folder / manifest.name:
        raise loader.FlowRefused(
            [f"`{out}` is not beside or below `{manifest}`; hint: a manifest lists flows of its own folder only"]
        )
    others = (
        [entry for entry in manifests.read_manifest(manifest).entries if entry.name != wanted.flow.name]
        if manifest.exists()
        else []
    )
    ir_path = target.relative_to(folder).as_posix()
    if (other := next((entry for entry in others if entry.ir_path == ir_path), None)) is not None:
        raise loader.FlowRefused([f"`{out}` holds the flow `{other.name}`; hint: choose another file with `-o`"])
    manifests.replace_file(target, content)
    manifests.write_manifest(manifest, [*others, manifests.make_entry(wanted.flow, ir_path)])


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def list_runtimes(*, as_json: bool) -> int:
    """Lists the runtime in use, the one that comes with this program, and those with cached capabilities."""
    try:
        used = orchestrator.choose_runtime(Path.cwd(), None)
    except loader.FlowRefused as refused:
        return flow_run.print_problems(refused)
    remembered = ports.list_engines()
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
        said = ports.read_capabilities(engine)
    except ports.InvalidEngineName as bad:
        return flow_run.print_problems(loader.FlowRefused([str(bad)]))
    if said is None:
        known = ", ".join(f"`{name}`" for name in ports.list_engines())
        console.print_error(
            f"nothing is remembered of `{engine}`", f"there is {known}" if known else "it is, once a flow was run"
        )
        return 1
    output.write_line(msgspec.json.format(msgspec.json.encode(said), indent=2))
    return 0


def clear_cached_capabilities(engine: str) -> int:
    try:
        was_there = ports.clear_capabilities(engine)
    except ports.InvalidEngineName as bad:
        return flow_run.print_problems(loader.FlowRefused([str(bad)]))
    except OSError as problem:
        console.print_error(f"what is remembered of `{engine}` cannot be removed: {problem.strerror}")
        return 1
    console.print_line(
        f"what was remembered of `{engine}` is forgotten" if was_there else f"nothing was remembered of `{engine}`"
    )
    return 0
