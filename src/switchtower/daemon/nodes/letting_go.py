"""Clients of a node that is emptied are let go, each in its protocol's own words, with the hint to come back: a balancer, or
their own list, brings them to another node."""

from switchtower.daemon.listeners import Listeners
from switchtower.daemon.relay_house import LazyRelay

SERVICE_RESTART = 1012
REASON = "service restart, reconnect"


async def drain_clients(listeners: Listeners, relay: LazyRelay, grace_s: float) -> None:
    """Closes all connections but those of pi, which end with the node's lease on pi."""
    await relay.close_for_restart(SERVICE_RESTART, REASON)
    listeners.close_for_restart(grace_s)
