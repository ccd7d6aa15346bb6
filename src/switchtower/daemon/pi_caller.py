"""A pi client for whom is being looked who serves it, and from then on the way to that: a house here, or one at another node.

Reads nothing before that is known. Decides nothing: whoever made it is asked.
"""

import asyncio
from collections.abc import Callable, Coroutine

from switchtower.daemon import pi_tunnel
from switchtower.daemon.pi_tunnel import NearEnd, Opening
from switchtower.transports.mesh import ports
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Debtor, Receiver, Stream

Serve = Callable[["Caller", Stream], Coroutine[None, None, None]]
"""Calls `join` or `travel`, or closes the stream."""


class Caller:
    """Implements `stream.Receiver` and `stream.Debtor`."""

    def __init__(self, opening: Opening, serve: Serve, callers: "set[Caller]", *, may_travel: bool = True) -> None:
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
        self._here: Receiver | None = None
        self._there: NearEnd | None = None

    def join(self, served: Receiver) -> None:
        """Served at this node."""
        if self._stream is None:
            return
        self._callers.discard(self)
        self._here = served
        served.connected(self._stream)
        self._stream.resume_reading()
        self._pass_on_early()

    def travel(self, mesh: ports.Mesh, node_id: str) -> None:
        """Raises `ports.Unreachable`."""
        if self._stream is None:
            return
        origin = self._stream.origin
        who = Opening(
            access=self.opening.access,
            transport=origin.transport,
            address=origin.address,
            namespace=self.opening.namespace,
            lifecycle=self.opening.lifecycle,
            cwd=self.opening.cwd,
        )
        there = NearEnd(self._stream)
        mesh.tunnel(node_id, pi_tunnel.SUBJECT, who.encoded(), there)
        self._there = there
        self._stream.resume_reading()
        self._pass_on_early()

    def say(self, packet: Packet) -> None:
        if self._stream is not None:
            self._stream.send(packet)

    def let_go(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    def _pass_on_early(self) -> None:
        early, self._early = self._early, []
        for said in early:
            if isinstance(said, str):
                self.refused(said)
            else:
                self.received([said])

    # The receiver's side

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        # Nobody hears it yet.
        stream.pause_reading()
        self._callers.add(self)
        self._finding = asyncio.get_running_loop().create_task(self._serve(self, stream))

    def received(self, frames: list[bytes]) -> None:
        if self._here is not None:
            self._here.received(frames)
        elif self._there is not None:
            self._there.said(frames)
        else:
            self._early += frames

    def refused(self, problem: str) -> None:
        if self._here is not None:
            self._here.refused(problem)
        elif self._there is not None:
            self._there.oversized(problem)
        else:
            self._early.append(problem)

    def writable_again(self) -> None:
        if self._here is not None:
            self._here.writable_again()
        elif self._there is not None:
            self._there.reads_again()

    def disconnected(self) -> None:
        self._stream = None
        self._callers.discard(self)
        if self._finding is not None:
            self._finding.cancel()
        if self._here is not None:
            self._here.disconnected()
        elif self._there is not None:
            self._there.left()

    def owes(self) -> bool:
        if self._here is not None:
            return isinstance(self._here, Debtor) and self._here.owes()
        if self._there is not None:
            return self._there.owes()
        return bool(self._early)
