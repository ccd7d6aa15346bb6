"""The leases in memory: the same contract, for tests of their users. Nodes in one process share its content.

It knows sessions only by the cards that it is given, and it writes to no journal, so it fences no append.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from msgspec import structs

from switchtower.core import states
from switchtower.core.ports import cluster, journal


class MemoryLeases:
    """Implements `cluster.Leases`. No method awaits inside a change, so each is atomic."""

    def __init__(self, cards: Callable[[], Iterable[journal.Card]] = tuple, *, beside: Self | None = None) -> None:
        """`cards` returns those of all sessions that were started. `beside`: shares the content of another instance, like
        nodes of one database.
        """
        self._cards: Callable[[], Iterable[journal.Card]] = beside._cards if beside else cards
        self._nodes: dict[str, cluster.Node] = beside._nodes if beside else {}
        self._owners: dict[str, tuple[str | None, int]] = beside._owners if beside else {}
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> int:
        if not self._is_open:
            raise cluster.LeasesUnavailable("they are not open")
        return time.monotonic_ns() // 1_000_000

    def _is_alive(self, node_id: str | None) -> bool:
        node = self._nodes.get(node_id or "")
        return node is not None and node.expires_at_ms > self._check_open()

    def _set_lease(self, session_id: str, node_id: str, epoch: int) -> cluster.Lease:
        self._owners[session_id] = node_id, epoch
        return cluster.Lease(session_id, node_id, epoch, self._nodes[node_id].expires_at_ms)

    def _can_take(self, node_id: str) -> bool:
        return self._is_alive(node_id) and not self._nodes[node_id].draining

    async def join(self, node_id: str, address: str, lasts_ms: int, *, name: str = "", version: str = "") -> None:
        now_ms = self._check_open()
        known = self._nodes.get(node_id)
        joined_at_ms = known.joined_at_ms if known else now_ms
        self._nodes[node_id] = cluster.Node(
            node_id=node_id,
            address=address,
            joined_at_ms=joined_at_ms,
            expires_at_ms=now_ms + lasts_ms,
            is_alive=lasts_ms > 0,
            sessions=0,
            name=name,
            version=version,
            draining=known is not None and known.draining,
        )

    async def begin_drain(self, node_id: str) -> None:
        self._check_open()
        if node_id in self._nodes:
            self._nodes[node_id] = structs.replace(self._nodes[node_id], draining=True)

    async def drain(self, node_id: str) -> int:
        await self.begin_drain(node_id)
        return self._release_all(node_id)

    async def renew(self, node_id: str, lasts_ms: int) -> cluster.Renewal:
        now_ms = self._check_open()
        node = self._nodes.get(node_id)
        if node is None:
            return cluster.Renewal.UNKNOWN
        self._nodes[node_id] = structs.replace(node, expires_at_ms=now_ms + lasts_ms)
        return cluster.Renewal.KEPT if node.expires_at_ms > now_ms else cluster.Renewal.LATE

    async def inherit(self, from_node_id: str, node_id: str) -> int:
        self._check_open()
        if not self._can_take(node_id):
            return 0
        self._nodes.pop(from_node_id, None)
        mine = [(session_id, epoch) for session_id, (owner, epoch) in self._owners.items() if owner == from_node_id]
        self._owners.update((session_id, (node_id, epoch + 1)) for session_id, epoch in mine)
        return len(mine)

    async def leave(self, node_id: str) -> int:
        self._check_open()
        self._nodes.pop(node_id, None)
        return self._release_all(node_id)

    def _release_all(self, node_id: str) -> int:
        freed = [(session_id, epoch) for session_id, (owner, epoch) in self._owners.items() if owner == node_id]
        self._owners.update((session_id, (None, epoch + 1)) for session_id, epoch in freed)
        return len(freed)

    async def list_nodes(self, *, counted: bool = True) -> list[cluster.Node]:
        self._check_open()
        began = [self._owners.get(card.session_id, (None, 0))[0] for card in self._cards()] if counted else []
        return [
            structs.replace(node, is_alive=self._is_alive(node_id), sessions=began.count(node_id))
            for node_id, node in sorted(self._nodes.items())
        ]

    async def forget_nodes(self, silent_for_ms: int) -> int:
        until_ms = self._check_open() - silent_for_ms
        owners = {owner for owner, _ in self._owners.values()}
        gone = [key for key, node in self._nodes.items() if node.expires_at_ms <= until_ms and key not in owners]
        for node_id in gone:
            del self._nodes[node_id]
        return len(gone)

    async def acquire(self, session_id: str, node_id: str) -> cluster.Lease | None:
        self._check_open()
        owner, epoch = self._owners.get(session_id, (None, 0))
        if not self._can_take(node_id) or (owner not in (None, node_id) and self._is_alive(owner)):
            return None
        return self._set_lease(session_id, node_id, epoch if owner == node_id else epoch + 1)

    async def acquire_all(self, session_ids: Sequence[str], node_id: str, *, begin: bool = True) -> list[cluster.Lease]:
        there = self._owners.keys() | {card.session_id for card in self._cards()}
        wanted = [session_id for session_id in dict.fromkeys(session_ids) if begin or session_id in there]
        taken = [await self.acquire(session_id, node_id) for session_id in wanted]
        return [lease for lease in taken if lease is not None]

    async def hand_over(self, lease: cluster.Lease, to_node_id: str) -> cluster.Lease | None:
        self._check_open()
        if self._owners.get(lease.session_id) != (lease.node_id, lease.epoch) or not self._can_take(to_node_id):
            return None
        return self._set_lease(lease.session_id, to_node_id, lease.epoch + 1)

    async def release(self, lease: cluster.Lease) -> bool:
        self._check_open()
        if self._owners.get(lease.session_id) != (lease.node_id, lease.epoch):
            return False
        self._owners[lease.session_id] = None, lease.epoch + 1
        return True

    def _list_active(self) -> set[str]:
        return {
            card.session_id for card in self._cards() if card.host is None and (card.state in states.ACTIVE or card.shells > 0)
        }

    async def take_over(self, node_id: str, limit: int) -> list[cluster.Lease]:
        self._check_open()
        if not self._can_take(node_id):
            return []
        homes = [(session_id, *self._owners.get(session_id, (None, 0))) for session_id in sorted(self._list_active())]
        orphans = [(session_id, epoch) for session_id, owner, epoch in homes if not self._is_alive(owner)]
        return [self._set_lease(session_id, node_id, epoch + 1) for session_id, epoch in orphans[:limit]]

    async def release_silent(self, limit: int) -> int:
        self._check_open()
        others = sorted(self._owners.keys() - self._list_active())
        homes = [(session_id, *self._owners[session_id]) for session_id in others]
        orphans = [(key, epoch) for key, owner, epoch in homes if owner is not None and not self._is_alive(owner)][:limit]
        self._owners.update((session_id, (None, epoch + 1)) for session_id, epoch in orphans)
        return len(orphans)

    async def find_owner(self, session_id: str) -> cluster.Lease | None:
        self._check_open()
        owner, epoch = self._owners.get(session_id, (None, 0))
        return None if owner is None else cluster.Lease(session_id, owner, epoch, self._nodes[owner].expires_at_ms)

    async def find_owners(self, session_ids: Sequence[str]) -> list[cluster.Lease]:
        found = [await self.find_owner(session_id) for session_id in dict.fromkeys(session_ids)]
        return [lease for lease in found if lease is not None]

    async def list_owned(self, node_id: str, *, limit: int, after: str = "") -> list[cluster.Lease]:
        self._check_open()
        mine = sorted(key for key, (owner, _) in self._owners.items() if owner == node_id and key > after)[:limit]
        return [cluster.Lease(key, node_id, self._owners[key][1], self._nodes[node_id].expires_at_ms) for key in mine]
