"""Filters a server's messages before they reach the SDK, on either transport. The SDK starts a task for every message and
validates every listing completely: a hostile server could overload the daemon.

It passes answers and, at a moderate rate, requests, while few are open, and the notifications that we handle. The rest is
dropped, and a server that sends much of it is read more slowly. Changes of the tools are noted here.
"""

import asyncio
import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mcp_types
    from mcp.shared.message import SessionMessage

MOST_TOOLS = 128
_MOST_OPEN_REQUESTS = 16
_MESSAGES_A_SECOND = 100
_DROPPED_A_BREATH = 500
_DROPPED_A_YIELD = 50
_BREATH = 0.025
_WANTED = frozenset({"notifications/progress", "notifications/cancelled", "notifications/subscriptions/acknowledged"})
_TOOLS_CHANGED = "notifications/tools/list_changed"
_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ID_IN_FRONT = re.compile(rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d{1,18})\s*,')
_ID_BEHIND = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*\Z')
_IS_NO_ANSWER = re.compile(rb"\s*\{\s*" + _VERSION + rb'(?:"id"\s*:\s*[^,]{1,64},\s*)?"method"')


class MessageFilter:
    def __init__(self) -> None:
        self.tools_changed = False
        self._unanswered_by_us: set[int | str] = set()
        self._unanswered_by_it: set[int | str] = set()
        self._messages_left = float(_MESSAGES_A_SECOND)
        self._counted_at = asyncio.get_running_loop().time()
        self._dropped = 0

    def is_allowed(self, message: "mcp_types.JSONRPCMessage") -> bool:
        import mcp_types

        wanted = True
        match message:
            case mcp_types.JSONRPCNotification():
                self.tools_changed |= message.method == _TOOLS_CHANGED
                if message.params and isinstance(given_up := message.params.get("requestId"), int | str):
                    self._unanswered_by_us.discard(given_up)
                wanted = message.method in _WANTED and self._has_room()
            case mcp_types.JSONRPCRequest():
                wanted = len(self._unanswered_by_us) < _MOST_OPEN_REQUESTS and self._has_room()
                if wanted:
                    self._unanswered_by_us.add(message.id)
            case mcp_types.JSONRPCResponse():
                self._unanswered_by_it.discard(message.id)
                _trim_listing(message.result)
            case mcp_types.JSONRPCError() if message.id is not None:
                self._unanswered_by_it.discard(message.id)
        if not wanted:
            self.note_dropped()
        return wanted

    def note_dropped(self) -> None:
        self._dropped += 1

    def note_sent(self, message: "mcp_types.JSONRPCMessage") -> None:
        import mcp_types

        match message:
            case mcp_types.JSONRPCRequest():
                self._unanswered_by_it.add(message.id)
            case mcp_types.JSONRPCResponse() | mcp_types.JSONRPCError() if message.id is not None:
                self._unanswered_by_us.discard(message.id)
            case mcp_types.JSONRPCNotification(params={"requestId": int() | str() as given_up}):
                self._unanswered_by_it.discard(given_up)

    def match_requests(self, too_long: bytes) -> frozenset[int | str]:
        """Returns the requests that an overlong answer, of which only both ends are known, may belong to: all, when it has no
        id.
        """
        if _IS_NO_ANSWER.match(too_long):
            return frozenset()
        if (found := _ID_IN_FRONT.match(too_long) or _ID_BEHIND.search(too_long)) is not None:
            return frozenset({int(found[1])} & self._unanswered_by_it)
        return frozenset(self._unanswered_by_it)

    async def throttle(self) -> None:
        """Yields to other tasks between two messages, and slows a flood down."""
        if self._dropped >= _DROPPED_A_BREATH:
            self._dropped = 0
            await asyncio.sleep(_BREATH)
        elif self._dropped % _DROPPED_A_YIELD == 0:
            await asyncio.sleep(0)

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        left = self._messages_left + (now - self._counted_at) * _MESSAGES_A_SECOND
        self._messages_left, self._counted_at = min(left, _MESSAGES_A_SECOND), now
        if self._messages_left < 1:
            return False
        self._messages_left -= 1
        return True


class FilteredReader:
    """The SDK's read stream behind the filter. `over` is called when the stream has ended."""

    def __init__(self, inner: Any, screen: MessageFilter, over: Callable[[], None]) -> None:
        self._inner = inner
        self._filter = screen
        self._over = over

    async def receive(self) -> "SessionMessage | Exception":
        while True:
            try:
                item: SessionMessage | Exception = await self._inner.receive()
            except Exception:
                self._over()
                raise
            await self._filter.throttle()
            # A message that a transport could not parse is dropped too.
            if not isinstance(item, Exception) and self._filter.is_allowed(item.message):
                return item

    def __aiter__(self) -> "FilteredReader":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "FilteredReader":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


class FilteredWriter:
    """The SDK's write stream; the filter learns from it which requests are open."""

    def __init__(self, inner: Any, screen: MessageFilter) -> None:
        self._inner = inner
        self._filter = screen

    async def send(self, item: "SessionMessage") -> None:
        self._filter.note_sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "FilteredWriter":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


def _trim_listing(result: dict[str, Any]) -> None:
    """Removes from a listing what we would not use: excess tools, invalid tools, and schemas of results. The SDK would validate
    each result with those, and one hostile pattern in a schema blocks the daemon for hours.
    """
    tools = result.get("tools")
    if isinstance(tools, list):
        usable = [tool for tool in tools if _is_usable(tool)]
        result["tools"] = usable[: MOST_TOOLS + 1]
        for tool in result["tools"]:
            tool.pop("outputSchema", None)


def _is_usable(tool: object) -> bool:
    match tool:
        case {"name": str(), "inputSchema": {"type": "object"}}:
            return True
        case _:
            return False
