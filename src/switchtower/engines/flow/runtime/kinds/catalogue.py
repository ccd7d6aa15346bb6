"""Which kinds there are. It is asked before anything else, so it loads none of them and hardly anything besides."""

import os
import sys

GROUP = "switchtower.flow_kinds"
CONTROL = ("dsl.emit", "finish", "switch")
_ROOM = "switchtower.engines.flow.runtime.kinds"
OURS = {
    "assert": f"{_ROOM}.plain:Assert",
    "file.read": f"{_ROOM}.files:Read",
    "file.write": f"{_ROOM}.files:Write",
    "http.get": f"{_ROOM}.http:Get",
    "http.request": f"{_ROOM}.http:Request",
    "log": f"{_ROOM}.plain:Log",
    "mcp.call": f"{_ROOM}.mcp:Call",
    "shell": f"{_ROOM}.shell:Shell",
    "sleep": f"{_ROOM}.plain:Sleep",
}
TOWERS = {"agent.run": f"{_ROOM}.tower:RunAgent", "approval": f"{_ROOM}.tower:Approval"}
"""Only a tower can do them."""
NEED_SHELL = frozenset({"shell"})


def step_kinds(*, tower: bool = False) -> list[str]:
    """All that a flow may use here, sorted."""
    return sorted({*CONTROL, *OURS, *(TOWERS if tower else ()), *plugins()})


def plugins() -> dict[str, str]:
    """The kinds that others brought, with where each is. Ours come first: their names are taken."""
    if not any(_mentions_kinds(folder) for folder in sys.path):
        return {}
    from importlib import metadata

    taken = {*CONTROL, *OURS, *TOWERS}
    found = sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value), reverse=True)
    return {entry.name: entry.value for entry in found if entry.name not in taken}


def _mentions_kinds(folder: str) -> bool:
    """Whether anything installed there has kinds. To load the library that knows takes longer than all the rest of a start."""
    try:
        installed = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(GROUP.encode() in _content(f"{path}/entry_points.txt") for path in installed)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to load than this to read
            return file.read()
    except OSError:
        return b""
