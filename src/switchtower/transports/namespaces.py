"""Whether the process that holds a socket of this machine is in a container, as `/proc` shows it: a process that has a number in
another process namespace besides ours. Linux only; elsewhere nothing is found, and the answer is no certainty at all."""

from pathlib import Path

_PROC = Path("/proc")


def is_outside_containers(inode: int, uid: int) -> bool:
    """Whether every process of `uid` that may hold the socket is certainly in our own process namespace.

    A process that lets nobody look at its files (the daemon itself is one) may be the holder, so it counts as one. That a
    holder was neither found nor possible is no certainty: the answer is no.
    """
    ours = _namespaces(_PROC / "self")
    found = False
    for folder in _processes():
        holds = _holds(folder, inode)
        if holds is False or (holds is None and _uid(folder) != uid):
            continue
        if _namespaces(folder) != ours:
            return False
        found = True
    return found and ours == 1


def _processes() -> list[Path]:
    try:
        return [folder for folder in _PROC.iterdir() if folder.name.isdigit()]
    except OSError:
        return []


def _holds(process: Path, inode: int) -> bool | None:
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


def _namespaces(process: Path) -> int:
    """In how many process namespaces, from ours down, it has a number. 0 when it has ended or that is not shown."""
    return len(_status(process, "NSpid:"))


def _uid(process: Path) -> int | None:
    """The one that it acts with."""
    uids = _status(process, "Uid:")
    return int(uids[1]) if len(uids) > 1 else None


def _status(process: Path, name: str) -> list[str]:
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(name)), [])
