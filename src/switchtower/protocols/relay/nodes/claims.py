"""Which node has which host, by what each says of itself. Pure.

Clocks of machines differ, so connections are numbered by a count that all nodes share: whoever hears of a greater number goes
on from there. A host that comes to a second node has thus a greater number there than at the first, unless the second has not
heard of the first yet. Then the node's id decides, the same everywhere: of two connections exactly one stays.
"""

from typing import NamedTuple

from switchtower.protocols.relay.nodes.letters import PresenceMessage


class ClaimChanges(NamedTuple):
    """What is different after some words of another node."""

    appeared: frozenset[str] = frozenset()
    """Hosts that no other node had before."""
    vanished: frozenset[str] = frozenset()
    """Hosts that no other node has any more."""
    replaced: frozenset[str] = frozenset()
    """Hosts of ours that have come to another node since."""


class HostClaims:
    def __init__(self, own_node_id: str) -> None:
        self._own_node_id = own_node_id
        self._clock = 0
        self._own: dict[str, int] = {}
        self._others: dict[str, dict[str, int]] = {}
        self._last_stamps: dict[str, int] = {}

    def __contains__(self, host_id: str) -> bool:
        """Whether another node has it."""
        return any(host_id in hosts for hosts in self._others.values())

    def find_holder(self, host_id: str) -> str | None:
        """The other node that has it; where several say so, the one that it came to last."""
        found = [(hosts[host_id], node_id) for node_id, hosts in self._others.items() if host_id in hosts]
        return max(found)[1] if found else None

    def list_holders(self, host_id: str) -> list[str]:
        return [node_id for node_id, hosts in self._others.items() if host_id in hosts]

    # What happens here, and what is told of it

    def claim(self, host_id: str) -> PresenceMessage:
        self._own[host_id] = stamp = self._increment_clock()
        return PresenceMessage(stamp, here={host_id: stamp})

    def release(self, host_id: str) -> PresenceMessage:
        self._own.pop(host_id, None)
        return PresenceMessage(self._increment_clock(), gone=[host_id])

    def make_full_presence(self, *, wants_all: bool) -> PresenceMessage:
        return PresenceMessage(self._increment_clock(), here=dict(self._own), is_all=True, wants_all=wants_all)

    # What others say

    def apply_presence(self, node_id: str, presence: PresenceMessage) -> ClaimChanges:
        self._clock = max(self._clock, presence.stamp, *presence.here.values())
        if presence.stamp <= self._last_stamps.get(node_id, 0):
            return ClaimChanges()  # from a connection that has ended: later words were heard already
        self._last_stamps[node_id] = presence.stamp
        hosts = self._others.get(node_id, {})
        now = {} if presence.is_all else {host_id: stamp for host_id, stamp in hosts.items() if host_id not in presence.gone}
        return self._replace(node_id, now | presence.here)

    def remove_node(self, node_id: str) -> ClaimChanges:
        """The node cannot be reached: it takes its hosts with it. What it said last is remembered, to know what is older."""
        return self._replace(node_id, {})

    def _replace(self, node_id: str, now: dict[str, int]) -> ClaimChanges:
        before = self._others.pop(node_id, {})
        named = before.keys() | now.keys()
        known = {host_id for host_id in named if host_id in self}
        if now:
            self._others[node_id] = now
        return ClaimChanges(
            appeared=frozenset(now.keys() - before.keys() - known),
            vanished=frozenset(before.keys() - now.keys() - known),
            replaced=frozenset(
                host_id
                for host_id in now.keys() & self._own.keys()
                if (now[host_id], node_id) > (self._own[host_id], self._own_node_id)
            ),
        )

    def _increment_clock(self) -> int:
        self._clock += 1
        return self._clock
