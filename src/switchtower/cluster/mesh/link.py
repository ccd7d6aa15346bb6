"""One connection between two nodes, on either side. Knows envelopes and tunnels, not requests.

Everything that is sent in one turn of the event loop leaves as one write. The link closes the connection to a node that does
not read, is silent for too long, or sends data that cannot be decoded; every user of the connection is then notified once.
"""

import asyncio
import logging
from typing import cast

from msgspec import Struct

from switchtower.cluster.mesh import frames, tls
from switchtower.cluster.mesh.ports import MeshPeer
from switchtower.cluster.mesh.tunnel import PIECE_BYTES, WINDOW_BYTES, Tunnel

log = logging.getLogger(__name__)

MOST_TUNNELS = 16_384
MOST_UNANSWERED = 65_536
HIGH_WATER_BYTES = 1024 * 1024
MOST_PER_TURN_BYTES = 4 * 1024 * 1024
"""The number of bytes that tunnels may send in one turn of the event loop, so that it is not blocked."""
TICKS_OF_SILENCE = 4


class LinkLimits(Struct, frozen=True, kw_only=True):
    silence: float = 5.0
    """Seconds of silence after which the other node counts as gone."""
    unsent_bytes: int = 64 * 1024 * 1024
    """Bytes that may wait for a node that does not read."""
    unanswered: int = MOST_UNANSWERED
    window_bytes: int = WINDOW_BYTES


class MeshLink(asyncio.Protocol):
    peer: MeshPeer

    def __init__(self, me: MeshPeer, limits: LinkLimits, tls: tls.TlsChannel | None) -> None:
        self.local_peer = me
        self.limits = limits
        self.met = False
        """The other side has identified itself."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem: str = ""
        """The reason why the connection was closed, for the log."""
        self._tls = tls
        """None: the connection is in memory."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self._splitter = frames.FrameSplitter(frames.MOST_HELLO_BYTES)
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._flushing = False
        self._paused = False
        self._full = False
        self._heard = True
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tunnels: dict[int, Tunnel] = {}
        self._eager: dict[Tunnel, None] = {}
        """Tunnels with something to send, in the order of their turns."""
        self._their_window = 0

    # Hooks for the two roles.

    def on_hello(self, peer: MeshPeer) -> None:
        """Raises `MeshProtocolError` when the other node is not the expected one."""

    def on_frame(self, envelope: frames.Envelope) -> None:
        raise NotImplementedError

    def on_written(self) -> None:
        """Everything that was sent until now may have been received."""

    def on_lost(self) -> None:
        """The connection has ended; called once."""

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._timer = self._loop.call_later(self.limits.silence / TICKS_OF_SILENCE, self._tick)
        if self._tls is None:
            self._send_hello()
        else:
            self._tls.start()
            self._send_pending()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._is_over:
            return
        if self._tls is None:
            self._on_data(data)
            return
        try:
            was_trusted = self._tls.trusted
            plain = self._tls.decrypt(data)
        except tls.TlsHandshakeError as problem:
            self._send_pending()  # sends the TLS alert
            self.close(str(problem), politely=not self._tls.trusted)
            return
        self._send_pending()
        if not was_trusted and self._tls.trusted:
            self._send_hello()
        if plain:
            self._on_data(plain)
        elif plain is None:
            self.close("it hung up")

    def eof_received(self) -> None:
        """Returns None, so that asyncio closes the connection."""

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"the connection broke: {exc}" if exc is not None else "it hung up")
        if not self.closed.done():
            self.closed.set_result(None)

    # Methods for the mesh and the tunnels.

    def send(self, envelope: frames.Envelope) -> bool:
        """False: the envelope is longer than a frame may be."""
        encoded = frames.encode(envelope)
        if len(encoded) > frames.MOST_FRAME_BYTES:
            return False
        if self._is_over or self._full:
            return True
        self._gathered.append(frames.encode_length(encoded))
        self._gathered.append(encoded)
        self._gathered_bytes += len(encoded) + 4
        if not self._flushing:
            self._flush_soon()
        if self._gathered_bytes > HIGH_WATER_BYTES:
            self._write()
        if self._gathered_bytes > self.limits.unsent_bytes:
            self._full = True
            # The close is deferred: a sender must not be notified of the end before its own call has returned.
            self._loop.call_soon(self.close, "it does not read what it is told")
        return True

    def queue_tunnel(self, tunnel: Tunnel) -> None:
        if not self._is_over:
            self._eager[tunnel] = None
            if not self._flushing:
                self._flush_soon()

    def remove_tunnel(self, tunnel: Tunnel) -> None:
        self._tunnels.pop(tunnel.number, None)
        self._eager.pop(tunnel, None)

    def close(self, problem: str = "", *, politely: bool = False) -> None:
        """Closes at once for the users on this side; with `politely`, queued data is still sent."""
        if self._is_over:
            return
        if politely:
            self._flush()
        self._is_over = True
        self.problem = problem
        if self._timer is not None:
            self._timer.cancel()
        self._eager.clear()
        for tunnel in tuple(self._tunnels.values()):
            tunnel.finish()
        self.on_lost()
        self._gathered.clear()
        if self._transport is None:
            return
        if politely:
            if self._tls is not None and self._tls.trusted:
                self._transport.write(self._tls.close_notify())
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """The other side took too long to close."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    @property
    def _trusted(self) -> bool:
        return self._transport is not None and (self._tls is None or self._tls.trusted)

    @property
    def is_closed(self) -> bool:
        return self._is_over

    def create_tunnel(self, number: int) -> Tunnel:
        tunnel = Tunnel(number, self.peer.node_id, self, credit=self._their_window, window=self.limits.window_bytes)
        self._tunnels[number] = tunnel
        return tunnel

    def _send_hello(self) -> None:
        hello = frames.MeshHello(protocol=frames.PROTOCOL, peer=self.local_peer, window=self.limits.window_bytes)
        self._send_bytes(frames.add_length_prefix(frames.encode(hello)))

    def _send_bytes(self, plain: bytes) -> None:
        assert self._transport is not None, "whoever speaks is connected"
        try:
            self._transport.write(plain if self._tls is None else self._tls.encrypt(plain))
        except tls.TlsHandshakeError as problem:
            self._loop.call_soon(self.close, str(problem))

    def _send_pending(self) -> None:
        if self._tls is not None and self._transport is not None and (pending := self._tls.take_outgoing()):
            self._transport.write(pending)

    def _on_data(self, data: bytes) -> None:
        # Responses that are made while this runs are sent at its end, without another turn of the event loop.
        was_flushing, self._flushing = self._flushing, True
        try:
            for frame in self._splitter.feed(data):
                if self.met:
                    self._dispatch(frames.decode(frame))
                else:
                    self._on_hello_frame(frame)
                if self._is_over:
                    return
        except frames.MeshProtocolError as problem:
            self.close(str(problem))
            return
        self._flushing = was_flushing
        if self._gathered or self._eager:
            self._flush()

    def _on_hello_frame(self, frame: memoryview) -> None:
        hello = frames.decode_hello(frame)
        self.peer = hello.peer
        self._their_window = hello.window
        self.met = True
        self._splitter.limit = frames.MOST_FRAME_BYTES
        self.on_hello(hello.peer)

    def _dispatch(self, envelope: frames.Envelope) -> None:
        match envelope:
            case frames.RequestFrame() | frames.ResponseFrame():  # the most frequent first
                self.on_frame(envelope)
            case frames.TunnelData():
                if (tunnel := self._tunnels.get(envelope.tunnel)) is not None:
                    tunnel.receive(envelope)
            case frames.TunnelCredit():
                if (tunnel := self._tunnels.get(envelope.tunnel)) is not None:
                    tunnel.add_credit(envelope.count)
            case frames.TunnelEnd():
                if (tunnel := self._tunnels.get(envelope.tunnel)) is not None:
                    tunnel.on_remote_end(envelope)
            case frames.MeshPing():
                self.send(frames.MeshPong())
            case frames.MeshPong():
                pass
            case _:
                self.on_frame(envelope)

    def _flush_soon(self) -> None:
        self._flushing = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = True  # envelopes that are sent while this runs are included
        room = MOST_PER_TURN_BYTES
        while not self._is_over and not self._paused and self._trusted:
            while self._eager and self._gathered_bytes < 8 * PIECE_BYTES and room > 0:
                tunnel = next(iter(self._eager))
                del self._eager[tunnel]
                if tunnel.send_next():
                    self._eager[tunnel] = None
            if not self._gathered:
                break
            room -= self._gathered_bytes
            self._write()
        self._flushing = False
        if self._eager and not self._paused and not self._is_over:
            self._flush_soon()

    def _write(self) -> None:
        if not self._paused and self._trusted:
            written = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self.on_written()
            self._send_bytes(written)

    def _tick(self) -> None:
        # Silence is counted in ticks and not in time: a node that was itself suspended for a while first reads what arrived
        # meanwhile.
        self._silent_ticks = 0 if self._heard and self.met else self._silent_ticks + 1
        self._heard = False
        if self._silent_ticks > TICKS_OF_SILENCE:
            self.close("it says nothing any more")
            return
        if self._silent_ticks and self.met:
            self.send(frames.MeshPing())
        self._timer = self._loop.call_later(self.limits.silence / TICKS_OF_SILENCE, self._tick)
