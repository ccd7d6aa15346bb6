"""What stands between one node and its database: passes everything on, until it is shut, or holds everything back.

It knows nothing of PostgreSQL. It listens where the node believes the server to be.
"""

import asyncio
import contextlib
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class _ProxyEnd(asyncio.Protocol):
    """One of the two ends of a connection that goes through."""

    def __init__(self, gate: "DatabaseProxy") -> None:
        self.gate = gate
        self.other: _ProxyEnd | None = None
        self.transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.gate.ends.add(self)
        if self.gate.held:
            transport.pause_reading()
        if self._early:
            transport.write(self._early)
            self._early = b""

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.take(data)

    def take(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
        else:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort() if exc else self.other.transport.close()


class _NodeProxyEnd(_ProxyEnd):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.gate.is_shut:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        super().connection_made(transport)
        self.other = _ProxyEnd(self.gate)
        self.other.other = self
        self.gate.keep(asyncio.create_task(self._connect_server(self.other)))

    async def _connect_server(self, server: _ProxyEnd) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: server, str(self.gate.server))
        except OSError:
            assert self.transport is not None
            self.transport.abort()


class DatabaseProxy:
    def __init__(self, folder: Path, server: Path) -> None:
        """The node is to be told `folder`; `server` is the real one's socket."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.server = server
        self.ends: set[_ProxyEnd] = set()
        self.is_shut = False
        self.held = False
        self._listening: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(lambda: _NodeProxyEnd(self), str(self.folder / SOCKET))

    def keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def shut(self) -> None:
        """All connections break, and no new one comes about."""
        self.is_shut = True
        self._abort_all()

    def hold(self) -> None:
        """Connections stay as they are, and nothing gets through them any more, as when a network loses its packets."""
        self.held = True
        for end in self.ends:
            if end.transport is not None and not end.transport.is_closing():
                end.transport.pause_reading()

    def restore(self) -> None:
        self.is_shut = self.held = False
        for end in self.ends:
            if end.transport is not None and not end.transport.is_closing():
                with contextlib.suppress(RuntimeError):
                    end.transport.resume_reading()

    def _abort_all(self) -> None:
        for end in list(self.ends):
            if end.transport is not None:
                end.transport.abort()

    async def close(self) -> None:
        self._abort_all()
        for task in self._tasks:
            task.cancel()
        if self._listening is not None:
            self._listening.close()
