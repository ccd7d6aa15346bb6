"""A pi client for whom is being looked who serves it, and from then on the way to that: a house here, or one at another node.

Reads nothing before that is known. Decides nothing: whoever made it is asked.

Pi at one of several nodes. Its order of commands is the whole tower's: ids, keys, dependencies, lanes and what everybody
hears. So one node has the seat and its house serves all; clients of the others reach it through the mesh.

Who serves is found out with each client that comes. When the seat changes hands its clients are closed with 1012: whoever
comes again finds the next house, which knows what the journal knows."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from switchtower.cluster import pi_tunnel
from switchtower.cluster.mesh import ports
from switchtower.cluster.pi_tunnel import SERVICE_RESTART, PiTunnelHeader, TunnelClientEnd
from switchtower.cluster.singleton_lease import SingletonLease
from switchtower.core.ports import cluster
from switchtower.core.roles import Access, Role
from switchtower.daemon.pi import LazyPiServer
from switchtower.transports.stream import TRY_AGAIN_LATER, Packet, Receiver, RespondingReceiver, Stream

Serve = Callable[["PiConnectionRouter", Stream], Coroutine[None, None, None]]
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


log = logging.getLogger(__name__)

INTERNAL_ERROR = 1011
GOING_AWAY = 1001
"""As the document wants it of a server that stops."""
RECONNECT = "service restart, reconnect"
NO_PI_NODE = "no node serves pi right now; try again in a second"
VERSION_MISMATCH = "the nodes are of different versions; try again when all are upgraded"
IDLE_SECONDS = 60.0
"""Whoever has the seat reads all that any node stores; without a client that is for nothing."""
_POLL_SECONDS = 0.02
_CLOSE_TIMEOUT = 5.0
"""What is left of a house may wait for a database that is away."""


class ClusterPiServer:
    """Implements `pi_doors.Reception`."""

    def __init__(
        self,
        server: LazyPiServer,
        lease: SingletonLease,
        mesh: ports.Mesh,
        *,
        holds_lease: Callable[[], bool] | None = None,
        idle_s: float = IDLE_SECONDS,
    ) -> None:
        """`holds`: whether the node's lease lasts at this very moment, by its own clock. A process that was stopped for a while
        reads what has come before its timers tell it that it is late."""
        self._server = server
        server.holds_lease = holds_lease
        self._lease = lease
        self._mesh = mesh
        self._idle_s = idle_s
        self._callers: set[PiConnectionRouter] = set()
        self._rest: set[asyncio.Task[None]] = set()
        self._was_idle = False
        self._timer: asyncio.TimerHandle | None = None
        mesh.accept_tunnels(pi_tunnel.SUBJECT, self._accept_tunnel)

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> Receiver:
        opening = PiTunnelHeader(access=access, transport="", namespace=namespace, lifecycle=lifecycle, cwd=cwd)
        return self._accept_locally(opening) if self._lease.is_held else PiConnectionRouter(opening, self._route, self._callers)

    def refuse(self, code: int, reason: str) -> Receiver:
        from switchtower.protocols.pi.connection import RejectedConnection

        return RejectedConnection(code, reason)

    def _accept_tunnel(self, node_id: str, opening: bytes) -> Receiver:
        """Somebody at another node, which believes that the seat is here."""
        who = pi_tunnel.decode_header(opening)
        if who is None:
            log.warning("node %s sent a pi client in words of another version", node_id)
            who = PiTunnelHeader(access=Access(name="", via="", trusted=False, role=Role.VIEWER), transport="")
            return pi_tunnel.TunnelServerEnd(self.refuse(TRY_AGAIN_LATER, VERSION_MISMATCH), who)
        client = (
            self._accept_locally(who)
            if self._lease.is_held
            else PiConnectionRouter(who, self._route, self._callers, may_travel=False)
        )
        return pi_tunnel.TunnelServerEnd(client, who)

    def _accept_locally(self, who: PiTunnelHeader) -> Receiver:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._release_if_idle)
        self._was_idle = False
        return self._server.get().accept(who.access, namespace=who.namespace, lifecycle=who.lifecycle, cwd=who.cwd)

    async def _route(self, caller: PiConnectionRouter, stream: Stream) -> None:
        """Finds who serves this client, and joins them. Closes it when nobody does."""
        try:
            await self._connect_to_server(caller, stream)
        except cluster.LeasesUnavailable as problem:
            log.warning("nobody can tell which node serves pi: %s", problem)
            stream.close(TRY_AGAIN_LATER, NO_PI_NODE)
        except ports.NodeUnreachable as problem:
            log.warning("the node that serves pi: %s", problem)
            stream.close(TRY_AGAIN_LATER, NO_PI_NODE)
        except Exception:
            log.exception("a pi client could not be served")
            stream.close(INTERNAL_ERROR, "the daemon failed at this; its log says why")

    async def _connect_to_server(self, caller: PiConnectionRouter, stream: Stream) -> None:
        node_id = await self._lease.find_or_acquire_holder()
        me = self._mesh.local_peer.node_id
        if node_id is None and caller.may_travel:
            # This node takes nothing up any more; another does when it is asked.
            node_id = next(iter(self._mesh.peers), None)
        if self._lease.is_held and node_id == me:
            caller.serve_locally(self._accept_locally(caller.opening))
        elif node_id in (None, me) or not caller.may_travel:
            stream.close(TRY_AGAIN_LATER, NO_PI_NODE)
        else:
            assert node_id is not None
            caller.serve_through_tunnel(self._mesh, node_id)

    # How it ends

    def on_lease_lost(self) -> None:
        """This node's lease has lapsed, or was renewed too late: another may serve already. To be called at once."""
        if self._lease.mark_lost():
            log.warning("this node serves pi no longer")
        self._discard_server()

    async def leave(self, timeout_s: float, code: int = SERVICE_RESTART) -> None:
        """Lets everybody go: they are told, what is under way has its time, and then they are closed with this code. The seat
        is free for others. Whoever comes later is still let in, and served elsewhere."""
        await asyncio.gather(self._release_lease(timeout_s, code), self._close_routers(timeout_s, code))

    async def _release_lease(self, timeout_s: float, code: int) -> None:
        if self._lease.is_held:
            await self._server.shut_down(timeout_s)
            self._discard_server(code)
        await self._lease.retire()

    async def _close_routers(self, timeout_s: float, code: int) -> None:
        callers = tuple(self._callers)
        if not callers:
            return
        from switchtower.protocols.pi import responses

        goodbye = Packet([responses.encode_server_shutdown(round(timeout_s * 1_000))])
        for caller in callers:
            caller.send(goodbye)
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        while clock() < deadline and any(caller in self._callers and caller.has_pending_responses() for caller in callers):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)  # a receiver says when it is asked
        for caller in callers:
            caller.close_for_restart(code, RECONNECT)

    async def close(self) -> None:
        """When the node stops, after `leave`."""
        if self._timer is not None:
            self._timer.cancel()
        self._discard_server()
        if self._rest:
            await asyncio.wait(self._rest, timeout=_CLOSE_TIMEOUT)

    def _discard_server(self, code: int = SERVICE_RESTART) -> None:
        if (rest := self._server.discard(code, RECONNECT)) is not None:
            self._run_in_background(rest)

    def _release_if_idle(self) -> None:
        """A house in which nobody was for a while is given up, and the seat with it."""
        self._timer = None
        if not self._lease.is_held:
            return
        is_idle = self._server.is_idle
        if is_idle and self._was_idle:
            self._discard_server()
            self._run_in_background(self._lease.release())
            return
        self._was_idle = is_idle
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._release_if_idle)

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._rest.add(task)
        task.add_done_callback(self._rest.discard)
