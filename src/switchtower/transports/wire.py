"""picows, which reads WebSocket frames off the wire, and what it takes to make whole messages of them.

`WSProtocol` is not among the names that picows exports; all that depends on its shape is here. It parses and writes its few
control frames. It does not log, does not ping and does not close: those are the connection's to decide.
"""

import asyncio
import logging
from typing import Any

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSProtocolError, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined]


class Messages(WSListener):
    """Whole messages from frames. What it raises, picows sends as a close frame.

    A tolerant one throws messages above the limit away and goes on, as far as picows lets their frames through.
    """

    def __init__(self, limit: int, *, tolerant: bool = False) -> None:
        self.whole: list[bytes] = []
        self.goodbye: int | None = None
        """The code that the client closed with."""
        self.writable = True
        self.oversizes: list[int] = []
        """How long the messages were that were thrown away; for the reader to clear."""
        self._limit = limit
        self._tolerant = tolerant
        self._fragments: bytearray | None = None
        self._size = 0

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self.goodbye is not None:
            return
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "no extension was negotiated")
        if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
            if self._fragments is not None:
                raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "a message began before the last one ended")
            if not frame.fin:
                self._fragments = bytearray()
                self._size = 0
                self._gather(frame, self._fragments)
            elif frame.payload_size > self._limit:
                self.oversizes.append(frame.payload_size)
            elif frame.payload_size:
                self.whole.append(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CONTINUATION:
            self._continue(frame)
        elif kind is WSMsgType.PING:
            # RFC 6455, 5.5.3: not every ping needs its own pong. One who does not read gets none, or pongs would pile up.
            if self.writable:
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CLOSE:
            self.goodbye = int.from_bytes(frame.get_payload_as_bytes()[:2]) if frame.payload_size else 1000

    def _continue(self, frame: WSFrame) -> None:
        if self._fragments is None:
            raise WSProtocolError(WSCloseCode.PROTOCOL_ERROR, "nothing to continue")
        self._gather(frame, self._fragments)
        if frame.fin:
            if self._size > self._limit:
                self.oversizes.append(self._size)
            elif self._fragments:
                self.whole.append(bytes(self._fragments))
            self._fragments = None

    def _gather(self, frame: WSFrame, fragments: bytearray) -> None:
        self._size += frame.payload_size
        if self._size <= self._limit:
            fragments += frame.get_payload_as_memoryview()
            return
        fragments.clear()
        if not self._tolerant:
            self._fragments = None
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, f"a message may have {self._limit} bytes")


_SILENT = logging.Logger("picows", logging.CRITICAL + 1)
"""picows would log each connection, and each client's mistake as an error of ours."""


class _Handle:
    """The transport as picows sees it: it may write, but when and how to close is not for picows to say."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.write = transport.write
        self.writelines = transport.writelines
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.get_extra_info = transport.get_extra_info

    def close(self) -> None: ...

    def abort(self) -> None: ...


def open_wire(transport: asyncio.Transport, messages: Messages, key: str, limit: int) -> Any:
    """picows at work on a connection whose client has shown this key: the handshake is answered, frames go to `messages`."""
    wire = _protocol(limit, ws_listener_factory=lambda request: messages)
    wire.connection_made(_Handle(transport))
    # The one spelling of a handshake that picows takes (some browsers say `keep-alive, Upgrade`); the token stays behind.
    head = (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode("ascii")
    wire.get_buffer(len(head))[: len(head)] = head
    wire.buffer_updated(len(head))
    return wire


def dial(handle: Any, messages: Messages, *, authority: str, target: str, headers: dict[str, str] | None, limit: int) -> Any:
    """picows at work on a connection that we made: it asks for `target`, which may carry a token, and frames go to `messages`.
    `handle` is the transport as it sees it."""
    wire = _protocol(
        limit,
        host_port=authority,
        ws_path=target,
        is_client_side=True,
        ws_listener_factory=lambda request, response: messages,
        extra_headers=headers,
    )
    wire.connection_made(handle)
    return wire


def _protocol(limit: int, **own: Any) -> Any:
    usual: dict[str, Any] = {
        "host_port": None,
        "ws_path": None,
        "is_client_side": False,
        "logger": _SILENT,
        "disconnect_on_exception": True,
        "websocket_handshake_timeout": None,
        "enable_auto_ping": False,
        "auto_ping_idle_timeout": 0,
        "auto_ping_reply_timeout": 0,
        "auto_ping_strategy": 1,
        "enable_auto_pong": False,
        "max_frame_size": limit,
        "extra_headers": None,
        "read_buffer_init_size": 4096,
    }
    return WSProtocol(**usual | own)
