"""What is different in a daemon that is one of several: where clients of pi are served, what hosts and users share, how it parts
from everybody. The composition root asks here; a daemon that is alone never loads it."""

import asyncio
import contextlib
import importlib.util
import logging
import os
from functools import partial
from urllib.parse import unquote, urlsplit

from switchtower import config
from switchtower.core import errors, redact, registry, workshop
from switchtower.daemon import far_workshop
from switchtower.daemon.home import DaemonHome
from switchtower.daemon.listeners import Listeners
from switchtower.daemon.nodes.letting_go import drain_clients
from switchtower.daemon.nodes.node import LocalNode
from switchtower.daemon.pi_house import LazyPiServer
from switchtower.daemon.pi_nodes import GOING_AWAY, ClusterPiServer
from switchtower.daemon.pi_seat import SingletonLease
from switchtower.daemon.relay_house import LazyRelay, SharedServices

log = logging.getLogger(__name__)

_LIBRARIES = ("asyncpg", "cryptography")


async def open_node(settings: config.Settings, home: DaemonHome, redactor: redact.Redactor, version: str) -> LocalNode:
    """Raises `ConfigError`, `CannotListen` or `errors.JournalUnavailable`."""
    assert settings.store is not None, "only a daemon with a shared store is a node"
    for library in _LIBRARIES:
        if importlib.util.find_spec(library) is None:
            hint = "pip install 'switchtower[postgres]'"
            raise config.ConfigError("store", "your settings", f"needs `{library}`, which is not installed", hint=hint)
    if password := urlsplit(settings.store).password:
        redactor.add_secret(unquote(password))
    node = LocalNode(settings, settings.store, version)
    await node.open(home, os.environ)
    return node


def make_node_host_services(node: LocalNode, local: workshop.HostServices) -> workshop.HostServices:
    """What a session's folder tells is asked where its home is."""
    return far_workshop.make_cluster_host_services(local, node.mesh, far_workshop.make_owner_lookup(node.leases, node.node_id))


class ClusterComposition:
    def __init__(self, node: LocalNode, server: LazyPiServer, settings: config.Settings) -> None:
        """Of a node that has settled."""
        self._node = node
        self._timeout = settings.shutdown_timeout
        residence = node.residence
        seat = SingletonLease(node.leases, node.node_id)
        self.pi = ClusterPiServer(server, seat, node.mesh, holds_lease=lambda: residence.has_valid_leases)
        residence.lapsed = self.pi.on_lease_lost
        self.shared = SharedServices(node.registry, node.jwt_secret, node.mesh)

    def set_clients(self, listeners: Listeners, relay: LazyRelay) -> None:
        """These are the clients that are let go when the node is emptied."""
        self._node.residence.release_singletons = partial(self.pi.leave, self._timeout)
        self._node.residence.drain_clients = partial(drain_clients, listeners, relay, self._timeout)

    async def load_relay(self, relay: LazyRelay, stop: asyncio.Event) -> None:
        """Other nodes may ask for it at any time. A node that serves does not end because its database is away for a while."""
        while not stop.is_set():
            try:
                await relay.get_parts()
                return
            except (registry.RegistryUnavailable, errors.JournalUnavailable) as problem:
                log.warning("hosts cannot be missed yet: %s", problem)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await stop.wait()

    async def shut_down_pi(self) -> None:
        """Clients of pi hear first that we stop."""
        await self.pi.leave(self._timeout, GOING_AWAY)

    async def leave_cluster(self) -> None:
        """After the runtime has stopped."""
        await self.pi.close()
        await self._node.leave()
