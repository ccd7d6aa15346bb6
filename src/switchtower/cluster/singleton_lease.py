"""The lease of a service that runs on exactly one node of the cluster, such as pi. It works like the lease of a session: a
node finds its holder, acquires it when it is free, and releases it. The service itself is not known here.
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
