"""Whether the process that holds a socket of this machine is in a container, as `/proc` shows it: a process that has a number in
another process namespace besides ours. Linux only; elsewhere nothing is found, and the answer is no certainty at all."""

from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_ENDED = (["Z"], ["X"])


class _Process(NamedTuple):
    """One reading of `/proc/PID/status`: its lines belong to the same moment."""

    uid: int
    """The one that it acts with."""
    namespaces: int
    """In how many process namespaces, from ours down, it has a number. 0 when that is not shown."""
    has_ended: bool
    """Every thread has ended and only the exit code is left: it holds no socket, though its files look closed to other users."""


def is_outside_containers(inode: int, uid: int) -> bool:
    """Whether every process of `uid` that may hold the socket is certainly in our own process namespace.

    A process that lets nobody look at its files (the daemon itself is one) may be the holder, so it counts as one. A process that
    ends during the search does not. That a holder was neither found nor possible is no certainty: the answer is no.
    """
    ours = _read_status(_PROC / "self")
    found = False
    for folder in _list_processes():
        holds = _is_holding(folder, inode)
        process = None if holds is False else _read_status(folder)
        if process is None or process.has_ended or (holds is None and process.uid != uid):
            continue
        if ours is None or process.namespaces != ours.namespaces:
            return False
        found = True
    return found and ours is not None and ours.namespaces == 1


def _list_processes() -> list[Path]:
    try:
        return [folder for folder in _PROC.iterdir() if folder.name.isdigit()]
    except OSError:
        return []


def _is_holding(process: Path, inode: int) -> bool | None:
    """None when its files are not ours to see."""
    name = f"socket:[{inode}]"
    try:
        files = list((process / "fd").iterdir())
    except PermissionError:
        return None
    except OSError:
        return False  # it has ended meanwhile
    for file in files:
        try:
            if str(file.readlink()) == name:
                return True
        except OSError:
            continue
    return False


def _read_status(process: Path) -> _Process | None:
    """None when the process has ended and its exit code was read, or when nothing is shown of it."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    uids, state, threads = (fields.get(name, []) for name in ("Uid", "State", "Threads"))
    if len(uids) < 2:
        return None
    # The first thread may end before the others, which keep the files: only the last one's end counts.
    has_ended = state[:1] in _ENDED and threads == ["1"]
    return _Process(int(uids[1]), len(fields.get("NSpid", [])), has_ended)
