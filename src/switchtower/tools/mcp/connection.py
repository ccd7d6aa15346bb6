"""One connection to one MCP server, from its start to its end. A single task enters and leaves the SDK's client, as the SDK
requires; all other tasks only request calls.

A connection that has ended stays ended; a caller that needs another makes one. The reason of the end is kept.

The official SDK is imported with the first server: that takes about a second, so it happens on a thread. Its own log is silenced.
It quotes servers' messages and addresses, including tokens in addresses; this package reports what people need to know instead.

The reasons why a server did not start, ended or refused, as text for people: short, without secrets, and with a remedy where
one is known. Each continues a sentence that starts with the server."""

import asyncio
import importlib
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

import switchtower
from switchtower.core import redact
from switchtower.tools import concurrency, outcome
from switchtower.tools.mcp import config, message_filter, process, tool_list, transports

if TYPE_CHECKING:
    import mcp
    import mcp_types


_LONGEST = 500
_KEEP_ERROR_TEXT = 600
_LOST_SESSION = "Session terminated"
"""The SDK's message for a session that an HTTP server no longer knows."""


class FailureReason(Struct, frozen=True):
    text: str
    error_text: str = ""
    """The end of the server's error output, for people; a model needs only the text."""

    @property
    def full_text(self) -> str:
        return f"{self.text}; it wrote: {self.error_text}" if self.error_text else self.text


def is_lost_session(error: BaseException) -> bool:
    import mcp

    return isinstance(error, mcp.MCPError) and error.message == _LOST_SESSION


class FailureReasons:
    def __init__(self, server: config.ServerConfig) -> None:
        self._server = server
        self._redactor = redact.Redactor(server.secrets)

    def explain_error(self, error: Exception, of: "process.ServerProcess | None") -> FailureReason:
        """Explains why the server could not be started, or what broke the connection."""
        import mcp

        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        match error:
            case mcp.MCPError():
                return self.make_reason(f"cannot be used: {self.explain_refusal(error)}", of)
            case OSError() if of is None and isinstance(self._server.target, config.ServerProgram):
                return FailureReason(f"could not be started: {self._explain_start_error(error, self._server.target)}")
            case _:
                return self.make_reason(f"cannot be used ({type(error).__name__})", of)

    def explain_end(self, of: "process.ServerProcess | None") -> FailureReason:
        if of is None:
            return FailureReason("closed the connection")
        match of.exit_code:
            case None:
                return self.make_reason("closed its output", of)
            case code if code < 0:
                return self.make_reason(f"was ended by {_format_signal(-code)}", of)
            case code:
                return self.make_reason(f"ended with exit code {code}", of)

    def explain_refusal(self, error: BaseException) -> str:
        """Returns the server's error instead of a result, in its own words when it has some."""
        import mcp

        if isinstance(error, mcp.MCPError):
            return self._redact(error.message or "an error without a message")
        return f"an answer that does not follow the protocol ({type(error).__name__})"

    def make_reason(self, reason: str, of: "process.ServerProcess | None") -> FailureReason:
        heard = self._redactor.redact_text(of.error_pipe.render()).strip() if of is not None else ""
        return FailureReason(reason, heard[-_KEEP_ERROR_TEXT:])

    def _explain_start_error(self, error: OSError, program: config.ServerProgram) -> str:
        match error:
            case FileNotFoundError() if error.filename == program.cwd:
                return "its folder does not exist; hint: correct its `cwd`"
            case FileNotFoundError():
                return f"`{self._redact(program.argv[0])}` was not found; hint: install it, or correct its `command`"
            case _:
                return f"{error.strerror or type(error).__name__}; hint: try its `command` by hand"

    def _redact(self, text: str) -> str:
        text = self._redactor.redact_text(text[: 2 * _LONGEST]).strip()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_GOODBYE = 5.0
"""The seconds for the final messages over HTTP. A process is waited for until it has ended."""
_EXPLANATION = 5.0
"""The seconds that a call waits for the reason why the server died during it."""
_MOST_PROGRESS = 32
_LONGEST_PROGRESS = 1000

T = TypeVar("T")
CallProgressCallback = Callable[[str], Awaitable[None]]


class McpConnectionEnded(Exception):
    """The connection is over or was never established."""

    def __init__(self, why: FailureReason, *, by_itself: bool = False, unheard: bool = False) -> None:
        super().__init__(why.text)
        self.reason = why
        self.was_not_sent = unheard
        """The server has certainly not acted on the call: it may be retried."""
        self.by_itself = by_itself
        """The process was running and exited by itself: another one may stay."""


class McpTimedOut(Exception):
    """The server did not answer in time."""


class McpCallRefused(Exception):
    """The server answered with an error of the protocol, or with an invalid answer."""


class McpConnection:
    """Starts to connect as soon as it is made."""

    def __init__(
        self,
        server: config.ServerConfig,
        *,
        workspace: str,
        start_process: Callable[[], process.ServerProcess] | None,
        handshake: bool,
    ) -> None:
        """`start_process` is for a server that is a `ServerProgram`. With `handshake` only the protocol versions that start with
        a handshake are tried.
        """
        self.listing = tool_list.ToolList()
        self.handshaken = False
        """True when the server uses one of those versions."""
        self.failure_reason: FailureReason | None = None
        """The reason why it ended by itself."""
        self._server = server
        self._workspace = workspace
        self._handshake = handshake
        self._explain = FailureReasons(server)
        self._filter = message_filter.MessageFilter()
        self._settled = asyncio.Event()
        """This is set when the connection is established, or never will be."""
        self._closed = asyncio.Event()
        """This is set when the connection has ended, or should end."""
        self._gone = False
        """The server closed the connection."""
        self._client: mcp.Client | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._start_process = start_process
        self._process: process.ServerProcess | None = None
        self._owner = asyncio.create_task(self._own_session())

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not self._closed.is_set()

    async def start(self, timeout_s: float) -> None:
        """Returns when the server's tools are known. Otherwise raises `McpConnectionEnded`, and no part of the server is left."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except BaseException as error:
            await self.stop()
            if not isinstance(error, TimeoutError):
                raise
            raise McpConnectionEnded(
                self._explain.make_reason("was not ready in time; hint: try it by hand", self._process)
            ) from None
        if not self.is_alive:
            await self.stop()
            raise McpConnectionEnded(self._known_reason, by_itself=self._process is not None and self._gone)

    async def refresh(self, timeout_s: float) -> None:
        """Fetches the tools again when they changed, or may have. Raises like `call`."""
        tells_of_changes = isinstance(self._server.target, config.ServerProgram)
        if self._filter.tools_changed or not tells_of_changes:
            self._filter.tools_changed = False
            self.listing = await self._wait_for_answer(tool_list.fetch_tools(self._get_client()), timeout_s)

    async def call(
        self, tool: str, args: Mapping[str, Any], *, limit_s: float, tell: CallProgressCallback
    ) -> "mcp_types.CallToolResult":
        """Raises `McpConnectionEnded`, `McpTimedOut` or `McpCallRefused`. An abandoned call is cancelled at the server, without
        waiting.
        """
        news = _CallProgress()
        calling = self._get_client().call_tool(tool, dict(args), progress_callback=news)
        return await self._wait_for_answer(calling, limit_s, progress=news, tell=tell)

    async def stop(self) -> None:
        """Ends the connection, and the server when it is our process. It runs to its end even when cancelled."""
        await concurrency.run_to_completion(self._stop())

    async def _stop(self) -> None:
        self._closed.set()
        if not self._settled.is_set():
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_GOODBYE)
        self._owner.cancel()
        await asyncio.wait({self._owner})

    async def _own_session(self) -> None:
        try:
            if self._start_process is not None:
                self._process = self._start_process()
            # The SDK is imported while the server starts.
            await asyncio.to_thread(load_sdk)
            await self._serve_session()
        except Exception as error:
            # The end of the process explains more than the SDK's resulting error.
            if self._process is None or not self._gone:
                self.failure_reason = self.failure_reason or self._explain.explain_error(error, self._process)
        finally:
            self._client = None
            self._closed.set()
            for call in tuple(self._calls):
                call.cancel()
            try:
                if self._process is not None:
                    await self._process.end()
            finally:
                self.failure_reason = self.failure_reason or self._explain.explain_end(self._process)
                self._settled.set()

    async def _serve_session(self) -> None:
        import mcp
        import mcp_types

        async with mcp.Client(
            self._make_transport(),
            mode="legacy" if self._handshake else "auto",
            cache=None,
            client_info=mcp_types.Implementation(name="switchtower", version=switchtower.__version__),
            list_roots_callback=self._list_roots,
        ) as client:
            self.handshaken = client.session.initialize_result is not None
            self.listing = await tool_list.fetch_tools(client)
            self._client = client
            self._settled.set()
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._closed.wait()
            finally:
                listening.cancel()

    def _make_transport(self) -> transports.StdioTransport | transports.HttpTransport:
        if self._process is not None:
            return transports.StdioTransport(self._process, self._filter, self._record_loss)
        assert isinstance(self._server.target, config.ServerEndpoint)
        return transports.HttpTransport(self._server.target, self._filter, self._record_loss)

    def _record_loss(self) -> None:
        self._gone = True
        self._closed.set()

    async def _listen(self, client: "mcp.Client") -> None:
        """Newer protocol versions report changed tools only to subscribers; the filter then sees the notification."""
        if self.handshaken or not isinstance(self._server.target, config.ServerProgram):
            return
        try:
            async with client.listen(tools_list_changed=True):
                await self._closed.wait()
        except Exception:
            return  # the server does not support it, or has closed the connection

    async def _list_roots(self, context: object) -> "mcp_types.ListRootsResult":
        import mcp_types

        root = Path(self._workspace)
        return mcp_types.ListRootsResult(roots=[mcp_types.Root.model_validate({"uri": root.as_uri(), "name": root.name})])

    def _get_client(self) -> "mcp.Client":
        if self._client is None or self._closed.is_set():
            raise McpConnectionEnded(self._known_reason)
        return self._client

    async def _wait_for_answer(
        self,
        asking: Coroutine[Any, Any, T],
        limit_s: float,
        *,
        progress: "_CallProgress | None" = None,
        tell: CallProgressCallback = outcome.ignore_progress,
    ) -> T:
        """Runs the call in a separate task: abandoning a call means notifying the server, and the caller should not wait for
        that.
        """
        progress = progress or _CallProgress()
        call = asyncio.create_task(asking)
        self._calls.add(call)
        call.add_done_callback(self._forget)
        call.add_done_callback(progress.wake)
        try:
            async with asyncio.timeout(limit_s):
                while not call.done():
                    for text in await progress.wait_for_progress():
                        await tell(text)
        except TimeoutError:
            if not call.done():
                raise McpTimedOut(f"did not answer within {limit_s:g} s") from None
        finally:
            call.cancel()
        for text in progress.take_rest():
            await tell(text)
        return await self._get_outcome(call)

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # retrieved, so that asyncio does not report it as never retrieved

    async def _get_outcome(self, call: asyncio.Task[T]) -> T:
        error = asyncio.CancelledError() if call.cancelled() else call.exception()
        if error is None:
            return call.result()
        if is_lost_session(error):
            self.failure_reason = FailureReason("has forgotten our session")
            self._closed.set()
            raise McpConnectionEnded(self.failure_reason, unheard=True) from None
        if self._closed.is_set() or (self._process is not None and self._process.input.broken):
            # The owner task is cleaning up; when it is done, it knows the reason.
            await asyncio.wait({self._owner}, timeout=_EXPLANATION)
            raise McpConnectionEnded(self._known_reason) from None
        raise McpCallRefused(self._explain.explain_refusal(error)) from None

    @property
    def _known_reason(self) -> FailureReason:
        return self.failure_reason or FailureReason("is gone")


class _CallProgress:
    """The progress of one call. When there is too much, the oldest is dropped: it is only for people to watch."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=_MOST_PROGRESS)
        self._woken = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._texts.append(f"{share}: {message[:_LONGEST_PROGRESS]}\n" if message else f"{share}\n")
        self._woken.set()

    async def wait_for_progress(self) -> list[str]:
        await self._woken.wait()
        self._woken.clear()
        return self.take_rest()

    def take_rest(self) -> list[str]:
        texts, self._texts = [*self._texts], deque(maxlen=_MOST_PROGRESS)
        return texts

    def wake(self, call: object) -> None:
        self._woken.set()


_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
"""`client` is a logger of the SDK too."""


def load_sdk() -> None:
    """Imports the SDK. It blocks; a second call does nothing."""
    for name in ("mcp", "mcp.client.streamable_http", "httpx2"):
        importlib.import_module(name)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
