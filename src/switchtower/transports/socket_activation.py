"""Socket activation: systemd listens on a socket and hands it over. The daemon then starts with the first connection, and no
client is refused meanwhile.

systemd passes the number of sockets in `LISTEN_FDS` and the recipient in `LISTEN_PID`; the sockets are the descriptors from 3 on.
The file stays when we end: systemd continues to listen there.
"""

import logging
import os
import socket
import stat
from collections.abc import MutableMapping
from pathlib import Path

from switchtower.transports import unix

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3
MAX_SOCKETS = 64
_HALF_CLOSED_SECONDS = 2.0
"""The same as for a socket of this daemon."""
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_NOT_OURS = unix.FileIdentity(0, 0)
"""No file has these numbers, so none is removed."""


class ActivatedListener(unix.UnixListener):
    """Listens on a socket that was handed over."""

    handed: socket.socket

    async def start(self) -> None:
        self._file = _NOT_OURS
        await self._listen_on(self.handed)


def take_activated_socket(path: Path, environ: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """Returns the listening socket for this path, when one was handed to this very process. The variables are removed afterwards:
    no child process may take itself for the recipient. Further sockets are closed.
    """
    given = [environ.pop(name, "") for name in _VARIABLES]
    if given[0] != str(os.getpid()) or not given[1].isdigit():
        return None
    chosen: socket.socket | None = None
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + min(int(given[1]), MAX_SOCKETS)):
        handed = _open_if_listening(descriptor)
        if handed is None:
            continue
        if chosen is None and handed.family == socket.AF_UNIX and handed.getsockname() == str(path):
            chosen = handed
            chosen.setblocking(False)
            os.set_inheritable(descriptor, False)
        else:
            log.warning("a socket was handed over that is none of ours; it is closed")
            handed.close()
    return chosen


async def listen_or_activate(
    path: Path, accept: unix.Accept, *, max_line_bytes: int, output_limit_bytes: int, start_serving: bool = True
) -> unix.UnixListener:
    """Like `unix.listen`, but on the socket that was handed over for this path; where none was, on a new one."""
    handed = take_activated_socket(path)
    if handed is None:
        return await unix.listen(
            path, accept, max_line_bytes=max_line_bytes, output_limit_bytes=output_limit_bytes, start_serving=start_serving
        )
    listener = ActivatedListener(
        path,
        accept,
        max_line_bytes=max_line_bytes,
        output_limit_bytes=output_limit_bytes,
        half_closed_seconds=_HALF_CLOSED_SECONDS,
        owner_uid=os.geteuid(),
        complaint=None,
    )
    listener.handed = handed
    await listener.start()
    if start_serving:
        await listener.serve()
    log.info("listening on %s, which was handed over", path)
    return listener


def _open_if_listening(descriptor: int) -> socket.socket | None:
    """Returns the descriptor's socket, if it is one that listens."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        handed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    if handed.type == socket.SOCK_STREAM and handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return handed
    handed.detach()
    return None
