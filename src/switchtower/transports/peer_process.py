"""The process at the other end of a Unix socket, as the kernel names it. Linux only; elsewhere nothing is known.

A pid alone may become another process's. When it was started tells the two apart, and a pidfd of the socket itself shows that
the process which connected is still there.
"""

import errno
import os
import select
import socket
import struct
import sys
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")
"""What Linux tells of the process at the other end: pid, uid, gid."""
_SO_PEERPIDFD = 77
"""asm-generic/socket.h, since Linux 6.5. Python's socket module does not have it yet."""
_STATE, _STARTED = 0, 19
"""Places in `/proc/PID/stat`, counted behind the name."""
_PROCESS_ENDED = (b"Z", b"X", b"x")


class PeerProcess(NamedTuple):
    pid: int | None = None
    """0 for a process of another PID namespace; None where the system does not tell."""
    uid: int | None = None
    started_at: int | None = None
    """In clock ticks since the machine started; None for a process that cannot be seen."""
    is_gone: bool = False
    """It has ended since it connected."""


def find_peer_process(sock: socket.socket) -> PeerProcess:
    if sys.platform != "linux":
        return PeerProcess()
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if pid <= 0:
        return PeerProcess(0, uid)
    try:
        pidfd = _open_pidfd(sock, pid)
    except OSError:
        return PeerProcess(pid, uid, is_gone=True)
    try:
        started_at = read_start_time(pid)
        # Only now: as long as it has not ended, what was read of this pid is its own.
        return PeerProcess(pid, uid, started_at, is_gone=_has_ended(pidfd))
    finally:
        os.close(pidfd)


def read_start_time(pid: int) -> int | None:
    """When the process was started; None when it has ended or cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - for each connection
            # The name in parentheses may hold anything, parentheses too: the fields begin behind the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(fields) <= _STARTED or fields[_STATE] in _PROCESS_ENDED else int(fields[_STARTED])


if sys.platform == "linux":

    def _open_pidfd(sock: socket.socket, pid: int) -> int:
        """Of the very process that connected, where the kernel offers it. Raises `OSError` when that has ended."""
        try:
            return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as problem:
            if problem.errno != errno.ENOPROTOOPT:
                raise
            return os.pidfd_open(pid)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
