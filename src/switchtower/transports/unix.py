"""Lines over a Unix socket that only its owner can reach. It handles frames, not their content.

A client may shut down its writing side after its request (`echo … | nc -NU`): it still gets its answers. Only the receiver knows
which are pending. A `RespondingReceiver` is asked; otherwise such a connection stays open until nothing was sent to it for a
while. A client that has closed completely is recognised at once.

The connected clients of a listener, and the size of each output buffer, can be listed.

The file of a Unix socket: private from its first instant, never taken from a live process, removed only by its maker."""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import select
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from switchtower.transports import socket_owner, stream
from switchtower.transports.stream import ConnectionOrigin, LineSplitter, OversizedMessage, Packet, Receiver, RespondingReceiver

if TYPE_CHECKING:
    from switchtower.transports.http import HttpListener


PATH_LIMIT = 107 if sys.platform == "linux" else 103

_BACKLOG = 1024


class FileIdentity(NamedTuple):
    """Distinguishes our socket file from a later one of the same name."""

    device: int
    inode: int


def bind_private(path: Path) -> tuple[socket.socket, FileIdentity]:
    """Returns a listening socket at `path`, readable and writable by its owner alone. Makes its folder if there is none."""
    name = os.fsencode(path)
    if len(name) > PATH_LIMIT:
        raise stream.PathTooLong(
            f"`{path}` has {len(name)} bytes, at most {PATH_LIMIT} fit",
            hint="choose a shorter path, such as one in `/run/user`",
        )
    _make_private(path.parent)
    with _lock_folder(path.parent):
        _remove_stale_socket(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            others_masked = os.umask(0o177)
            try:
                sock.bind(name)
            finally:
                os.umask(others_masked)
            # A socket that is bound but does not listen looks like a leftover to the next process, so this too happens under the
            # lock.
            sock.listen(_BACKLOG)
            status = path.lstat()
        except BaseException:
            sock.close()
            raise
    sock.setblocking(False)
    return sock, FileIdentity(status.st_dev, status.st_ino)


def remove_if_ours(path: Path, identity: FileIdentity) -> None:
    """Removes the socket file unless another one has replaced it."""
    with contextlib.suppress(FileNotFoundError), _lock_folder(path.parent):
        status = path.lstat()
        if (status.st_dev, status.st_ino) == identity:
            path.unlink()


def _make_private(folder: Path) -> None:
    for missing in reversed([part for part in (folder, *folder.parents) if not part.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise stream.PathTaken(f"`{folder}` is not a folder", hint="choose another path")
    ours = status.st_uid in (os.geteuid(), 0)
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not ours or (others_write and not status.st_mode & stat.S_ISVTX):
        remedy = f"run `chmod go-w {folder}` or choose another path" if ours else "choose a path in a folder of your own"
        raise stream.FolderNotPrivate(f"`{folder}`", hint=remedy)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Two processes that start at once must not both find the same leftover and remove each other's socket."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale_socket(path: Path) -> None:
    """Removes the leftover of a process that has ended; raises if anything else has that path."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise stream.PathTaken(f"`{path}`", hint="move it away or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        outcome = probe.connect_ex(os.fsencode(path))
    if outcome == errno.ECONNREFUSED:
        path.unlink()
    elif outcome != errno.ENOENT:
        # Any other error, even a full backlog, means that a process is alive, or that we must not replace it.
        raise stream.AddressInUse(f"`{path}`", hint="stop that process or choose another path")


_log = logging.getLogger(__name__)

Accept = Callable[[ConnectionOrigin], Receiver | None]
"""Returns None to refuse the connection."""

BACKLOG = 100
"""The clients that may wait to be accepted."""

_ROOT = 0

_ASK_AGAIN_SECONDS = 0.05
"""The seconds between two checks whether a receiver still has answers for a client that has stopped writing."""

_FLUSH_SECONDS = 5.0
"""The seconds that a closed connection may take to drain before it is aborted."""


class UnixListener:
    """A listening socket and the connections that it accepted."""

    def __init__(
        self,
        path: Path,
        accept: Accept,
        *,
        max_line_bytes: int,
        output_limit_bytes: int,
        half_closed_seconds: float,
        owner_uid: int,
        complaint: OversizedMessage | None,
    ) -> None:
        self.path = path
        self.accept = accept
        self.max_line_bytes = max_line_bytes
        self.output_limit_bytes = output_limit_bytes
        self.half_closed_seconds = half_closed_seconds
        self.owner_uid = owner_uid
        self.format_oversized = complaint
        self.connections: set[UnixConnection] = set()
        self._emptied = asyncio.Event()
        self._server: asyncio.AbstractServer | None = None
        self._file: FileIdentity | None = None

    async def start(self) -> None:
        """Listens. Clients can connect, and are accepted once `serve` is called."""
        sock, self._file = bind_private(self.path)
        await self._listen_on(sock)

    async def _listen_on(self, sock: socket.socket) -> None:
        sock.listen(BACKLOG)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: UnixConnection(self), sock=sock, backlog=BACKLOG, start_serving=False
        )

    async def serve(self) -> None:
        assert self._server is not None, "it was started, and not closed"
        await self._server.start_serving()

    async def close(self, *, grace: float = 5.0) -> None:
        """Stops listening, flushes and closes every connection; aborts those that have not drained within `grace` seconds."""
        if self._server is None or self._file is None:
            return
        server, self._server = self._server, None
        remove_if_ours(self.path, self._file)
        server.close()
        for connection in tuple(self.connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._wait_until_empty()
        for connection in tuple(self.connections):
            connection.abort()
        await self._wait_until_empty()
        await server.wait_closed()

    def remove_connection(self, connection: "UnixConnection") -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def _wait_until_empty(self) -> None:
        while self.connections:
            self._emptied.clear()
            await self._emptied.wait()


async def listen(
    path: Path,
    accept: Accept,
    *,
    max_line_bytes: int,
    output_limit_bytes: int,
    half_closed_seconds: float = 2.0,
    owner_uid: int | None = None,
    complaint: OversizedMessage | None = None,
    start_serving: bool = True,
) -> UnixListener:
    """Listens at `path`. Raises an `errors.CannotListen` with the cause.

    Without `start_serving`, clients wait until `serve` is called.

    Only processes of `owner_uid` (by default the user of this process) and of root may connect. A line that is too long is
    reported as soon as that is known; with a `complaint`, which includes its size, once it has ended.
    """
    listener = UnixListener(
        path,
        accept,
        max_line_bytes=max_line_bytes,
        output_limit_bytes=output_limit_bytes,
        half_closed_seconds=half_closed_seconds,
        owner_uid=os.geteuid() if owner_uid is None else owner_uid,
        complaint=complaint,
    )
    await listener.start()
    if start_serving:
        await listener.serve()
    return listener


class UnixConnection(asyncio.Protocol):
    """One client; the `Stream` that its receiver holds."""

    origin: ConnectionOrigin

    def __init__(self, listener: UnixListener) -> None:
        self.writable = False
        self._listener = listener
        self._splitter = LineSplitter(listener.max_line_bytes)
        self._transport: asyncio.Transport
        self._receiver: Receiver
        self._accepted = False
        self._open = False
        self._sent = False
        self._timer: asyncio.TimerHandle | None = None

    # The methods that the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        origin = find_origin(transport, self._listener.path, self._listener.owner_uid)
        if origin is None:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._listener.output_limit_bytes)
        self.origin = origin
        self._listener.connections.add(self)
        self._open = self.writable = True
        try:
            receiver = self._listener.accept(self.origin)
            if receiver is None:
                _log.warning("refused a connection to %s from %s", self._listener.path, self.origin.address)
                self.abort()
                return
            self._receiver = receiver
            receiver.on_connected(self)
        except BaseException:
            self.abort()
            raise
        self._accepted = True

    def data_received(self, data: bytes) -> None:
        splitter = self._splitter
        if frames := splitter.feed(data):
            self._receiver.on_frames(frames)
        if splitter.oversized or splitter.oversizes:
            self._report_oversized()

    def eof_received(self) -> bool:
        if not self._open or _has_hung_up(self._transport):
            return False
        if frames := self._splitter.finish():
            self._receiver.on_frames(frames)
        if self._splitter.oversizes:
            self._report_oversized()
        self._wait_for_quiet()
        return True

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        if self._open:
            self.writable = True
            self._receiver.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = self.writable = False
        if self._timer is not None:
            self._timer.cancel()
        self._listener.remove_connection(self)
        if self._accepted:
            self._receiver.on_disconnected()

    # The methods that the receiver calls: a `Stream`.

    def send(self, packet: Packet) -> None:
        if self._open:
            self._sent = True
            self._transport.write(packet.lines)

    def pause_reading(self) -> None:
        if self._open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._open:
            self._transport.resume_reading()

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self._open = self.writable = False
            self._transport.close()
            self._set_timer(_FLUSH_SECONDS, self._transport.abort)

    def abort(self) -> None:
        self._open = self.writable = False
        self._transport.abort()

    def _report_oversized(self) -> None:
        complaint, limit = self._listener.format_oversized, self._listener.max_line_bytes
        problems = (
            [complaint(size, limit) for size in self._splitter.oversizes]
            if complaint
            else [f"a line of more than {limit} bytes was thrown away"] * self._splitter.oversized
        )
        self._splitter.oversized = 0
        self._splitter.oversizes.clear()
        for problem in problems:
            self._receiver.on_oversized_frame(problem)

    def _wait_for_quiet(self) -> None:
        self._sent = False
        knows = isinstance(self._receiver, RespondingReceiver)
        self._set_timer(_ASK_AGAIN_SECONDS if knows else self._listener.half_closed_seconds, self._end_if_quiet)

    def _end_if_quiet(self) -> None:
        if isinstance(self._receiver, RespondingReceiver):
            busy = self._receiver.has_pending_responses()
        else:
            busy = self._sent or self._transport.get_write_buffer_size() > 0
        if busy and not _has_hung_up(self._transport):
            self._wait_for_quiet()
        else:
            self.close()

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)


def find_origin(transport: asyncio.Transport, path: Path, owner_uid: int) -> ConnectionOrigin | None:
    """Returns the origin of a connection to the socket at `path`. None for a process of another user, and for one that has
    already ended: nothing more can be known of it. Where the system does not report the process, only the socket's permissions
    exclude others.
    """
    peer = socket_owner.find_peer_process(transport.get_extra_info("socket"))
    if peer.uid not in (None, owner_uid, _ROOT):
        _log.warning("refused a connection to %s from uid %s", path, peer.uid)
        return None
    if peer.is_gone:
        _log.warning("refused a connection to %s from process %s, which has ended", path, peer.pid)
        return None
    address = "" if peer.pid is None else f"pid {peer.pid}"
    return ConnectionOrigin(transport="unix", address=address, pid=peer.pid, pid_started_at=peer.started_at)


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Returns whether the client has closed, and not only stopped writing: then the socket is shut down in both directions."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


class ListenerConnection(NamedTuple):
    receiver: Receiver | None
    """None for a client that requests pages, or has not been admitted yet."""
    waiting_bytes: int


def list_http_connections(listener: "HttpListener") -> Iterator[ListenerConnection]:
    for connection in tuple(listener._site.state.connections):
        transport = connection.transport
        receiver = getattr(connection, "_receiver", None)
        yield ListenerConnection(receiver, 0 if transport is None else transport.get_write_buffer_size())


def list_unix_connections(listener: UnixListener) -> Iterator[ListenerConnection]:
    for connection in tuple(listener.connections):
        transport = getattr(connection, "_transport", None)  # neither exists before the client was admitted
        receiver = getattr(connection, "_receiver", None)
        yield ListenerConnection(receiver, 0 if transport is None else transport.get_write_buffer_size())
