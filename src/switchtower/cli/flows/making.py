"""Makes what a project of flows has in files: its `runtime.yaml`, compiled flows, its manifest. Starts nothing."""

import json
import os
from pathlib import Path

from switchtower.cli import console, output
from switchtower.cli.flows import running
from switchtower.daemon import flow_runs, flows
from switchtower.engines.flow.ir import flow as ir_flow
from switchtower.engines.flow.ir import manifest as manifests
from switchtower.engines.flow.orchestrator import project
from switchtower.engines.flow.runtime.kinds import catalogue

_LANGUAGES = {".py": "python", ".js": "javascript", ".mjs": "javascript"}


def init(runtime: str, language: str | None, plugins_language: str | None, *, force: bool) -> int:
    folder = Path.cwd()
    place = folder / project.PLACE
    try:
        if place.exists() and not force:
            raise flows.Refused([f"there is a {project.PLACE} already; hint: `--force` writes it again"])
        settings = _settings(folder, runtime, language, plugins_language)
        manifests.replace(place, _spelled(settings))
    except OSError as problem:
        return running.refuse(flows.Refused([f"{project.PLACE} cannot be written: {problem.strerror}"]))
    except flows.Refused as refused:
        return running.refuse(refused)
    console.say(f"{project.PLACE} is written: {settings.get('executor_path', 'the runtime that comes with us')}", "green")
    return 0


def _settings(folder: Path, runtime: str, language: str | None, plugins_language: str | None) -> dict[str, str]:
    is_ours = runtime == "python"
    path = folder / Path(runtime).expanduser()
    if not is_ours and not (path.is_file() and os.access(path, os.X_OK)):
        raise flows.Refused([f"`{runtime}` is no program that could be started; hint: give its path, or `python` for ours"])
    language = language or ("python" if is_ours else _LANGUAGES.get(path.suffix))
    if language is None:
        raise flows.Refused([f"nobody can tell what `{runtime}` is written in; hint: say it with `--language`, as in `rust`"])
    settings = {"engine": "python" if is_ours else "proc", "language": language, "plugins_language": plugins_language or language}
    if not is_ours:
        # Paths inside the project are written from its folder, so that it can be moved.
        settings["executor_path"] = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    for name, value in settings.items():
        if not value.isprintable() or not value.strip():
            raise flows.Refused([f"`{name}` cannot be {value!r}; hint: use characters that print"])
    fits = project.Runtime(
        engine=settings["engine"], language=language, plugins_language=settings["plugins_language"], executor_path=None
    )
    try:
        fits.check_family()
    except project.Mismatch as mismatch:
        raise flows.Refused([str(mismatch)], exit_code=mismatch.exit_code) from None
    return settings


def _spelled(settings: dict[str, str]) -> bytes:
    # A JSON string is a YAML one too.
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    return ("runtime:\n" + "\n".join(lines) + "\n").encode(errors="surrogateescape")


def validate(files: tuple[Path, ...]) -> int:
    code, kinds = 0, _known_kinds()
    _warn_of_family()
    for file in files:
        try:
            flow = flows.in_file(file, kinds=kinds).flow
        except flows.Refused as refused:
            code = running.refuse(refused)
            console.say(f"{file}: not valid", "red")
        else:
            steps = sum(node.kind not in (ir_flow.EMIT, ir_flow.FINISH) for node in flow.nodes)
            output.line(console.printable(f"{file}: valid, flow `{flow.name}` with {_count(steps, 'step')}"))
    return code


def _known_kinds() -> list[str] | None:
    """The step kinds of the runtime that is used here; None for a runtime that has to be asked."""
    try:
        chosen = flow_runs.choose(Path.cwd(), None)
    except flows.Refused:
        return None
    return catalogue.step_kinds(tower=True) if chosen.argv == flow_runs.our_argv() else None


def _warn_of_family() -> None:
    """rep 2: a project whose runtime and plugins are of different languages."""
    place = project.find(Path.cwd())
    try:
        if place is not None:
            project.read(place).check_family()
    except project.Unusable as unusable:
        console.say(f"warning: {unusable}", "yellow")


def compile_(file: Path, out: Path | None, manifest: Path | None) -> int:
    import msgspec

    _warn_of_family()
    try:
        wanted = flows.in_file(file)
        content = msgspec.json.format(msgspec.json.encode(wanted.document), indent=2) + b"\n"
        if manifest is None and out is None:
            output.write(content)
            return 0
        if manifest is None:
            assert out is not None
            manifests.replace(out, content)
        else:
            out = out or manifest.parent / f"{wanted.flow.name}.json"
            _register(wanted, content, out, manifest)
    except OSError as problem:
        return running.refuse(flows.Refused([f"`{problem.filename or out}` cannot be written: {problem.strerror}"]))
    except manifests.BadManifest as bad:
        return running.refuse(flows.Refused([str(bad)]))
    except flows.Refused as refused:
        return running.refuse(refused)
    console.say(f"`{wanted.flow.name}` is compiled to {out}" + (f" and is in {manifest}" if manifest else ""), "green")
    return 0


def _register(wanted: flows.Wanted, content: bytes, out: Path, manifest: Path) -> None:
    folder, target = manifest.absolute().parent.resolve(), out.absolute().parent.resolve() / out.name
    if not target.is_relative_to(folder) or target == folder / manifest.name:
        raise flows.Refused([f"`{out}` is not beside or below `{manifest}`; hint: a manifest lists flows of its own folder only"])
    others = [entry for entry in manifests.read(manifest).entries if entry.name != wanted.flow.name] if manifest.exists() else []
    ir_path = target.relative_to(folder).as_posix()
    if (other := next((entry for entry in others if entry.ir_path == ir_path), None)) is not None:
        raise flows.Refused([f"`{out}` holds the flow `{other.name}`; hint: choose another file with `-o`"])
    manifests.replace(target, content)
    manifests.write(manifest, [*others, manifests.entry_of(wanted.flow, ir_path)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
