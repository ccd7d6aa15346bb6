"""A pi client for whom is being looked who serves it, and from then on the way to that: a house here, or one at another node.

Reads nothing before that is known. Decides nothing: whoever made it is asked.
"""

import asyncio
from collections.abc import Callable, Coroutine

from switchtower.daemon import pi_tunnel
from switchtower.daemon.pi_tunnel import TunnelClientEnd, PiTunnelHeader
from switchtower.transports.mesh import ports
from switchtower.transports.packet import Packet
from switchtower.transports.stream import RespondingReceiver, Receiver, Stream

Serve = Callable[["Caller", Stream], Coroutine[None, None, None]]
"""Calls `join` or `travel`, or closes the stream."""


class PiConnectionRouter:
    """Implements `stream.Receiver` and `stream.Debtor`."""

    def __init__(
        self, opening: PiTunnelHeader, serve: Serve, callers: "set[PiConnectionRouter]", *, may_travel: bool = True
    ) -> None:
        """`callers` has it while it is not served here. `may_travel`: to another node; who comes from one does not go on to a
        third."""
        self.opening = opening
        self.may_travel = may_travel
        self._serve = serve
        self._callers = callers
        self._stream: Stream | None = None
        self._early: list[bytes | str] = []
        """What was said before it was known to whom; a `str` is the complaint about a frame that was thrown away."""
        self._finding: asyncio.Task[None] | None = None
        self._local_receiver: Receiver | None = None
        self._tunnel: TunnelClientEnd | None = None

    def serve_locally(self, served: Receiver) -> None:
        """Served at this node."""
        if self._stream is None:
            return
        self._callers.discard(self)
        self._local_receiver = served
        served.on_connected(self._stream)
        self._stream.resume_reading()
        self._forward_buffered()

    def serve_through_tunnel(self, mesh: ports.Mesh, node_id: str) -> None:
        """Raises `ports.Unreachable`."""
        if self._stream is None:
            return
        origin = self._stream.origin
        who = PiTunnelHeader(
            access=self.opening.access,
            transport=origin.transport,
            address=origin.address,
            namespace=self.opening.namespace,
            lifecycle=self.opening.lifecycle,
            cwd=self.opening.cwd,
        )
        there = TunnelClientEnd(self._stream)
        mesh.open_tunnel(node_id, pi_tunnel.SUBJECT, who.encode(), there)
        self._tunnel = there
        self._stream.resume_reading()
        self._forward_buffered()

    def send(self, packet: Packet) -> None:
        if self._stream is not None:
            self._stream.send(packet)

    def close_for_restart(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    def _forward_buffered(self) -> None:
        early, self._early = self._early, []
        for said in early:
            if isinstance(said, str):
                self.on_oversized_frame(said)
            else:
                self.on_frames([said])

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        # Nobody hears it yet.
        stream.pause_reading()
        self._callers.add(self)
        self._finding = asyncio.get_running_loop().create_task(self._serve(self, stream))

    def on_frames(self, frames: list[bytes]) -> None:
        if self._local_receiver is not None:
            self._local_receiver.on_frames(frames)
        elif self._tunnel is not None:
            self._tunnel.forward_frames(frames)
        else:
            self._early += frames

    def on_oversized_frame(self, problem: str) -> None:
        if self._local_receiver is not None:
            self._local_receiver.on_oversized_frame(problem)
        elif self._tunnel is not None:
            self._tunnel.forward_oversized(problem)
        else:
            self._early.append(problem)

    def on_writable(self) -> None:
        if self._local_receiver is not None:
            self._local_receiver.on_writable()
        elif self._tunnel is not None:
            self._tunnel.resume()

    def on_disconnected(self) -> None:
        self._stream = None
        self._callers.discard(self)
        if self._finding is not None:
            self._finding.cancel()
        if self._local_receiver is not None:
            self._local_receiver.on_disconnected()
        elif self._tunnel is not None:
            self._tunnel.close()

    def has_pending_responses(self) -> bool:
        if self._local_receiver is not None:
            return isinstance(self._local_receiver, RespondingReceiver) and self._local_receiver.has_pending_responses()
        if self._tunnel is not None:
            return self._tunnel.has_pending_responses()
        return bool(self._early)
