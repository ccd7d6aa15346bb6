"""Pi in a cluster. Its order of commands is global (ids, keys, dependencies, lanes and broadcasts), so one node holds the
singleton lease and its server serves all clients; the other nodes forward theirs through the mesh.

The serving node is looked up for each new client, and nothing is read from the client before it is known. When the lease
changes hands, the clients are closed with 1012: a client that reconnects finds the next server, which knows what the journal
knows.

The lease of a service that runs on exactly one node of the cluster, such as pi. It works like the lease of a session: a
node finds its holder, acquires it when it is free, and releases it. The service itself is not known here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from switchtower.cluster import pi_tunnel
from switchtower.cluster.mesh import ports
from switchtower.cluster.pi_tunnel import SERVICE_RESTART, PiTunnelHeader, TunnelClientEnd
from switchtower.core.ports import cluster
from switchtower.core.roles import Access, Role
from switchtower.daemon.pi import LazyPiServer
from switchtower.transports.stream import TRY_AGAIN_LATER, Packet, Receiver, RespondingReceiver, Stream

log = logging.getLogger(__name__)

_TRIES = 2


class SingletonLease:
    def __init__(self, leases_: cluster.Leases, node_id: str, *, name: str = "pi") -> None:
        self._leases = leases_
        self._node_id = node_id
        self._lease_name = f"seat:{name}"
        self._lease: cluster.Lease | None = None
        self._losses = 0
        self._retired = False
        self._asking: asyncio.Task[str | None] | None = None
        # One operation at a time: a release must not apply to a lease that was just acquired.
        self._turn = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        """Returns whether this node holds the lease, as far as it knows."""
        return self._lease is not None

    async def find_or_acquire_holder(self) -> str | None:
        """Returns the node that holds the lease, which may be this one: it acquires a lease that is free, or a silent node's.
        None: no node holds it, and this node acquires nothing any more. Raises `LeasesUnavailable`.

        Concurrent callers share one query: after a node has died, all its clients reconnect at once.
        """
        if self._lease is not None:
            return self._node_id
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._acquire())
            self._asking.add_done_callback(self._on_request_done)
        return await asyncio.shield(self._asking)

    def _on_request_done(self, asking: "asyncio.Task[str | None]") -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # the caller may have been cancelled, and then nothing else reads the exception

    async def _acquire(self) -> str | None:
        async with self._turn:
            losses = self._losses
            owner: cluster.Lease | None = None
            lease: cluster.Lease | None = None
            for _ in range(_TRIES):
                lease = None if self._retired else await self._leases.acquire(self._lease_name, self._node_id)
                owner = lease or await self._leases.find_owner(self._lease_name)
                if owner is not None:
                    break  # otherwise it was released between the two queries, or this node acquires nothing
            if lease is None:
                # If that node falls silent between the two queries, the next caller finds out.
                return None if owner is None or owner.node_id == self._node_id else owner.node_id
            if losses != self._losses:
                return None  # the node lost all its leases while this was in flight: the next caller queries again
            self._lease = lease
            log.info("this node has %s", self._lease_name)
            return self._node_id

    def mark_lost(self) -> bool:
        """This node's lease has expired, or was renewed too late: another node may hold the singleton by now. Returns whether
        it was held.
        """
        self._losses += 1
        held, self._lease = self._lease is not None, None
        return held

    async def retire(self) -> None:
        """Releases the lease and never acquires it again: the node is about to stop."""
        self._retired = True
        await self.release()

    async def release(self) -> None:
        """Frees the lease for other nodes at once. When the database is unavailable, it becomes free when the lease expires."""
        lease, self._lease = self._lease, None
        self._losses += 1
        if lease is None:
            return
        async with self._turn:
            try:
                await self._leases.release(lease)
            except cluster.LeasesUnavailable as problem:
                log.warning("%s could not be given up: %s", self._lease_name, problem)


Serve = Callable[["PiConnectionRouter", Stream], Coroutine[None, None, None]]
"""Calls `serve_locally` or `serve_through_tunnel`, or closes the stream."""


class PiConnectionRouter:
    """One client's connection. Implements `stream.Receiver` and `stream.RespondingReceiver`."""

    def __init__(
        self, opening: PiTunnelHeader, serve: Serve, callers: "set[PiConnectionRouter]", *, may_travel: bool = True
    ) -> None:
        """`callers` contains it while it is not served here. `may_travel`: it may be forwarded to another node; a client that
        another node forwarded is not forwarded again.
        """
        self.opening = opening
        self.may_travel = may_travel
        self._serve = serve
        self._callers = callers
        self._stream: Stream | None = None
        self._early: list[bytes | str] = []
        """Frames that arrived before the server was known; a `str` is the problem of a discarded frame."""
        self._finding: asyncio.Task[None] | None = None
        self._local_receiver: Receiver | None = None
        self._tunnel: TunnelClientEnd | None = None

    def serve_locally(self, served: Receiver) -> None:
        """Serves the client on this node."""
        if self._stream is None:
            return
        self._callers.discard(self)
        self._local_receiver = served
        served.on_connected(self._stream)
        self._stream.resume_reading()
        self._forward_buffered()

    def serve_through_tunnel(self, mesh: ports.Mesh, node_id: str) -> None:
        """Raises `ports.NodeUnreachable`."""
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

    # Receiver

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        # No server reads it yet.
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


INTERNAL_ERROR = 1011
GOING_AWAY = 1001
"""The close code that the document requires of a server that stops."""
RECONNECT = "service restart, reconnect"
NO_PI_NODE = "no node serves pi right now; try again in a second"
VERSION_MISMATCH = "the nodes are of different versions; try again when all are upgraded"
IDLE_SECONDS = 60.0
"""The holder of the lease reads everything that any node stores; without a client that is wasted."""
_POLL_SECONDS = 0.02
_CLOSE_TIMEOUT = 5.0
"""The server's remaining work may wait for a database that is unavailable."""


class ClusterPiServer:
    """Implements `PiServerPort`."""

    def __init__(
        self,
        server: LazyPiServer,
        lease: SingletonLease,
        mesh: ports.Mesh,
        *,
        holds_lease: Callable[[], bool] | None = None,
        idle_s: float = IDLE_SECONDS,
    ) -> None:
        """`holds_lease` returns whether the node's lease is valid at this very moment, by its own clock. A process that was
        suspended for a while reads received data before its timers fire.
        """
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
        """Accepts a client of another node, which believes that this node holds the lease."""
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
        """Finds the server of this client and connects it. Closes the client when there is none."""
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
            # This node acquires nothing any more; another node does when it is called.
            node_id = next(iter(self._mesh.peers), None)
        if self._lease.is_held and node_id == me:
            caller.serve_locally(self._accept_locally(caller.opening))
        elif node_id in (None, me) or not caller.may_travel:
            stream.close(TRY_AGAIN_LATER, NO_PI_NODE)
        else:
            assert node_id is not None
            caller.serve_through_tunnel(self._mesh, node_id)

    # Shutdown

    def on_lease_lost(self) -> None:
        """This node's lease has expired, or was renewed too late: another node may serve already. It must be called at once."""
        if self._lease.mark_lost():
            log.warning("this node serves pi no longer")
        self._discard_server()

    async def leave(self, timeout_s: float, code: int = SERVICE_RESTART) -> None:
        """Disconnects all clients: they are notified, active commands get time to finish, and then the connections are closed
        with this code. The lease is released. Later clients are still accepted, and served by another node.
        """
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
            await asyncio.sleep(_POLL_SECONDS)  # a receiver reports this only when polled
        for caller in callers:
            caller.close_for_restart(code, RECONNECT)

    async def close(self) -> None:
        """Runs when the node stops, after `leave`."""
        if self._timer is not None:
            self._timer.cancel()
        self._discard_server()
        if self._rest:
            await asyncio.wait(self._rest, timeout=_CLOSE_TIMEOUT)

    def _discard_server(self, code: int = SERVICE_RESTART) -> None:
        if (rest := self._server.discard(code, RECONNECT)) is not None:
            self._run_in_background(rest)

    def _release_if_idle(self) -> None:
        """A server that had no clients for a while is discarded, and the lease is released."""
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
