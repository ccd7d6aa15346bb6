"""The streamable HTTP transport: the SDK's own, over a client that bounds what it reads and that explains itself. A server
that cannot be reached is an answer here, not the end of the connection: it may be back at the next call.

Redirects are followed within the server's own origin only; that is the SDK's doing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from switchtower.tools.mcp import config, screen

if TYPE_CHECKING:
    import httpx2

LONGEST_ANSWER = 8 * 1024 * 1024
_CONNECT_TIMEOUT = 10.0
_READ_TIMEOUT = 300.0
"""A call has its own, shorter limit; a stream of news may be silent for long."""
UNREACHABLE = -32010
"""The JSON-RPC code of the answers that we make up."""


class HttpTransport:
    def __init__(self, endpoint: config.ServerEndpoint, messages: screen.MessageFilter, over: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._filter = messages
        self._over = over
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[screen.FilteredReader, screen.FilteredWriter]:
        from mcp.client.streamable_http import streamable_http_client

        async with self._stack:
            client = await self._stack.enter_async_context(_make_client(self._endpoint))
            reader, writer = await self._stack.enter_async_context(
                streamable_http_client(self._endpoint.url, http_client=client, max_sse_event_size=LONGEST_ANSWER)
            )
            self._stack = self._stack.pop_all()
        return screen.FilteredReader(reader, self._filter, self._over), screen.FilteredWriter(writer, self._filter)

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

    class Client(httpx2.AsyncClient):
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
        """What the SDK would not explain. That a session or a method is not found, it understands by itself."""
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
    return Client(headers={"accept-encoding": "identity", **endpoint.headers}, timeout=timeout)
