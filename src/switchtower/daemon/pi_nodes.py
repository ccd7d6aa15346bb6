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
from switchtower.daemon.pi_caller import Caller
from switchtower.daemon.pi_house import LateHouse
from switchtower.daemon.pi_seat import Seat
from switchtower.daemon.pi_tunnel import SERVICE_RESTART, Opening
from switchtower.transports.mesh import ports
from switchtower.transports.outbox import TRY_AGAIN_LATER
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Receiver, Stream

log = logging.getLogger(__name__)

INTERNAL_ERROR = 1011
GOING_AWAY = 1001
"""As the document wants it of a server that stops."""
RECONNECT = "service restart, reconnect"
NOBODY_SERVES = "no node serves pi right now; try again in a second"
NOT_UNDERSTOOD = "the nodes are of different versions; try again when all are upgraded"
IDLE_SECONDS = 60.0
"""Whoever has the seat reads all that any node stores; without a client that is for nothing."""
_ASK_AGAIN_SECONDS = 0.02
_LAST_SECONDS = 5.0
"""What is left of a house may wait for a database that is away."""


class PiNode:
    """Implements `pi_doors.Reception`."""

    def __init__(
        self,
        house: LateHouse,
        seat: Seat,
        mesh: ports.Mesh,
        *,
        holds: Callable[[], bool] | None = None,
        idle_s: float = IDLE_SECONDS,
    ) -> None:
        """`holds`: whether the node's lease lasts at this very moment, by its own clock. A process that was stopped for a while
        reads what has come before its timers tell it that it is late."""
        self._house = house
        house.holds = holds
        self._seat = seat
        self._mesh = mesh
        self._idle_s = idle_s
        self._callers: set[Caller] = set()
        self._rest: set[asyncio.Task[None]] = set()
        self._was_idle = False
        self._timer: asyncio.TimerHandle | None = None
        mesh.hosts(pi_tunnel.SUBJECT, self._host)

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> Receiver:
        opening = Opening(access=access, transport="", namespace=namespace, lifecycle=lifecycle, cwd=cwd)
        return self._served_here(opening) if self._seat.held else Caller(opening, self._serve, self._callers)

    def refuse(self, code: int, reason: str) -> Receiver:
        from switchtower.protocols.pi.peer import Turned

        return Turned(code, reason)

    def _host(self, node_id: str, opening: bytes) -> Receiver:
        """Somebody at another node, which believes that the seat is here."""
        who = pi_tunnel.read_opening(opening)
        if who is None:
            log.warning("node %s sent a pi client in words of another version", node_id)
            who = Opening(access=Access(name="", via="", trusted=False, role=Role.VIEWER), transport="")
            return pi_tunnel.FarEnd(self.refuse(TRY_AGAIN_LATER, NOT_UNDERSTOOD), who)
        client = self._served_here(who) if self._seat.held else Caller(who, self._serve, self._callers, may_travel=False)
        return pi_tunnel.FarEnd(client, who)

    def _served_here(self, who: Opening) -> Receiver:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._look)
        self._was_idle = False
        return self._house.get().accept(who.access, namespace=who.namespace, lifecycle=who.lifecycle, cwd=who.cwd)

    async def _serve(self, caller: Caller, stream: Stream) -> None:
        """Finds who serves this client, and joins them. Closes it when nobody does."""
        try:
            await self._find(caller, stream)
        except leases.LeasesUnavailable as problem:
            log.warning("nobody can tell which node serves pi: %s", problem)
            stream.close(TRY_AGAIN_LATER, NOBODY_SERVES)
        except ports.Unreachable as problem:
            log.warning("the node that serves pi: %s", problem)
            stream.close(TRY_AGAIN_LATER, NOBODY_SERVES)
        except Exception:
            log.exception("a pi client could not be served")
            stream.close(INTERNAL_ERROR, "the daemon failed at this; its log says why")

    async def _find(self, caller: Caller, stream: Stream) -> None:
        node_id = await self._seat.holder()
        me = self._mesh.me.node_id
        if node_id is None and caller.may_travel:
            # This node takes nothing up any more; another does when it is asked.
            node_id = next(iter(self._mesh.peers), None)
        if self._seat.held and node_id == me:
            caller.join(self._served_here(caller.opening))
        elif node_id in (None, me) or not caller.may_travel:
            stream.close(TRY_AGAIN_LATER, NOBODY_SERVES)
        else:
            assert node_id is not None
            caller.travel(self._mesh, node_id)

    # How it ends

    def lost(self) -> None:
        """This node's lease has lapsed, or was renewed too late: another may serve already. To be called at once."""
        if self._seat.lost():
            log.warning("this node serves pi no longer")
        self._drop()

    async def leave(self, timeout_s: float, code: int = SERVICE_RESTART) -> None:
        """Lets everybody go: they are told, what is under way has its time, and then they are closed with this code. The seat
        is free for others. Whoever comes later is still let in, and served elsewhere."""
        await asyncio.gather(self._leave_the_seat(timeout_s, code), self._part_from_callers(timeout_s, code))

    async def _leave_the_seat(self, timeout_s: float, code: int) -> None:
        if self._seat.held:
            await self._house.shut_down(timeout_s)
            self._drop(code)
        await self._seat.retire()

    async def _part_from_callers(self, timeout_s: float, code: int) -> None:
        callers = tuple(self._callers)
        if not callers:
            return
        from switchtower.protocols.pi import announcing

        goodbye = Packet([announcing.server_shutdown(round(timeout_s * 1_000))])
        for caller in callers:
            caller.say(goodbye)
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        while clock() < deadline and any(caller in self._callers and caller.owes() for caller in callers):  # noqa: ASYNC110
            await asyncio.sleep(_ASK_AGAIN_SECONDS)  # a receiver says when it is asked
        for caller in callers:
            caller.let_go(code, RECONNECT)

    async def close(self) -> None:
        """When the node stops, after `leave`."""
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        if self._rest:
            await asyncio.wait(self._rest, timeout=_LAST_SECONDS)

    def _drop(self, code: int = SERVICE_RESTART) -> None:
        if (rest := self._house.drop(code, RECONNECT)) is not None:
            self._later(rest)

    def _look(self) -> None:
        """A house in which nobody was for a while is given up, and the seat with it."""
        self._timer = None
        if not self._seat.held:
            return
        is_idle = self._house.is_idle
        if is_idle and self._was_idle:
            self._drop()
            self._later(self._seat.release())
            return
        self._was_idle = is_idle
        self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._look)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._rest.add(task)
        task.add_done_callback(self._rest.discard)
