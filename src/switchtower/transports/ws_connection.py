"""A WebSocket connection for both ends: reading, keeping alive and closing. picows parses the frames; this module assembles whole
messages from them. Each end establishes the connection itself.

`WSProtocol` is not among the names that picows exports; everything that depends on its shape is here. It parses and writes its
few control frames. It does not log, does not ping and does not close: the connection decides those.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSProtocolError, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from switchtower.transports.stream import ConnectionOrigin


class MessageAssembler(WSListener):
    """Assembles whole messages from frames. picows sends an exception that it raises as a close frame.

    A tolerant one discards messages above the limit and continues, as far as picows accepts their frames.
    """

    def __init__(self, limit: int, *, tolerant: bool = False) -> None:
        self.whole: list[bytes] = []
        self.goodbye: int | None = None
        """The code that the client closed with."""
        self.writable = True
        self.oversizes: list[int] = []
        """The lengths of the discarded messages; the reader clears them."""
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
            self._add_fragment(frame)
        elif kind is WSMsgType.PING:
            # RFC 6455, 5.5.3: not every ping needs its own pong. A client that does not read gets none, or pongs would pile up.
            if self.writable:
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind is WSMsgType.CLOSE:
            self.goodbye = int.from_bytes(frame.get_payload_as_bytes()[:2]) if frame.payload_size else 1000

    def skip(self, *, is_continuation: bool, fin: bool, size: int) -> None:
        """Counts a data frame that was discarded before it reached picows."""
        before = self._size if is_continuation and self._fragments is not None else 0
        self._size = before + size
        if fin:
            self.oversizes.append(self._size)
            self._fragments = None
        else:
            self._fragments = bytearray()

    def _add_fragment(self, frame: WSFrame) -> None:
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


class FrameFilter:
    """Discards data frames above the limit as they arrive, so that a frame of any length needs no memory and does not end the
    connection. picows would buffer the whole frame, or close. All other bytes reach picows unchanged.
    """

    def __init__(self, messages: MessageAssembler, limit: int, *, masked: bool) -> None:
        """`masked` is true when the other side's frames are masked: those of a client are."""
        self._messages = messages
        self._limit = limit
        self._mask_size = 4 if masked else 0
        self._passing = 0
        """The remaining bytes of the current frame that picows gets."""
        self._skipping = 0
        """The remaining bytes of the current frame that are discarded."""
        self._header = b""
        """The start of a header whose rest has not arrived."""

    def feed(self, picows: Any, data: memoryview, *, is_in_place: bool) -> None:
        """Passes the received bytes on. `is_in_place` means that they are in the buffer of picows already."""
        if self._header:
            data = memoryview(self._header + bytes(data))
            self._header, is_in_place = b"", False
        while data:
            size = 0 if self._skipping else self._count_passable(data)
            # picows moves its buffer when it reads from it.
            rest = memoryview(bytes(data[size:])) if is_in_place else data[size:]
            if is_in_place and size:
                picows.buffer_updated(size)
            elif size:
                _copy(picows, data[:size])
            is_in_place = False
            data = self._discard(rest)

    def _count_passable(self, data: memoryview) -> int:
        """Returns how many bytes precede an overlong frame, or an incomplete header."""
        place, end = 0, len(data)
        while place < end:
            if not self._passing:
                header = _parse_frame_header(data[place : place + 14], self._mask_size)
                if header is None or self._is_too_long(header):
                    return place
                place += header.length
                self._passing = header.payload_size
            step = min(self._passing, end - place)
            self._passing -= step
            place += step
        return place

    def _discard(self, data: memoryview) -> memoryview:
        """Returns the bytes after the overlong frame, as far as they have arrived."""
        if not data:
            return data
        if not self._skipping:
            header = _parse_frame_header(data, self._mask_size)
            if header is None:
                self._header = bytes(data)
                return data[:0]
            self._messages.skip(is_continuation=header.opcode == _CONTINUATION, fin=header.fin, size=header.payload_size)
            self._skipping = header.payload_size
            data = data[header.length :]
        step = min(self._skipping, len(data))
        self._skipping -= step
        return data[step:]

    def _is_too_long(self, header: "_FrameHeader") -> bool:
        # A frame with the wrong mask is left for picows to refuse.
        is_data = header.opcode <= _BINARY and header.is_masked is bool(self._mask_size)
        return is_data and header.payload_size > self._limit


_CONTINUATION, _BINARY = 0, 2


class _FrameHeader(NamedTuple):
    """RFC 6455, 5.2: two bytes, a longer length where the short one indicates it, and the mask."""

    length: int
    payload_size: int
    opcode: int
    fin: bool
    is_masked: bool


def _parse_frame_header(data: memoryview, mask_size: int) -> _FrameHeader | None:
    """Returns None when it is incomplete."""
    if len(data) < 2:
        return None
    first, second = data[0], data[1]
    size = second & 0x7F
    extended = 2 if size == 126 else 8 if size == 127 else 0
    length = 2 + extended + mask_size
    if len(data) < length:
        return None
    if extended:
        size = int.from_bytes(data[2 : 2 + extended])
    return _FrameHeader(length, size, first & 0x0F, bool(first & 0x80), bool(second & 0x80))


def _copy(picows: Any, data: memoryview) -> None:
    while data:
        room: memoryview = picows.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        picows.buffer_updated(size)
        data = data[size:]


_SILENT = logging.Logger("picows", logging.CRITICAL + 1)
"""picows would log each connection, and each client's mistake as one of the daemon's errors."""


class _Handle:
    """The transport as picows sees it: it may write, but it may not close."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.write = transport.write
        self.writelines = transport.writelines
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.get_extra_info = transport.get_extra_info

    def close(self) -> None: ...

    def abort(self) -> None: ...


def open_wire(transport: asyncio.Transport, messages: MessageAssembler, key: str, limit: int) -> Any:
    """Returns picows for a connection whose client has sent this key: the handshake is answered, frames go to `messages`."""
    wire = _make_protocol(limit, ws_listener_factory=lambda request: messages)
    wire.connection_made(_Handle(transport))
    # The one spelling of a handshake that picows accepts (some browsers send `keep-alive, Upgrade`); the token is left out.
    head = (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode("ascii")
    wire.get_buffer(len(head))[: len(head)] = head
    wire.buffer_updated(len(head))
    return wire


def dial(
    handle: Any, messages: MessageAssembler, *, authority: str, target: str, headers: dict[str, str] | None, limit: int
) -> Any:
    """Returns picows for an outgoing connection: it requests `target`, which may contain a token, and frames go to `messages`.
    `handle` is the transport as it sees it.
    """
    wire = _make_protocol(
        limit,
        host_port=authority,
        ws_path=target,
        is_client_side=True,
        ws_listener_factory=lambda request, response: messages,
        extra_headers=headers,
    )
    wire.connection_made(handle)
    return wire


def _make_protocol(limit: int, **own: Any) -> Any:
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


MOST_PER_READ = 65_536
"""picows doubles its buffer whenever a read fills it; this keeps a client that floods from making it grow."""

GOODBYE_SECONDS = 5.0
"""The seconds that the other side may take to answer a close, or to stop sending after an error, before the connection is
aborted.
"""

LONGEST_REASON = 123
"""RFC 6455, 5.5: a control frame has at most 125 bytes, and the close code takes two."""


class WsConnection(asyncio.BufferedProtocol):
    """Most of a `stream.Stream`; each end implements sending itself."""

    origin: ConnectionOrigin

    def __init__(self, max_message_bytes: int, ping_seconds: float) -> None:
        self.writable = False
        self.is_open = False
        self.transport: asyncio.Transport
        self._messages = MessageAssembler(max_message_bytes)
        self._ping_seconds = ping_seconds
        self._wire: Any = None
        self._filter: FrameFilter | None = None
        self._buffer: memoryview
        self._ws: WSTransport
        self._is_ignoring_input = False
        self._goodbye_bytes_left = max_message_bytes
        self._reading = True
        self._heard = False
        self._pinged = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    # The methods that the event loop calls.

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer: memoryview = self._wire.get_buffer(sizehint)
        self._buffer = buffer if len(buffer) <= MOST_PER_READ else buffer[:MOST_PER_READ]
        return self._buffer

    def eof_received(self) -> bool:
        return False

    # The methods that the receiver calls.

    def pause_reading(self) -> None:
        if self.is_open:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open:
            self._reading = True
            self.transport.resume_reading()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Sends a close frame and waits for the answer, but not for ever."""
        if not self.is_open:
            return
        self._ws.send_close(cast(WSCloseCode, code), reason.encode()[:LONGEST_REASON].decode(errors="ignore"))
        self.is_open = self.writable = False
        self.transport.resume_reading()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)

    def abort(self) -> None:
        self.is_open = self.writable = False
        self.transport.abort()

    # Lifecycle

    def _mark_open(self) -> None:
        self.is_open = self.writable = True
        self._set_timer(self._ping_seconds, self._check_alive)

    def _parse(self, nbytes: int) -> None:
        """Lets picows parse the bytes that have arrived in its buffer."""
        if self._filter is None:
            self._wire.buffer_updated(nbytes)
        else:
            self._filter.feed(self._wire, self._buffer[:nbytes], is_in_place=True)

    def _take_frames(self) -> list[bytes]:
        """Returns the whole messages of the last read."""
        frames = self._messages.whole
        if frames:
            self._messages.whole = []
        return frames

    def _wait_for_goodbye(self, nbytes: int) -> None:
        """Counts the bytes that arrive before the answer to our close frame; it ignores input beyond the size of a message."""
        self._goodbye_bytes_left -= nbytes
        self._is_ignoring_input = self._goodbye_bytes_left < 0

    def _on_goodbye(self, code: int) -> None:
        """Handles the other side's close frame: answers it unless it was the answer, and closes."""
        if self.is_open:
            self._ws.send_close(cast(WSCloseCode, code))
        self.is_open = self.writable = False
        self.transport.close()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)

    def _check_alive(self) -> None:
        """Pings a client that neither sends nor reads; one that has not answered by the next check counts as dead."""
        unsent = self.transport.get_write_buffer_size()
        alive = self._heard or not self._reading or (unsent > 0 and unsent != self._unsent)
        if alive:
            self._heard = self._pinged = False
        elif self._pinged:
            self.abort()
            return
        else:
            self._ws.send_ping()
            self._pinged = True
        # This includes the ping, which may wait behind the rest: it does not show that the other side reads anything.
        self._unsent = self.transport.get_write_buffer_size()
        self._set_timer(self._ping_seconds, self._check_alive)

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)
