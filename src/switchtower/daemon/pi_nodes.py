"""Pi at one of several nodes. Its order of commands is the whole tower's: ids, keys, dependencies, lanes and what everybody
hears. So one node has the seat and its house serves all; clients of the others reach it through the mesh.

Who serves is found out with each client that comes. When the seat changes hands its clients are closed with 1012: whoever
comes again finds the next house, which knows what the journal knows.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from switchtower.core import leases
from switchtower.core.access import Access
from switchtower.core.roles import Role
from switchtower.daemon import pi_tunnel
from switchtower.daemon.pi_caller import PiConnectionRouter
from switchtower.daemon.pi_house import LazyPiServer
from switchtower.daemon.pi_seat import SingletonLease
from switchtower.daemon.pi_tunnel import SERVICE_RESTART, PiTunnelHeader
from switchtower.transports.mesh import ports
from switchtower.transports.outbox import TRY_AGAIN_LATER
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Receiver, Stream

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
        from switchtower.protocols.pi.peer import RejectedConnection

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
        except leases.LeasesUnavailable as problem:
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
        from switchtower.protocols.pi import announcing

        goodbye = Packet([announcing.encode_server_shutdown(round(timeout_s * 1_000))])
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
