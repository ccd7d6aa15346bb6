"""The transports for `mcp.Client`.

The stdio transport has one JSON-RPC message per line, to and from our own process. It replaces the SDK's, which cannot bound a
line or find the processes that a server leaves behind. A line that is not a message is kept with the server's error output and
otherwise ignored. An overlong answer is replaced by an error for the caller.

The streamable HTTP transport is the SDK's own, over a client that bounds its reads and explains failures. An unreachable server
is an error answer here, not the end of the connection: it may be available at the next call. The SDK follows redirects within the
server's own origin only.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from switchtower.tools.mcp import config, message_filter, process

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.message import SessionMessage


TOO_LONG = f"the answer is longer than {process.LONGEST_LINE // 1024 // 1024} MiB"


class StdioTransport:
    def __init__(self, server: process.ServerProcess, messages: message_filter.MessageFilter, over: Callable[[], None]) -> None:
        """The process belongs to the caller, which started it and ends it."""
        self._reader = message_filter.FilteredReader(_Reader(server, messages), messages, over)
        self._writer = message_filter.FilteredWriter(_Writer(server), messages)

    async def __aenter__(self) -> tuple[message_filter.FilteredReader, message_filter.FilteredWriter]:
        return self._reader, self._writer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The SDK closes the streams."""


class _Reader:
    def __init__(self, server: process.ServerProcess, messages: message_filter.MessageFilter) -> None:
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
            if isinstance(line, process.OverlongLine):
                too_long = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=TOO_LONG)
                self._replacements += (
                    SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=asked, error=too_long))
                    for asked in self._filter.match_requests(line)
                )
                continue
            try:
                return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError:
                self._server.error_pipe.add(line[: process.KEEP_OF_LONG] + b"\n")
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
        """The input is closed when the process is ended: the SDK's final messages may still be pending."""


LONGEST_ANSWER = 8 * 1024 * 1024
_CONNECT_TIMEOUT = 10.0
_READ_TIMEOUT = 300.0
"""A call has its own, shorter limit; an event stream may be silent for long."""
UNREACHABLE = -32010
"""The JSON-RPC code of the error answers that we make."""


class HttpTransport:
    def __init__(self, endpoint: config.ServerEndpoint, messages: message_filter.MessageFilter, over: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._filter = messages
        self._over = over
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[message_filter.FilteredReader, message_filter.FilteredWriter]:
        from mcp.client.streamable_http import streamable_http_client

        async with self._stack:
            client = await self._stack.enter_async_context(_make_client(self._endpoint))
            reader, writer = await self._stack.enter_async_context(
                streamable_http_client(self._endpoint.url, http_client=client, max_sse_event_size=LONGEST_ANSWER)
            )
            self._stack = self._stack.pop_all()
        return message_filter.FilteredReader(reader, self._filter, self._over), message_filter.FilteredWriter(
            writer, self._filter
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


def _make_client(endpoint: config.ServerEndpoint) -> "httpx2.AsyncClient":
    import httpx2

    class Limited(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            length = 0
            async for chunk in self._inner:
                length += len(chunk)
                if length > LONGEST_ANSWER:
                    raise httpx2.StreamError(f"the answer is longer than {LONGEST_ANSWER // 1024 // 1024} MiB")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    class BoundedHttpClient(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                response = await super().send(request, **options)
            except httpx2.TransportError as error:
                if request.method != "POST":
                    raise
                return _answer(request, f"the server cannot be reached ({type(error).__name__})")
            refusal = _refusal(request, response)
            if refusal is not None:
                await response.aclose()
                return _answer(request, refusal)
            if not _kind_of(response).startswith("text/event-stream"):
                response.stream = Limited(response.stream)
            return response

    def _answer(request: httpx2.Request, message: str) -> httpx2.Response:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": UNREACHABLE, "message": message}}
        return httpx2.Response(502, json=error, request=request)

    def _refusal(request: httpx2.Request, response: httpx2.Response) -> str | None:
        """Returns an explanation that the SDK lacks. The SDK itself handles an unknown session or method."""
        if response.headers.get("content-encoding", "identity") != "identity":
            return "the server sent a compressed answer, which it was not asked for"
        status = response.status_code
        if request.method == "POST" and status >= 400 and status != 404 and "json" not in _kind_of(response):
            hint = "; hint: check the `headers` of its entry" if status in (401, 403) else ""
            return f"the server answered HTTP {status}{hint}"
        return None

    def _kind_of(response: httpx2.Response) -> str:
        return str(response.headers.get("content-type", "")).lower()

    timeout = httpx2.Timeout(_CONNECT_TIMEOUT, read=_READ_TIMEOUT)
    return BoundedHttpClient(headers={"accept-encoding": "identity", **endpoint.headers}, timeout=timeout)
