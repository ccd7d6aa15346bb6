"""The list of kinds. It is needed before anything else, so it loads no kind and hardly any other module."""

import os
import sys

GROUP = "switchtower.flow_kinds"
CONTROL = ("dsl.emit", "finish", "switch")
_PACKAGE = "switchtower.engines.flow.runtime.kinds"
BUILT_IN = {
    "assert": f"{_PACKAGE}.basic:AssertKind",
    "file.read": f"{_PACKAGE}.files:FileReadKind",
    "file.write": f"{_PACKAGE}.files:FileWriteKind",
    "http.get": f"{_PACKAGE}.http:HttpGetKind",
    "http.request": f"{_PACKAGE}.http:HttpRequestKind",
    "log": f"{_PACKAGE}.basic:LogKind",
    "mcp.call": f"{_PACKAGE}.mcp:McpCallKind",
    "shell": f"{_PACKAGE}.shell:ShellKind",
    "sleep": f"{_PACKAGE}.basic:SleepKind",
}
SESSION_KINDS = {"agent.run": f"{_PACKAGE}.basic:RunAgentKind", "approval": f"{_PACKAGE}.basic:ApprovalKind"}
"""Only the daemon can do these."""
NEED_SHELL = frozenset({"shell"})


def list_step_kinds(*, tower: bool = False) -> list[str]:
    """Lists every kind that a flow may use here, sorted."""
    return sorted({*CONTROL, *BUILT_IN, *(SESSION_KINDS if tower else ()), *list_plugins()})


def list_plugins() -> dict[str, str]:
    """Returns the kinds of plugins, with the place of each. Our own kinds come first: their names are taken."""
    if not any(_mentions_kinds(folder) for folder in sys.path):
        return {}
    from importlib import metadata

    taken = {*CONTROL, *BUILT_IN, *SESSION_KINDS}
    found = sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value), reverse=True)
    return {entry.name: entry.value for entry in found if entry.name not in taken}


def _mentions_kinds(folder: str) -> bool:
    """Returns whether a package that is installed there has kinds. Importing the library for this takes longer than all the rest
    of a start.
    """
    try:
        installed = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(GROUP.encode() in _read_content(f"{path}/entry_points.txt") for path in installed)


def _read_content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to load than this to read
            return file.read()
    except OSError:
        return b""
