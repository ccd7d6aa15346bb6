"""A wire between a store and its server that can be cut, and that can swallow or hold what goes over it."""

import asyncio
import contextlib
from pathlib import Path


class _ProxiedConnection:
    """One connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.held: list[bytes] = []


class PostgresProxy:
    def __init__(self, folder: Path, server_socket: Path) -> None:
        self._path = folder / ".s.PGSQL.5432"
        self._server_socket = server_socket
        self._links: set[_ProxiedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self.swallows_answers = False
        self.holds_requests = False
        self.is_down = False
        self.swallows_after = b""
        """From the first request with this in it, answers are swallowed."""
        self.holds_from = b""
        """From the first request with this in it, requests are held."""
        self.answered_bytes = 0
        self.swallowed = asyncio.Event()
        """An answer was swallowed: what it answers has happened."""
        self.holding = asyncio.Event()
        """A request is held: what it asks has not happened."""

    def make_dsn(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._path.parent}"

    async def open(self) -> None:
        self._listening = await asyncio.start_unix_server(self._on_connected, str(self._path))

    async def close(self) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for link in list(self._links):
            for end in (link.client, link.server):
                end.transport.abort()

    def cut_clients(self) -> list[_ProxiedConnection]:
        """Only their side: the server does not know yet."""
        links = list(self._links)
        for link in links:
            link.client.transport.abort()
        return links

    @staticmethod
    async def deliver(links: list[_ProxiedConnection]) -> None:
        """What was held arrives after all, and the server has come to the end of it."""
        for link in links:
            for piece in link.held:
                link.server.write(piece)
            if link.held:
                link.server.write_eof()  # it reads all of it first, and then goes
                await link.server.drain()

    async def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(str(self._server_socket))
        except OSError:
            writer.transport.abort()
            return
        link = _ProxiedConnection(writer, server_writer)
        self._links.add(link)
        for task in (
            asyncio.create_task(self._forward_requests(reader, link)),
            asyncio.create_task(self._forward_answers(server_reader, link)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward_requests(self, reader: asyncio.StreamReader, link: _ProxiedConnection) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65_536):
                if self.swallows_after and self.swallows_after in piece:
                    self.swallows_answers = True
                if self.holds_requests or (self.holds_from and self.holds_from in piece):
                    link.held.append(piece)
                    self.holding.set()
                else:
                    link.server.write(piece)
        if not link.held:
            link.server.transport.abort()

    async def _forward_answers(self, reader: asyncio.StreamReader, link: _ProxiedConnection) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65_536):
                self.answered_bytes += len(piece)
                if self.swallows_answers:
                    self.swallowed.set()
                else:
                    link.client.write(piece)
        link.client.transport.abort()
        link.server.transport.abort()
        self._links.discard(link)
