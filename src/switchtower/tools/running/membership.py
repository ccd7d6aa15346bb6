"""Whether somebody is part of a run that is under way: a process by its number, or whoever holds a socket. By the marks that
a run's processes carry, so that none can hide behind another name."""

import os

from switchtower.tools.running import adoption, marks, proc

SHELL_PREFIX = "sh_"
"""Begins the ids of people's own commands: what they start speaks for them."""


def run_of(pid: int) -> str | None:
    """The run under way that it is part of."""
    limits = proc.limits_of(pid)
    if limits is None:
        return None
    return next((run_id for run_id in _runs() if marks.Mark(run_id).sign().is_on(pid, limits)), None)


def run_holding_socket(inode: int) -> str | None:
    """The run whose process has this socket among its files."""
    signs = {run_id: marks.Mark(run_id).sign() for run_id in _runs()}
    if not signs:
        return None
    name = f"socket:[{inode}]"
    for pid in proc.all_pids():
        limits = proc.limits_of(pid)
        if limits is None:
            continue
        run_id = next((run_id for run_id, sign in signs.items() if sign.is_on(pid, limits)), None)
        if run_id is not None and name in _files_of(pid):
            return run_id
    return None


def _runs() -> list[str]:
    return [run_id for run_id in adoption.runs_under_way() if not run_id.startswith(SHELL_PREFIX)]


def _files_of(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    files = set()
    try:
        for number in os.listdir(folder):  # noqa: PTH208 - of a process that may end at any moment
            files.add(os.readlink(f"{folder}/{number}"))  # noqa: PTH115
    except OSError:
        pass  # what it has let go of meanwhile it does not hold
    return files
