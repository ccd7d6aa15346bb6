"""WebSockets for uvicorn: its HTTP protocol makes them at an upgrade, picows parses them. It handles messages, not their content.

Output bypasses picows: a `Packet` is framed already, once for all its readers, and costs one write. No extension is negotiated,
so nothing is compressed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

from msgspec import Struct

from switchtower.transports import upgrade, ws_connection
from switchtower.transports.connection_limit import ConnectionLimit
from switchtower.transports.origins import NO_PROXIES, AllowedOrigins, TrustedProxies
from switchtower.transports.stream import Packet, Receiver
from switchtower.transports.ws_connection import GOODBYE_SECONDS, WsConnection

_log = logging.getLogger(__name__)

UpgradeVerdict = Receiver | upgrade.UpgradeAdmission | upgrade.UpgradeRefusal
Accept = Callable[[upgrade.UpgradeRequest], UpgradeVerdict | Awaitable[UpgradeVerdict]]
"""A handler that needs time for the decision returns an awaitable; the client waits meanwhile."""

_DECISION_SECONDS = 30.0
"""The seconds that the decision about a client may take."""


class WebSocketOptions(Struct, frozen=True):
    """The options that all connections of one listener share."""

    accept: Accept
    hosts: Collection[str]
    sites: AllowedOrigins
    max_message_bytes: int
    output_limit_bytes: int
    ping_seconds: float
    limit: ConnectionLimit | None = None
    proxies: TrustedProxies = NO_PROXIES


def make_protocol(door: WebSocketOptions) -> Callable[..., "WebSocketConnection"]:
    """Returns the `ws` class for uvicorn."""

    def build(*, config: object, server_state: Any, app_state: object) -> WebSocketConnection:
        return WebSocketConnection(door, server_state.connections)

    return build


class WebSocketConnection(WsConnection):
    """One client; the `Stream` that its receiver holds."""

    def __init__(self, door: WebSocketOptions, connections: set[Any]) -> None:
        super().__init__(door.max_message_bytes, door.ping_seconds)
        self._options = door
        self._connections = connections
        self._receiver: Receiver | None = None
        self._terms: upgrade.UpgradeAdmission | None = None
        self._deciding: asyncio.Task[None] | None = None

    # The methods that uvicorn calls, in this order; then it hands the transport over to us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, head: bytes) -> None:
        ends = (_format_end(self.transport, which_end) for which_end in ("peername", "sockname"))
        request = upgrade.parse_upgrade(head, *ends, proxies=self._options.proxies)
        if self.transport.get_extra_info("ssl_object") is not None:
            request.headers["x-forwarded-proto"] = "https"  # whatever the client sent
        try:
            answer = upgrade.find_refusal(request, self._options.hosts, self._options.sites) or self._options.accept(request)
        except Exception:
            _log.exception("accepting a WebSocket at %s failed", request.path)
            answer = upgrade.UpgradeRefusal(500, "internal error")
        if isinstance(answer, Awaitable):
            self.transport.pause_reading()
            self._deciding = asyncio.get_running_loop().create_task(self._decide(request, answer))
        else:
            self._accept_or_refuse(request, answer)

    async def _decide(self, request: upgrade.UpgradeRequest, verdict: Awaitable[UpgradeVerdict]) -> None:
        try:
            async with asyncio.timeout(_DECISION_SECONDS):
                answer = await verdict
        except Exception:
            _log.exception("accepting a WebSocket at %s failed", request.path)
            answer = upgrade.UpgradeRefusal(500, "internal error")
        self._deciding = None
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self._accept_or_refuse(request, answer)

    def _accept_or_refuse(self, request: upgrade.UpgradeRequest, answer: UpgradeVerdict) -> None:
        if isinstance(answer, upgrade.UpgradeRefusal):
            self.transport.write(answer.encode())
            self.transport.close()
            return
        largest_frame = self._options.max_message_bytes
        if isinstance(answer, upgrade.UpgradeAdmission):
            self._terms, answer = answer, answer.receiver
            limit = self._terms.max_message_bytes
            self._messages = ws_connection.MessageAssembler(limit, tolerant=True)
            self._goodbye_bytes_left = largest_frame = 2 * limit
            if self._terms.discards_long_frames:
                self._filter = ws_connection.FrameFilter(self._messages, limit, masked=True)
            if self._terms.ping_seconds is not None:
                self._ping_seconds = self._terms.ping_seconds
        if self._options.limit is not None and (self._terms is None or self._terms.authenticated):
            self._options.limit.authenticate(self.transport)
        self.origin = request.origin
        self.transport.set_write_buffer_limits(high=self._options.output_limit_bytes)
        key = request.headers["sec-websocket-key"]
        self._wire = ws_connection.open_wire(self.transport, self._messages, key, largest_frame)
        self._ws = self._wire.transport
        self._mark_open()
        try:
            answer.on_connected(self)
        except Exception:
            _log.exception("connecting a WebSocket at %s failed", request.path)
            self.close(1011)
        else:
            self._receiver = answer

    def shutdown(self) -> None:
        """Closes the connection because the listener is closing."""
        if self._wire is None:
            self.transport.close()
        else:
            self.close(1001, "the daemon is stopping")

    # The methods that the event loop calls.

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._is_ignoring_input:
            return  # the bytes are not taken, so the next read overwrites them
        self._parse(nbytes)
        messages, frames = self._messages, self._take_frames()
        if not self.is_open or self._receiver is None:
            self._wait_for_goodbye(nbytes)
        elif self._ws.is_close_frame_sent:
            self._fail()
        else:
            if frames:
                self._receiver.on_frames(frames)
            if messages.oversizes:
                self._report_oversized(messages)
        if messages.goodbye is not None:
            self._on_goodbye(messages.goodbye)

    def pause_writing(self) -> None:
        self.writable = self._messages.writable = False

    def resume_writing(self) -> None:
        self._messages.writable = True
        if self.is_open and self._receiver is not None:
            self.writable = True
            self._receiver.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = self.writable = False
        self._connections.discard(self)
        if self._options.limit is not None:
            self._options.limit.release(self.transport)
        if self._timer is not None:
            self._timer.cancel()
        if self._deciding is not None:
            self._deciding.cancel()
        if self._wire is not None:
            self._wire.connection_lost(exc)
        if self._receiver is not None:
            self._receiver.on_disconnected()

    # The methods that the receiver calls: a `Stream`.

    def send(self, packet: Packet) -> None:
        if self.is_open:
            self.transport.write(packet.websocket)

    def _report_oversized(self, messages: ws_connection.MessageAssembler) -> None:
        assert self._terms is not None and self._receiver is not None, "without terms, a long message closes"
        sizes, messages.oversizes = messages.oversizes, []
        for size in sizes:
            self._receiver.on_oversized_frame(self._terms.complaint(size, self._terms.max_message_bytes))

    def _fail(self) -> None:
        """Handles a protocol violation; the client has been sent a close frame. Closing now, with its bytes unread, would reset
        the connection.
        """
        self.is_open = self.writable = False
        self._is_ignoring_input = True
        self.transport.resume_reading()
        if self.transport.can_write_eof():  # not over TLS
            self.transport.write_eof()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)


def _format_end(transport: asyncio.Transport, which_end: str) -> str:
    end = transport.get_extra_info(which_end)
    return f"{end[0]}:{end[1]}" if isinstance(end, tuple) else ""
