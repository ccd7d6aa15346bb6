"""The stdio transport: one JSON-RPC message a line, to and from a process of our own. Made for `mcp.Client`, in place of the
SDK's, which would not let us bound a line or find what a server leaves behind.

A line that is no message is kept with the server's error output and otherwise ignored. An answer that is too long is
replaced by an error to whoever asked.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from switchtower.tools.mcp import pipes, process, screen

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

TOO_LONG = f"the answer is longer than {pipes.LONGEST_LINE // 1024 // 1024} MiB"


class StdioTransport:
    def __init__(self, server: process.ServerProcess, messages: screen.MessageFilter, over: Callable[[], None]) -> None:
        """The process is the caller's, who started it and ends it."""
        self._reader = screen.FilteredReader(_Reader(server, messages), messages, over)
        self._writer = screen.FilteredWriter(_Writer(server), messages)

    async def __aenter__(self) -> tuple[screen.FilteredReader, screen.FilteredWriter]:
        return self._reader, self._writer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The streams are the SDK's to close."""


class _Reader:
    def __init__(self, server: process.ServerProcess, messages: screen.MessageFilter) -> None:
        self._server = server
        self._filter = messages
        self._replacements: deque[SessionMessage] = deque()

    async def receive(self) -> "SessionMessage":
        import anyio
        import mcp_types
        from mcp.shared.message import SessionMessage

        while not self._replacements:
            line = await self._server.output.read_line()
            if line is None:
                raise anyio.EndOfStream
            if isinstance(line, pipes.OverlongLine):
                too_long = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=TOO_LONG)
                self._replacements += (
                    SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=asked, error=too_long))
                    for asked in self._filter.match_requests(line)
                )
                continue
            try:
                return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError:
                self._server.error_pipe.add(line[: pipes.KEEP_OF_LONG] + b"\n")
                self._filter.note_dropped()
                await self._filter.throttle()
        return self._replacements.popleft()

    async def aclose(self) -> None:
        self._server.output.discard()


class _Writer:
    def __init__(self, server: process.ServerProcess) -> None:
        self._server = server

    async def send(self, item: "SessionMessage") -> None:
        import anyio

        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            await self._server.input.write(line)
        except OSError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """The input is closed when the process is ended: the SDK's last words may still be on their way."""
