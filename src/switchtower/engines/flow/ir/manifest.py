"""The manifest: the flows of a folder, and the step kinds that each needs. It is a JSON array, as deployed compilers write it.

This is the only module of `ir` that reads and writes files; the calls block. Nothing outside the manifest's own folder is ever
opened. Flows are hashed as canonical JSON: names sorted, no spaces, characters unescaped.
"""

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.engines.flow.ir import flow as ir_flow
from switchtower.engines.flow.ir import parser

LARGEST_FILE = 16 * 1024 * 1024


class InvalidManifest(Exception):
    """The manifest, or a flow that it names, cannot be used. The text gives the reason."""


class ManifestEntry(Struct, frozen=True, kw_only=True):
    name: str
    source_file: str | None = None
    policyRef: str | None = None
    step_kinds: list[str]
    inputs_schema_hash: str
    ir_path: str
    """Relative to the manifest's folder."""


class LoadedFlow(Struct, frozen=True, kw_only=True):
    entry: ManifestEntry
    document: dict[str, Any]
    """The document as it is sent to a runtime."""
    flow: ir_flow.CheckedFlow


class FlowManifest(Struct, frozen=True):
    folder: Path
    entries: list[ManifestEntry]

    def find(self, name: str) -> ManifestEntry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        known = ", ".join(f"`{ir_flow.clip_name(entry.name)}`" for entry in self.entries[:20])
        raise InvalidManifest(f"the manifest has no flow `{ir_flow.clip_name(name)}`; hint: it has {known or 'none'}")

    def load(self, name: str) -> LoadedFlow:
        """Loads the flow of that name, and compares it with its manifest entry. Raises `InvalidManifest`, `InvalidFlow`."""
        entry = self.find(name)
        document = _decode(_read(_resolve_inside(self.folder, entry.ir_path)), f"`{ir_flow.clip_name(entry.ir_path)}`")
        parsed = parser.parse_flow(document)
        if trouble := _describe_difference(entry, parsed):
            raise InvalidManifest(f"flow `{ir_flow.clip_name(name)}`: {trouble}; hint: compile it again")
        assert isinstance(document, dict), "it was parsed"
        return LoadedFlow(entry=entry, document=document, flow=parsed)


def read_manifest(path: Path) -> FlowManifest:
    try:
        entries = msgspec.json.decode(_read(path), type=list[ManifestEntry])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as problem:
        raise InvalidManifest(f"`{path.name}` is no manifest: {problem}; hint: it is a JSON array of flows") from problem
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise InvalidManifest(f"the manifest has two flows with the name `{ir_flow.clip_name(entry.name)}`")
        seen.add(entry.name)
    return FlowManifest(path.absolute().parent, entries)


def make_entry(parsed: ir_flow.CheckedFlow, ir_path: str) -> ManifestEntry:
    """Makes the manifest entry of a flow. All kinds count, even control kinds, as in deployed compilers."""
    return ManifestEntry(
        name=parsed.name,
        source_file=parsed.source_file,
        policyRef=parsed.policy_ref,
        step_kinds=parsed.list_step_kinds(),
        inputs_schema_hash=compute_digest(parsed.inputs_schema),
        ir_path=ir_path,
    )


def write_manifest(path: Path, entries: list[ManifestEntry]) -> None:
    """Writes the entries sorted by name. The old manifest stays until the new one is complete."""
    for entry in entries:
        _check_relative(entry.ir_path)
    replace_file(path, msgspec.json.format(msgspec.json.encode(sorted(entries, key=lambda entry: entry.name)), indent=2) + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file atomically, so that no reader sees half of it."""
    import tempfile  # imported late: reading does not need it

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _decode(content: bytes, name: str) -> object:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as problem:
        raise InvalidManifest(f"{name} is no JSON: {problem}") from problem


def _describe_difference(entry: ManifestEntry, parsed: ir_flow.CheckedFlow) -> str:
    if parsed.name != entry.name:
        return f"its file holds the flow `{ir_flow.clip_name(parsed.name)}`"
    if compute_digest(parsed.inputs_schema) != entry.inputs_schema_hash:
        return "its inputs are not those that the manifest has the hash of"
    # The writer of the manifest may have left out the kinds that every runtime has.
    if sorted(entry.step_kinds) not in (parsed.list_step_kinds(), parsed.list_step_kinds(control=False)):
        return "its step kinds are not those of the manifest"
    return ""


def _check_relative(ir_path: str) -> PurePosixPath:
    inside = PurePosixPath(ir_path)
    if not ir_path or "\0" in ir_path or inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise InvalidManifest(f"`ir_path` is not a path inside the manifest's folder: `{ir_flow.clip_name(ir_path)}`")
    return inside


def _resolve_inside(folder: Path, ir_path: str) -> Path:
    top = folder.resolve()
    try:
        path = (top / _check_relative(ir_path)).resolve()
    except (OSError, RuntimeError) as problem:
        raise InvalidManifest(f"`{ir_flow.clip_name(ir_path)}` cannot be read") from problem
    if not path.is_relative_to(top):
        raise InvalidManifest(f"`ir_path` leads out of the manifest's folder: `{ir_flow.clip_name(ir_path)}`")
    return path


def _read(path: Path) -> bytes:
    name = ir_flow.clip_name(path.name)
    try:
        # A pipe would block the reader for ever.
        if path.exists() and not path.is_file():
            raise InvalidManifest(f"`{name}` is not a file")
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else "its name is none"
        raise InvalidManifest(f"`{name}` cannot be read: {said}") from problem
    if len(content) > LARGEST_FILE:
        raise InvalidManifest(f"`{name}` is larger than {LARGEST_FILE // 2**20} MiB")
    return content


def encode_canonical(value: object) -> bytes:
    """Raises `ValueError` for values that JSON lacks: not-a-number, infinities, half a surrogate pair."""
    import json  # imported late: a flow outside of manifests is never hashed

    # The standard library is used because deployed compilers hash its spelling of numbers.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def compute_digest(value: object) -> str:
    return f"sha256:{hashlib.sha256(encode_canonical(value)).hexdigest()}"
