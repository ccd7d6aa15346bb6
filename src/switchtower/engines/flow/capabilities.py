"""What runtimes have said of themselves, one file an engine, for people to look at (rep 9). Nothing is decided by it.

Only this room writes there. An engine's name becomes a file's name, so it must not lead anywhere else.

Flows for runtimes that lack `finish` and nothing else. Pure.

Where it is nothing but the end of what went well, a flow without it ends the same, and the runtime can have all of it at once.
A `finish` that swallows a failure or is chosen by a case cannot be left out; `borrowing` directs such flows step by step."""

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
    except RuntimeError:  # no `HOME`, and a user that the system does not know: nothing can be kept
        home = Path(os.devnull)
    return home / ".trace_mind" / "runtime_capabilities"


def cache_path(engine: str) -> Path:
    """Raises `BadName`."""
    if not _NAME.fullmatch(engine):
        raise InvalidEngineName(engine)
    return cache_folder() / f"{engine}.json"


def write_capabilities(engine: str, capabilities: dict[str, Any]) -> Path | None:
    """Where it was written; None when it could not be, which must not hurt the run. Raises `BadName`."""
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
    """What was last heard; None when nothing was, or nothing that can be read. Raises `BadName`."""
    place = cache_path(engine)
    try:
        with place.open("rb") as file:
            return msgspec.json.decode(file.read(_LARGEST), type=dict[str, Any])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def clear_capabilities(engine: str) -> bool:
    """Whether there was something. Raises `BadName`, and `OSError` when it cannot be removed."""
    try:
        cache_path(engine).unlink()
    except FileNotFoundError:
        return False
    return True


def list_engines() -> list[str]:
    """Those of which something is known."""
    with suppress(OSError):
        return sorted(file.stem for file in cache_folder().glob("*.json") if _NAME.fullmatch(file.stem))
    return []


FINISH = "finish"


def remove_kinds(ir: dict[str, Any], lacking: Collection[str]) -> dict[str, Any] | None:
    """The same flow without nodes of these kinds, or None when it would not be the same. Takes an IR that was found valid."""
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
