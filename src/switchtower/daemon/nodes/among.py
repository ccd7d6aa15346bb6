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
from switchtower.daemon.home import Home
from switchtower.daemon.listeners import Listeners
from switchtower.daemon.nodes.letting_go import drain_clients
from switchtower.daemon.nodes.node import Node
from switchtower.daemon.pi_house import LateHouse
from switchtower.daemon.pi_nodes import GOING_AWAY, PiNode
from switchtower.daemon.pi_seat import Seat
from switchtower.daemon.relay_house import RelayHouse, Shared

log = logging.getLogger(__name__)

_LIBRARIES = ("asyncpg", "cryptography")


async def open_node(settings: config.Settings, home: Home, redactor: redact.Redactor, version: str) -> Node:
    """Raises `ConfigError`, `CannotListen` or `errors.JournalUnavailable`."""
    assert settings.store is not None, "only a daemon with a shared store is a node"
    for library in _LIBRARIES:
        if importlib.util.find_spec(library) is None:
            hint = "pip install 'switchtower[postgres]'"
            raise config.ConfigError("store", "your settings", f"needs `{library}`, which is not installed", hint=hint)
    if password := urlsplit(settings.store).password:
        redactor.add(unquote(password))
    node = Node(settings, settings.store, version)
    await node.open(home, os.environ)
    return node


def workshop_of(node: Node, here: workshop.Workshop) -> workshop.Workshop:
    """What a session's folder tells is asked where its home is."""
    return far_workshop.shared(here, node.mesh, far_workshop.homes(node.leases, node.node_id))


class Among:
    def __init__(self, node: Node, house: LateHouse, settings: config.Settings) -> None:
        """Of a node that has settled."""
        self._node = node
        self._patience = settings.shutdown_timeout
        residence = node.residence
        seat = Seat(node.leases, node.node_id)
        self.pi = PiNode(house, seat, node.mesh, holds=lambda: residence.holds_its_leases)
        residence.lapsed = self.pi.lost
        self.shared = Shared(node.registry, node.jwt_secret, node.mesh)

    def serves(self, listeners: Listeners, relay: RelayHouse) -> None:
        """These are the clients that are let go when the node is emptied."""
        self._node.residence.leave_seats = partial(self.pi.leave, self._patience)
        self._node.residence.let_go = partial(drain_clients, listeners, relay, self._patience)

    async def load(self, relay: RelayHouse, stop: asyncio.Event) -> None:
        """Other nodes may ask for it at any time. A node that serves does not end because its database is away for a while."""
        while not stop.is_set():
            try:
                await relay.parts()
                return
            except (registry.RegistryUnavailable, errors.JournalUnavailable) as problem:
                log.warning("hosts cannot be missed yet: %s", problem)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await stop.wait()

    async def say_goodbye(self) -> None:
        """Clients of pi hear first that we stop."""
        await self.pi.leave(self._patience, GOING_AWAY)

    async def leave(self) -> None:
        """After the runtime has stopped."""
        await self.pi.close()
        await self._node.leave()
