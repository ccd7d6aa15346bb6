"""One connection to one MCP server, from its start to its end. A single task of ours enters and leaves the SDK's client, as
that demands; everybody else only asks for calls.

A connection that has ended stays ended: who wants another makes one. Why it ended can be read from it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import switchtower
from switchtower.tools import outcome
from switchtower.tools.mcp import config, http, listing, process, reasons, screen, sdk, stdio
from switchtower.tools.running import patience

if TYPE_CHECKING:
    import mcp
    import mcp_types

_GOODBYE = 5.0
"""For last words over HTTP. A process takes the time that it takes to end it."""
_EXPLANATION = 5.0
"""How long a call waits to learn why the server died under it."""
_MOST_NEWS = 32
_LONGEST_NEWS = 1000

T = TypeVar("T")
Tell = Callable[[str], Awaitable[None]]


class Ended(Exception):
    """The connection is over or never came about."""

    def __init__(self, why: reasons.Why, *, by_itself: bool = False, unheard: bool = False) -> None:
        super().__init__(why.text)
        self.why = why
        self.unheard = unheard
        """The server has certainly not acted on the call: it may be made again."""
        self.by_itself = by_itself
        """A process that was there and left: another one may stay."""


class TimedOut(Exception):
    """The server did not answer in time."""


class Refused(Exception):
    """The server answered with an error of the protocol, or with what is no answer at all."""


class Connection:
    """Begins to connect as soon as it is made."""

    def __init__(
        self,
        server: config.ServerConfig,
        *,
        workspace: str,
        start_process: Callable[[], process.ServerProcess] | None,
        handshake: bool,
    ) -> None:
        """`start_process` is for a server that is a `Program`. With `handshake` only the versions of the protocol that
        begin with one are tried."""
        self.listing = listing.Listing()
        self.handshaken = False
        """Whether the server speaks one of those."""
        self.why: reasons.Why | None = None
        """Why it ended by itself."""
        self._server = server
        self._workspace = workspace
        self._handshake = handshake
        self._explain = reasons.Reasons(server)
        self._screen = screen.Screen()
        self._settled = asyncio.Event()
        """It is up, or will never be."""
        self._over = asyncio.Event()
        """It has ended, or should."""
        self._gone = False
        """The server hung up."""
        self._client: mcp.Client | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._start_process = start_process
        self._process: process.ServerProcess | None = None
        self._owner = asyncio.create_task(self._own())

    @property
    def alive(self) -> bool:
        return self._client is not None and not self._over.is_set()

    async def start(self, patience_s: float) -> None:
        """Returns when the server's tools are known. Otherwise raises `Ended`, and nothing is left of the server."""
        try:
            async with asyncio.timeout(patience_s):
                await self._settled.wait()
        except BaseException as error:
            await self.stop()
            if not isinstance(error, TimeoutError):
                raise
            raise Ended(self._explain.why("was not ready in time; hint: try it by hand", self._process)) from None
        if not self.alive:
            await self.stop()
            raise Ended(self._known_reason, by_itself=self._process is not None and self._gone)

    async def refresh(self, patience_s: float) -> None:
        """Asks for the tools again when they changed, or may have. Raises like `call`."""
        tells_of_changes = isinstance(self._server.target, config.Program)
        if self._screen.tools_changed or not tells_of_changes:
            self._screen.tools_changed = False
            self.listing = await self._answer(listing.fetch(self._living()), patience_s)

    async def call(self, tool: str, args: Mapping[str, Any], *, limit_s: float, tell: Tell) -> "mcp_types.CallToolResult":
        """Raises `Ended`, `TimedOut` or `Refused`. A call that is given up is cancelled at the server, without waiting."""
        news = _News()
        calling = self._living().call_tool(tool, dict(args), progress_callback=news)
        return await self._answer(calling, limit_s, news=news, tell=tell)

    async def stop(self) -> None:
        """Ends the connection, and the server when it is our process. Goes to its end even when cancelled."""
        await patience.to_the_end(self._stop())

    async def _stop(self) -> None:
        self._over.set()
        if not self._settled.is_set():
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_GOODBYE)
        self._owner.cancel()
        await asyncio.wait({self._owner})

    async def _own(self) -> None:
        try:
            if self._start_process is not None:
                self._process = self._start_process()
            # While the server gets ready, so do we.
            await asyncio.to_thread(sdk.load)
            await self._converse()
        except Exception as error:
            # A process that is gone explains more than what the SDK stumbled over.
            if self._process is None or not self._gone:
                self.why = self.why or self._explain.error(error, self._process)
        finally:
            self._client = None
            self._over.set()
            for call in tuple(self._calls):
                call.cancel()
            try:
                if self._process is not None:
                    await self._process.end()
            finally:
                self.why = self.why or self._explain.end(self._process)
                self._settled.set()

    async def _converse(self) -> None:
        import mcp
        import mcp_types

        async with mcp.Client(
            self._transport(),
            mode="legacy" if self._handshake else "auto",
            cache=None,
            client_info=mcp_types.Implementation(name="switchtower", version=switchtower.__version__),
            list_roots_callback=self._roots,
        ) as client:
            self.handshaken = client.session.initialize_result is not None
            self.listing = await listing.fetch(client)
            self._client = client
            self._settled.set()
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._over.wait()
            finally:
                listening.cancel()

    def _transport(self) -> stdio.StdioTransport | http.HttpTransport:
        if self._process is not None:
            return stdio.StdioTransport(self._process, self._screen, self._note_gone)
        assert isinstance(self._server.target, config.Endpoint)
        return http.HttpTransport(self._server.target, self._screen, self._note_gone)

    def _note_gone(self) -> None:
        self._gone = True
        self._over.set()

    async def _listen(self, client: "mcp.Client") -> None:
        """Newer versions tell of changed tools only who asks; the screen then sees it go by."""
        if self.handshaken or not isinstance(self._server.target, config.Program):
            return
        try:
            async with client.listen(tools_list_changed=True):
                await self._over.wait()
        except Exception:
            return  # it does not offer that, or is gone

    async def _roots(self, context: object) -> "mcp_types.ListRootsResult":
        import mcp_types

        root = Path(self._workspace)
        return mcp_types.ListRootsResult(roots=[mcp_types.Root.model_validate({"uri": root.as_uri(), "name": root.name})])

    def _living(self) -> "mcp.Client":
        if self._client is None or self._over.is_set():
            raise Ended(self._known_reason)
        return self._client

    async def _answer(
        self, asking: Coroutine[Any, Any, T], limit_s: float, *, news: "_News | None" = None, tell: Tell = outcome.unheard
    ) -> T:
        """In a task of its own: to give a call up means to tell the server, and nobody should wait for that."""
        news = news or _News()
        call = asyncio.create_task(asking)
        self._calls.add(call)
        call.add_done_callback(self._forget)
        call.add_done_callback(news.stir)
        try:
            async with asyncio.timeout(limit_s):
                while not call.done():
                    for text in await news.next():
                        await tell(text)
        except TimeoutError:
            if not call.done():
                raise TimedOut(f"did not answer within {limit_s:g} s") from None
        finally:
            call.cancel()
        for text in news.rest():
            await tell(text)
        return await self._outcome(call)

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # seen, so that asyncio does not report it as forgotten

    async def _outcome(self, call: asyncio.Task[T]) -> T:
        error = asyncio.CancelledError() if call.cancelled() else call.exception()
        if error is None:
            return call.result()
        if reasons.is_lost_session(error):
            self.why = reasons.Why("has forgotten our session")
            self._over.set()
            raise Ended(self.why, unheard=True) from None
        if self._over.is_set() or (self._process is not None and self._process.input.broken):
            # The owner is busy with cleaning up; when it is done it knows why.
            await asyncio.wait({self._owner}, timeout=_EXPLANATION)
            raise Ended(self._known_reason) from None
        raise Refused(self._explain.refusal(error)) from None

    @property
    def _known_reason(self) -> reasons.Why:
        return self.why or reasons.Why("is gone")


class _News:
    """Progress of one call. Of too much of it the oldest is dropped: it is for people to watch."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=_MOST_NEWS)
        self._stirred = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._texts.append(f"{share}: {message[:_LONGEST_NEWS]}\n" if message else f"{share}\n")
        self._stirred.set()

    async def next(self) -> list[str]:
        await self._stirred.wait()
        self._stirred.clear()
        return self.rest()

    def rest(self) -> list[str]:
        texts, self._texts = [*self._texts], deque(maxlen=_MOST_NEWS)
        return texts

    def stir(self, call: object) -> None:
        self._stirred.set()
