"""Clients of a node that is emptied are let go, each in its protocol's own words, with the hint to come back: a balancer, or
their own list, brings them to another node."""

from switchtower.daemon.listeners import Listeners
from switchtower.daemon.relay_house import RelayHouse

SERVICE_RESTART = 1012
REASON = "service restart, reconnect"


class LettingGo:
    def __init__(self, listeners: Listeners, relay: RelayHouse, grace_s: float) -> None:
        self._listeners = listeners
        self._relay = relay
        self._grace_s = grace_s

    async def __call__(self) -> None:
        """Those of pi have gone with its seat."""
        await self._relay.let_go(SERVICE_RESTART, REASON)
        self._listeners.let_go(self._grace_s)
