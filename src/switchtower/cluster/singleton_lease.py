"""The seat of a protocol whose rules are the whole tower's: of several nodes exactly one has it, by a lease as on a session.

Says who has it, takes it when nobody does, and gives it up. What is done with it is not known here.
"""

import asyncio
import logging

from switchtower.core.ports import cluster

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
        # One at a time: what is being given up must not be taken for what was just taken.
        self._turn = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        """By this node, as far as it knows."""
        return self._lease is not None

    async def find_or_acquire_holder(self) -> str | None:
        """The node that has the seat, which may be this one: it takes what is free, or a silent node's. None: nobody has it,
        and this node takes nothing up any more. Raises `leases.LeasesUnavailable`.

        Whoever asks while another does is given the same answer: after a node has died all its clients come at once."""
        if self._lease is not None:
            return self._node_id
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._acquire())
            self._asking.add_done_callback(self._on_request_done)
        return await asyncio.shield(self._asking)

    def _on_request_done(self, asking: "asyncio.Task[str | None]") -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # whoever asked may be gone, and then nobody else looks at it

    async def _acquire(self) -> str | None:
        async with self._turn:
            losses = self._losses
            owner: cluster.Lease | None = None
            lease: cluster.Lease | None = None
            for _ in range(_TRIES):
                lease = None if self._retired else await self._leases.acquire(self._lease_name, self._node_id)
                owner = lease or await self._leases.find_owner(self._lease_name)
                if owner is not None:
                    break  # otherwise it was given up between the two questions, or this node takes nothing up
            if lease is None:
                # A node that falls silent between the two is found out by whoever asks next.
                return None if owner is None or owner.node_id == self._node_id else owner.node_id
            if losses != self._losses:
                return None  # the node lost all that it had while this was on its way: the next one asks anew
            self._lease = lease
            log.info("this node has %s", self._lease_name)
            return self._node_id

    def mark_lost(self) -> bool:
        """This node's lease has lapsed, or came too late: the seat may be another's by now. Whether it was held."""
        self._losses += 1
        held, self._lease = self._lease is not None, None
        return held

    async def retire(self) -> None:
        """As `release`, and it is not taken again: the node is about to go."""
        self._retired = True
        await self.release()

    async def release(self) -> None:
        """Free for others at once. Nothing is promised when the database is away: then it is free when the lease ends."""
        lease, self._lease = self._lease, None
        self._losses += 1
        if lease is None:
            return
        async with self._turn:
            try:
                await self._leases.release(lease)
            except cluster.LeasesUnavailable as problem:
                log.warning("%s could not be given up: %s", self._lease_name, problem)
