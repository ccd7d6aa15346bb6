"""Caches the capabilities that runtimes report, one file per engine, for people to read (rep 9). No decision depends on the
cache. Only this module writes there. An engine's name becomes a file's name, so it must not lead anywhere else.

It also rewrites flows for runtimes that lack `finish` and nothing else. Where `finish` is only the end of the success path, a
flow without it ends the same way, and the runtime can run all of it at once. A `finish` that swallows a failure or is chosen by a
case cannot be left out; `delegation` runs such flows step by step.
"""

import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LARGEST = 1024 * 1024


class InvalidEngineName(Exception):
    """The name cannot be an engine's."""

    def __init__(self, engine: str) -> None:
        super().__init__(f"`{engine[:100]}` cannot be an engine's name; hint: use letters, digits, `_`, `-` and `.`")


def cache_folder() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # no `HOME`, and the system does not know the user: nothing can be stored
        home = Path(os.devnull)
    return home / ".trace_mind" / "runtime_capabilities"


def cache_path(engine: str) -> Path:
    """Raises `InvalidEngineName`."""
    if not _NAME.fullmatch(engine):
        raise InvalidEngineName(engine)
    return cache_folder() / f"{engine}.json"


def write_capabilities(engine: str, capabilities: dict[str, Any]) -> Path | None:
    """Returns the path of the file; None when it could not be written, which must not fail the run. Raises
    `InvalidEngineName`.
    """
    place = cache_path(engine)
    content = msgspec.json.format(msgspec.json.encode(capabilities), indent=2) + b"\n"
    if len(content) > _LARGEST:
        return None
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = place.parent / f".{os.urandom(8).hex()}.unfinished"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(place)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
    except OSError:
        return None
    return place


def read_capabilities(engine: str) -> dict[str, Any] | None:
    """Returns the last report; None when there is none, or none that can be read. Raises `InvalidEngineName`."""
    place = cache_path(engine)
    try:
        with place.open("rb") as file:
            return msgspec.json.decode(file.read(_LARGEST), type=dict[str, Any])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def clear_capabilities(engine: str) -> bool:
    """Returns whether there was a file. Raises `InvalidEngineName`, and `OSError` when the file cannot be removed."""
    try:
        cache_path(engine).unlink()
    except FileNotFoundError:
        return False
    return True


def list_engines() -> list[str]:
    """Lists the engines that have a cached report."""
    with suppress(OSError):
        return sorted(file.stem for file in cache_folder().glob("*.json") if _NAME.fullmatch(file.stem))
    return []


FINISH = "finish"


def remove_kinds(ir: dict[str, Any], lacking: Collection[str]) -> dict[str, Any] | None:
    """Returns the same flow without nodes of these kinds, or None when it would behave differently. Expects a valid IR."""
    if set(lacking) != {FINISH}:
        return None
    graph = ir["graph"]
    kind_of = {node["id"]: node["type"] for node in graph["nodes"]}
    dropped = {node["id"] for node in graph["nodes"] if node["type"] == FINISH}
    has_meaning = any(node.get("with") for node in graph["nodes"] if node["id"] in dropped)
    if has_meaning or len(dropped) == len(kind_of):
        return None
    for edge in graph["edges"]:
        if edge["from"] in dropped:
            return None
        if edge["to"] in dropped and (edge.get("on", "success") != "success" or kind_of[edge["from"]] == "switch"):
            return None
    nodes = [node for node in graph["nodes"] if node["id"] not in dropped]
    edges = [edge for edge in graph["edges"] if edge["to"] not in dropped]
    return {**ir, "graph": {**graph, "nodes": nodes, "edges": edges}}
