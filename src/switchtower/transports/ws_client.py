"""The client end of a WebSocket: it connects, does the handshake, and is then a `Stream` like any. It handles messages, not their
content.

A header, or the query of an address, may contain a token. It is sent, and appears nowhere else: not in an error, a log line or a
repr.
"""

import asyncio
import base64
import contextlib
import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, parse_qsl, unquote_to_bytes, urlsplit

from picows import WSHandshakeError, WSInvalidStatusError, WSMsgType

from switchtower.transports import ws_connection
from switchtower.transports.stream import ConnectionOrigin, OversizedMessage, Packet, Receiver, Stream
from switchtower.transports.ws_connection import GOODBYE_SECONDS, WsConnection

if TYPE_CHECKING:
    from ssl import SSLContext

_log = logging.getLogger(__name__)

_LONGEST_BODY = 200
_LONGEST_HEAD = 65_536
_PORTS = {"ws": 80, "wss": 443}
_NO_AUTHORITY = "set `SSL_CERT_FILE` to a PEM file with the certificate of its authority, and start the daemon again"
_CERTIFICATE_REMEDIES = {
    10: "renew it, and start the hub again",
    62: "dial a name that the certificate has",
    64: "dial a name or an address that the certificate has",
}
"""The remedies by OpenSSL's code: an expired certificate, another name, another address."""
_TARGET = re.compile(r"[!-~]*", re.ASCII)


class ConnectError(Exception):
    """The WebSocket connection to this address failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServerUnreachable(ConnectError):
    """No server answered, or none that supports WebSockets."""


class UpgradeRejected(ConnectError):
    """The server answered with an HTTP status in place of the upgrade."""

    def __init__(self, status: int, reason: str, *, takes_bearer: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.takes_bearer = takes_bearer
        """True when the server states that it reads the header `Authorization: Bearer`."""

    def __str__(self) -> str:
        return f"{self.status} {self.reason}"


async def connect(
    url: str,
    receiver: Receiver,
    *,
    max_message_bytes: int,
    output_limit_bytes: int,
    ping_seconds: float,
    token: str | None = None,
    ssl: "SSLContext | None" = None,
    connect_timeout: float = 10,
    complaint: OversizedMessage | None = None,
) -> Stream:
    """Connects `receiver` to `ws://` or `wss://`. Raises `UpgradeRejected` or `ServerUnreachable`; the receiver has not been
    called then.

    `token` is sent in the header `Authorization: Bearer`. Redirects are not followed: they would send it elsewhere. With a
    `complaint` a frame above the limit is discarded as it arrives and the receiver gets the complaint; without one the connection
    ends.
    """
    address = _parse_url(url)
    if address.scheme == "wss" and ssl is None:
        from ssl import create_default_context

        ssl = create_default_context()
    connection = _ClientConnection(address, receiver, max_message_bytes, output_limit_bytes, ping_seconds, token, complaint)
    try:
        async with asyncio.timeout(connect_timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                address.hostname or "",
                address.port or _PORTS[address.scheme],
                ssl=ssl if address.scheme == "wss" else None,
            )
            await connection.opened
    except TimeoutError:
        raise ServerUnreachable(f"no answer within {connect_timeout:g} seconds") from None
    except (OSError, UnicodeError) as problem:
        raise ServerUnreachable(_describe_error(problem)) from None
    finally:
        if not connection.is_open:
            connection.abandon()
    return connection


def _parse_url(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
        usable = address.scheme in _PORTS and bool(address.hostname) and address.port != 0
    except ValueError:
        usable = False
    if not usable or not _TARGET.fullmatch(address.path + address.query):
        raise ServerUnreachable("not the address of a WebSocket")
    return address


def _describe_error(problem: OSError | UnicodeError) -> str:
    if isinstance(problem, UnicodeError):
        return "the host's name is not one"
    if refused := getattr(problem, "verify_message", ""):
        remedy = _CERTIFICATE_REMEDIES.get(getattr(problem, "verify_code", 0), _NO_AUTHORITY)
        return f"its certificate is refused: {refused}; hint: {remedy}"
    return problem.strerror or str(problem) or type(problem).__name__


class _BufferedHandle:
    """The transport as picows sees it. picows masks frame by frame; the frames of one packet leave as one write."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.get_extra_info = transport.get_extra_info
        self._transport = transport
        self._gathered: list[bytes] | None = None

    def gather(self) -> None:
        self._gathered = []

    def release(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered:
            self._transport.write(b"".join(gathered))

    def write(self, data: bytes) -> None:
        if self._gathered is None:
            self._transport.write(data)
        else:
            self._gathered.append(data)

    def get_write_buffer_size(self) -> int:
        return 1  # never nothing, or picows would write to the socket directly

    def close(self) -> None: ...

    def abort(self) -> None: ...


class _ClientConnection(WsConnection):
    """One outgoing connection; the `Stream` that its receiver holds."""

    def __init__(
        self,
        address: SplitResult,
        receiver: Receiver,
        max_message_bytes: int,
        output_limit_bytes: int,
        ping_seconds: float,
        token: str | None,
        complaint: OversizedMessage | None,
    ) -> None:
        super().__init__(max_message_bytes, ping_seconds)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.origin = ConnectionOrigin(transport="websocket", address=address.netloc.rpartition("@")[2])
        self._address = address
        self._token = token
        self._receiver = receiver
        self._max_message_bytes = max_message_bytes
        self._output_limit_bytes = output_limit_bytes
        self._format_oversized = complaint
        self._messages = ws_connection.MessageAssembler(max_message_bytes, tolerant=complaint is not None)
        self._head = b""
        self._handle: _BufferedHandle | None = None
        self._is_receiver_connected = False
        self._ended = False

    # The methods that the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self._output_limit_bytes)
        self._handle = _BufferedHandle(self.transport)
        self._wire = ws_connection.dial(
            self._handle,
            self._messages,
            authority=self.origin.address,
            target=(self._address.path or "/") + (f"?{self._address.query}" if self._address.query else ""),
            headers=_make_credentials(self._address) if self._token is None else {"Authorization": f"Bearer {self._token}"},
            limit=self._max_message_bytes,
        )
        self._ws = self._wire.transport
        asyncio.ensure_future(self._wire.wait_until_handshake_complete()).add_done_callback(self._on_handshake)

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._is_ignoring_input:
            return  # the bytes are not taken, so the next read overwrites them
        self._parse(nbytes)
        if self._is_receiver_connected:
            self._deliver(nbytes)

    def pause_writing(self) -> None:
        self.writable = self._messages.writable = False

    def resume_writing(self) -> None:
        self._messages.writable = True
        if self.is_open:
            self.writable = True
            self._receiver.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = self.writable = False
        if self._timer is not None:
            self._timer.cancel()
        self._ended = True
        self._wire.connection_lost(exc)  # ends the handshake too, if it was still active
        with contextlib.suppress(StopIteration, Exception):
            # picows keeps the peer's error for a caller that awaits the end. Not retrieved, it would be logged as an error of
            # this daemon.
            self._ws.wait_disconnected().send(None)
        if self._is_receiver_connected:
            self._receiver.on_disconnected()

    # The methods that the receiver calls: a `Stream`.

    def send(self, packet: Packet) -> None:
        if self.is_open and self._handle is not None:
            self._handle.gather()
            for frame in packet.frames:
                self._ws.send(WSMsgType.TEXT, frame)
            self._handle.release()

    def abandon(self) -> None:
        """Aborts the connection: the caller no longer waits."""
        self.opened.cancel()
        if self._handle is not None and not self._is_receiver_connected:
            self.transport.abort()

    # The handshake

    def _on_handshake(self, handshake: "asyncio.Future[None]") -> None:
        problem = None if handshake.cancelled() else handshake.exception()
        if self.opened.done():
            return
        if problem is not None or self._ended:
            refusal = (
                self._make_refusal(problem) if problem else ServerUnreachable("the connection ended before it was a WebSocket")
            )
            self.opened.set_exception(refusal)
            return
        self._is_receiver_connected = True
        self._mark_open()
        try:
            self._receiver.on_connected(self)
        except Exception as bug:
            self._is_receiver_connected = False
            self.abort()
            self.opened.set_exception(bug)
            return
        self.opened.set_result(None)
        self._deliver(0)  # the first messages may have arrived right behind the handshake

    def _make_refusal(self, problem: BaseException) -> ConnectError:
        if isinstance(problem, WSInvalidStatusError) and problem.response is not None:
            status = int(problem.response.status)
            challenge = str(problem.response.headers.get("WWW-Authenticate", ""))
            takes_bearer = challenge.lower().startswith("bearer")
            return UpgradeRejected(
                status, self._read_refusal_line(problem.raw_body) or _get_status_phrase(status), takes_bearer=takes_bearer
            )
        if isinstance(problem, WSHandshakeError):
            return ServerUnreachable("what answers there does not speak WebSocket")
        _log.error("a WebSocket handshake failed", exc_info=problem)
        return ServerUnreachable("the handshake failed")

    def _read_refusal_line(self, body: bytes | None) -> str:
        """Returns the first line of a refusal, unless it is a page, or repeats a secret."""
        line = (body or b"")[:4096].decode(errors="replace").partition("\n")[0].strip()
        secrets = [self._token, self._address.query, *(value for _, value in parse_qsl(self._address.query))]
        usable = line.isprintable() and not line.startswith("<") and not any(secret and secret in line for secret in secrets)
        return line[:_LONGEST_BODY] if usable and "?" not in line else ""

    # Lifecycle

    def _deliver(self, nbytes: int) -> None:
        messages, frames = self._messages, self._take_frames()
        if not self.is_open:
            self._wait_for_goodbye(nbytes)
        elif self._ws.is_close_frame_sent or (messages.oversizes and self._format_oversized is None):
            self._fail()
        else:
            if frames:
                self._receiver.on_frames(frames)
            self._refuse_oversized(messages)
        if messages.goodbye is not None:
            self._on_goodbye(messages.goodbye)

    def _parse(self, nbytes: int) -> None:
        """Only the bytes after the response to the handshake are frames."""
        if self._format_oversized is None or self._filter is not None:
            super()._parse(nbytes)
            return
        arrived = bytes(self._buffer[:nbytes])
        before = len(self._head)
        self._head += arrived
        end = self._head.find(b"\r\n\r\n")
        if len(self._head) > _LONGEST_HEAD:
            self.transport.abort()
        elif end < 0 or not self._head.startswith(b"HTTP/1.1 101"):
            super()._parse(nbytes)
        else:
            size = end + 4 - before
            self._head = b""
            super()._parse(size)
            self._filter = ws_connection.FrameFilter(self._messages, self._max_message_bytes, masked=False)
            self._filter.feed(self._wire, memoryview(arrived)[size:], is_in_place=False)

    def _refuse_oversized(self, messages: ws_connection.MessageAssembler) -> None:
        sizes, messages.oversizes = messages.oversizes, []
        for size in sizes:
            assert self._format_oversized is not None, "without a complaint, a long message ends the connection"
            self._receiver.on_oversized_frame(self._format_oversized(size, self._max_message_bytes))

    def _fail(self) -> None:
        """Handles a protocol violation of the peer; picows has sent a close frame for it."""
        self.is_open = self.writable = False
        self._is_ignoring_input = True
        self.transport.close()
        self._set_timer(GOODBYE_SECONDS, self.transport.abort)


def _make_credentials(address: SplitResult) -> dict[str, str] | None:
    """Returns the name and the password in the address, as a proxy in front of it may require them."""
    named, at, _ = address.netloc.rpartition("@")
    if not at:
        return None
    name, _, password = named.partition(":")
    spelled = base64.b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode()
    return {"Authorization": f"Basic {spelled}"}


def _get_status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "refused"
