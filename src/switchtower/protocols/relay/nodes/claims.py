"""Which node has which host, by what each says of itself. Pure.

Clocks of machines differ, so connections are numbered by a count that all nodes share: whoever hears of a greater number goes
on from there. A host that comes to a second node has thus a greater number there than at the first, unless the second has not
heard of the first yet. Then the node's id decides, the same everywhere: of two connections exactly one stays.
"""

from typing import NamedTuple

from switchtower.protocols.relay.nodes.letters import Presence


class Change(NamedTuple):
    """What is different after some words of another node."""

    appeared: frozenset[str] = frozenset()
    """Hosts that no other node had before."""
    vanished: frozenset[str] = frozenset()
    """Hosts that no other node has any more."""
    replaced: frozenset[str] = frozenset()
    """Hosts of ours that have come to another node since."""


class Claims:
    def __init__(self, own_node_id: str) -> None:
        self._own_node_id = own_node_id
        self._count = 0
        self._own: dict[str, int] = {}
        self._others: dict[str, dict[str, int]] = {}
        self._last_words: dict[str, int] = {}

    def __contains__(self, host_id: str) -> bool:
        """Whether another node has it."""
        return any(host_id in hosts for hosts in self._others.values())

    def holder(self, host_id: str) -> str | None:
        """The other node that has it; where several say so, the one that it came to last."""
        found = [(hosts[host_id], node_id) for node_id, hosts in self._others.items() if host_id in hosts]
        return max(found)[1] if found else None

    def holders(self, host_id: str) -> list[str]:
        return [node_id for node_id, hosts in self._others.items() if host_id in hosts]

    # What happens here, and what is told of it

    def took(self, host_id: str) -> Presence:
        self._own[host_id] = stamp = self._next()
        return Presence(stamp, here={host_id: stamp})

    def lost(self, host_id: str) -> Presence:
        self._own.pop(host_id, None)
        return Presence(self._next(), gone=[host_id])

    def everything(self, *, wants_all: bool) -> Presence:
        return Presence(self._next(), here=dict(self._own), is_all=True, wants_all=wants_all)

    # What others say

    def heard(self, node_id: str, said: Presence) -> Change:
        self._count = max(self._count, said.stamp, *said.here.values())
        if said.stamp <= self._last_words.get(node_id, 0):
            return Change()  # from a connection that has ended: later words were heard already
        self._last_words[node_id] = said.stamp
        hosts = self._others.get(node_id, {})
        now = {} if said.is_all else {host_id: stamp for host_id, stamp in hosts.items() if host_id not in said.gone}
        return self._replace(node_id, now | said.here)

    def forget(self, node_id: str) -> Change:
        """The node cannot be reached: it takes its hosts with it. What it said last is remembered, to know what is older."""
        return self._replace(node_id, {})

    def _replace(self, node_id: str, now: dict[str, int]) -> Change:
        before = self._others.pop(node_id, {})
        named = before.keys() | now.keys()
        known = {host_id for host_id in named if host_id in self}
        if now:
            self._others[node_id] = now
        return Change(
            appeared=frozenset(now.keys() - before.keys() - known),
            vanished=frozenset(before.keys() - now.keys() - known),
            replaced=frozenset(
                host_id
                for host_id in now.keys() & self._own.keys()
                if (now[host_id], node_id) > (self._own[host_id], self._own_node_id)
            ),
        )

    def _next(self) -> int:
        self._count += 1
        return self._count
