"""Loads flows as users name them: an IR document, a YAML file, or a name in a manifest. It reads files and starts nothing.

Every problem of the input raises `FlowRefused`, which has all problems and the exit code. The YAML library is loaded for YAML
alone.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.engines.flow import ir
from switchtower.engines.flow.ir import manifest as manifests
from switchtower.engines.flow.ir import parser as inputs_check
from switchtower.protocols.rep import errors

MANIFEST = Path("tm/flows/manifest.json")
_YAML = (".yaml", ".yml")
_PATHS = (*_YAML, ".json")


class FlowRefused(Exception):
    """The flow cannot be run, and no runtime was started."""

    def __init__(
        self,
        problems: list[str],
        *,
        flow: str = "",
        exit_code: int = errors.RepExitCode.INVALID_BEFORE_HANDSHAKE,
        code: int | None = None,
    ) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.flow = flow
        self.exit_code = exit_code
        self.code = errors.RepErrorCode.INVALID_IR if code is None else code


class RequestedFlow(Struct, frozen=True):
    document: dict[str, Any]
    """The document that is sent to a runtime."""
    flow: ir.CheckedFlow


def find_flow(named: str, *, manifest: Path | None, start: Path) -> RequestedFlow:
    """Returns the named flow: with a manifest, the one of that name in it; else a file, or a name in the project's manifest."""
    if manifest is not None:
        return load_from_manifest(manifest, named)
    if named == "-":
        return load_from_stdin()
    if "/" in named or named.endswith(_PATHS) or Path(named).is_file():
        return load_from_file(Path(named))
    place = next((place for above in (start, *start.parents) if (place := above / MANIFEST).is_file()), None)
    if place is None:
        raise FlowRefused(
            [f"there is no file `{named}`, and no `{MANIFEST}` to look for the name in; hint: see `tm compile --help`"]
        )
    return load_from_manifest(place, named)


def load_from_manifest(manifest: Path, name: str) -> RequestedFlow:
    try:
        loaded = manifests.read_manifest(manifest).load(name)
    except manifests.InvalidManifest as bad:
        raise FlowRefused([str(bad)], flow=name) from None
    except ir.InvalidFlow as invalid:
        raise FlowRefused(str(invalid).splitlines(), flow=name) from None
    return RequestedFlow(loaded.document, loaded.flow)


def load_from_stdin() -> RequestedFlow:
    """The input is YAML, unless it starts like JSON, which YAML includes: then it is an IR document."""
    content = _read_stdin("")
    if content.lstrip()[:1] == b"{":
        return _parse_flow(_decode(content, "stdin", "hint: give an IR document, or a YAML flow"))
    return _parse_flow(_compile(Path("stdin"), content))


def load_from_file(path: Path, *, kinds: Collection[str] | None = None) -> RequestedFlow:
    """With `kinds`, a step of any other kind is refused too."""
    content = _read(path)
    if path.suffix in _YAML:
        return _parse_flow(_compile(path, content, kinds))
    return _parse_flow(_decode(content, f"`{path}`", "hint: a YAML flow ends in .yaml"), kinds)


def _parse_flow(document: Any, kinds: Collection[str] | None = None) -> RequestedFlow:
    try:
        flow = ir.parse_flow(document, kinds=kinds)
    except ir.InvalidFlow as invalid:
        raise FlowRefused(str(invalid).splitlines(), flow=_get_flow_name(document)) from None
    assert isinstance(document, dict), "it was parsed"
    return RequestedFlow(document, flow)


def load_inputs(requested: RequestedFlow, given: str | None) -> dict[str, Any]:
    """`given` is JSON, or `@` and a JSON file; `@-` is stdin. Returns it with the flow's defaults."""
    name = requested.flow.name
    inputs: Any = {}
    if given is not None:
        content = _read_inputs(given, name)
        inputs = _decode(content, "what `--inputs` gives", 'hint: an object such as \'{"city": "Bern"}\', or @FILE', flow=name)
    try:
        return inputs_check.check_inputs(requested.flow.inputs_schema, inputs)
    except ir.InvalidFlow as invalid:
        raise FlowRefused(str(invalid).splitlines(), flow=name) from None


def _read_inputs(given: str, flow: str) -> bytes:
    if given == "@-":
        return _read_stdin(flow)
    return _read(Path(given[1:]), flow=flow) if given.startswith("@") else given.encode(errors="surrogateescape")


def _read_stdin(flow: str) -> bytes:
    content = sys.stdin.buffer.read(manifests.LARGEST_FILE + 1)
    if len(content) > manifests.LARGEST_FILE:
        raise FlowRefused([f"stdin has more than {manifests.LARGEST_FILE // 2**20} MiB"], flow=flow)
    return content


def _read(path: Path, *, flow: str = "") -> bytes:
    try:
        # A pipe would block for ever.
        if path.exists() and not path.is_file():
            raise FlowRefused([f"`{path}` is not a file; hint: `--inputs @-` reads stdin"], flow=flow)
        with path.open("rb") as file:
            content = file.read(manifests.LARGEST_FILE + 1)
    except (OSError, ValueError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else "its name is none"
        raise FlowRefused([f"`{path}` cannot be read: {said}"], flow=flow) from None
    if len(content) > manifests.LARGEST_FILE:
        raise FlowRefused([f"`{path}` is larger than {manifests.LARGEST_FILE // 2**20} MiB"], flow=flow)
    return content


def _decode(content: bytes, what: str, hint: str, *, flow: str = "") -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError) as problem:
        raise FlowRefused([f"{what} is no JSON: {problem}; {hint}"], flow=flow) from None
    except RecursionError:
        raise FlowRefused([f"{what} is nested too deep"], flow=flow) from None


def _compile(path: Path, content: bytes, kinds: Collection[str] | None = None) -> dict[str, Any]:
    from datetime import UTC, datetime

    from switchtower.engines.flow.ir import compiler, source

    try:
        return compiler.compile_yaml(content.decode(), str(path), datetime.now(UTC), kinds=kinds)
    except UnicodeDecodeError:
        raise FlowRefused([f"`{path}` is no UTF-8"]) from None
    except source.InvalidSource as invalid:
        raise FlowRefused(str(invalid).splitlines()) from None


def _get_flow_name(document: object) -> str:
    head = document.get("flow") if isinstance(document, dict) else None
    name = head.get("name") if isinstance(head, dict) else None
    return name if isinstance(name, str) else ""
