"""Why a load balancer should send nobody to a node, in words. Pure: whoever knows how things stand passes it in.

What makes this daemon one of several: a PostgreSQL that all of them share, leases on sessions, and a way to the others.

Made before the runtime, and joined to it when that is there. Loaded only by a daemon that has `store` set.

The shared PostgreSQL as the monitor and the audit see it: what is in it by state, how large it is, who decided what.

Clients of a node that is emptied are let go, each in its protocol's own words, with the hint to come back: a balancer, or
their own list, brings them to another node.

What is different in a daemon that is one of several: where clients of pi are served, what hosts and users share, how it parts
from everybody. The composition root asks here; a daemon that is alone never loads it."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import secrets as randomness
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.accounts import credentials
from switchtower.cluster import host_services as cluster_host_services
from switchtower.cluster.membership import MembershipTerms, NodeMembership
from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.mesh import TcpMesh
from switchtower.cluster.mesh.ports import MeshPeer
from switchtower.cluster.ownership import LeasedOwnership
from switchtower.cluster.pi_router import GOING_AWAY, ClusterPiServer
from switchtower.cluster.singleton_lease import SingletonLease
from switchtower.core import errors, ids, redact
from switchtower.core.ports import cluster, host_services, registry
from switchtower.daemon import home
from switchtower.daemon.home import DaemonHome
from switchtower.daemon.listeners import Listeners
from switchtower.daemon.pi import LazyPiServer
from switchtower.daemon.relay import LazyRelay, SharedServices
from switchtower.runtime.runtime import Runtime
from switchtower.settings import parsers
from switchtower.settings.sources import ConfigError
from switchtower.stores.postgres.audit import PostgresAudit
from switchtower.stores.postgres.database import mask_password
from switchtower.stores.postgres.inspection import PostgresCounts
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.listener import HeadsNotice, NotificationListener
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.stores.postgres.secrets import PostgresSecrets
from switchtower.tools import atomic_write


class NodeReadiness(Struct, frozen=True):
    """How one of several nodes stands. As it begins, all is well."""

    draining: bool = False
    database_answers: bool = True
    lease_holds: bool = True
    """Whether it said in time that it is there. Once it did not, others may have its sessions."""


def list_unready_reasons(standing: NodeReadiness) -> list[str]:
    reasons = []
    if standing.draining:
        reasons.append("the node is draining")
    if not standing.database_answers:
        reasons.append("the database does not answer")
    if not standing.lease_holds:
        reasons.append("the node's lease has lapsed")
    return reasons


log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds between two looks at what notices may have failed to tell."""


class LocalNode:
    def __init__(self, settings: config.Settings, dsn: str, version: str) -> None:
        if settings.hub is not None:
            raise ConfigError(
                "hub", "the settings", "goes not together with `store`", hint="several nodes are a hub themselves: unset one"
            )
        self._settings = settings
        self.dsn = dsn
        self._version = version
        self.node_id = ids.format_id("node", time.time_ns() // 1_000_000, randomness.randbits(80))
        self.name = settings.node_name or home.get_host_name(settings)
        self.journal = PostgresJournal(dsn, node_id=self.node_id)
        self.leases = PostgresLeases(dsn)
        self.registry = PostgresRegistry(dsn)
        self.search = PostgresSearch(dsn)
        self.secrets = PostgresSecrets(dsn)
        self.owner_token = ""
        self.jwt_secret = b""
        self.mesh: TcpMesh
        self.homes: LeasedOwnership
        self.residence: NodeMembership
        self._runtime: Runtime
        self._listener = NotificationListener(dsn, self.node_id, self._on_heads_notice)
        self._poll_task: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()
        self.followed = 0
        self._close_callbacks: list[Callable[[], Awaitable[None]]] = []

    async def open(self, home: DaemonHome, environ: Mapping[str, str]) -> None:
        """Everything but the life among the others. Raises `errors.JournalUnavailable`, `CannotListen` or `ConfigError`."""
        try:
            await self.journal.open()
        except errors.JournalUnavailable as problem:
            hint = problem.hint or "`tower doctor` looks at it"
            raise ConfigError("store", "your settings", f"{mask_password(self.dsn)}: {problem.detail}", hint=hint) from problem
        try:
            key = await self._share_secrets(home, environ)
            await self.leases.open()
            await self._open_mesh(key)
        except cluster.LeasesUnavailable as problem:
            await self.close()
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        except tls.MeshKeyError as problem:
            await self.close()
            raise ConfigError("store", "the settings", str(problem), hint="let all nodes share it") from problem
        except BaseException:
            await self.close()
            raise

    async def _share_secrets(self, home: DaemonHome, environ: Mapping[str, str]) -> tls.MeshKey:
        """Whoever logs in at one node is known at all: what says so is made by the first node and kept in the database."""
        data_dir, kept = self._settings.data_dir, self.secrets
        await kept.open()
        token = await kept.get_or_create("owner_token", lambda: home.load_owner_token().encode())
        self.owner_token = token.decode()
        if environ.get("JWT_SECRET"):
            self.jwt_secret = credentials.load_jwt_secret(data_dir, environ)
        else:
            self.jwt_secret = await kept.get_or_create("jwt_secret", lambda: credentials.load_jwt_secret(data_dir, {}))
        pair = await kept.get_or_create("node_key", lambda: msgspec.json.encode(tls.generate_key()))
        return msgspec.json.decode(pair, type=tls.MeshKey)

    async def _open_mesh(self, key: tls.MeshKey) -> None:
        settings = self._settings
        address = parsers.parse_address(settings.node_listen)
        assert address is not None, "the setting cannot be off"
        me = MeshPeer(self.node_id, self.name, self._version, home.load_host_identity(settings).host_id)
        self.mesh = TcpMesh(me, key, host=address.host, port=address.port)
        await self.mesh.open()
        self.homes = LeasedOwnership(self.leases, self.mesh)

    async def join(self, runtime: Runtime) -> None:
        """From now on it is one of the nodes, and takes up what it had before. Raises `errors.JournalUnavailable`."""
        self._runtime = runtime
        settings = self._settings
        terms = MembershipTerms(settings.node_address or self.mesh.address, settings.node_lease)
        self.residence = NodeMembership(runtime, self.leases, self.homes, self.mesh, terms)
        runtime.nodes = self.residence
        await self._listener.open()
        self._poll_task = asyncio.create_task(self._poll_heads(), name="node follows")
        try:
            await self.residence.open(self._read_previous_node_id())
        except cluster.LeasesUnavailable as problem:
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        atomic_write.write_private(settings.data_dir / "node.id", self.node_id.encode())
        log.info("node %s (%s) at %s", self.name, self.node_id, terms.address)

    def _read_previous_node_id(self) -> str | None:
        """The node that this home was last. Whoever holds the home's lock knows that it is dead."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._settings.data_dir / "node.id").read_text().strip() or None
        return None

    async def leave(self) -> None:
        """After the runtime has stopped: the others may have what was here."""
        looking, self._poll_task = self._poll_task, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._listener.close()
            await self.residence.close()
            (self._settings.data_dir / "node.id").unlink(missing_ok=True)

    def add_close_callback(self, close: Callable[[], Awaitable[None]]) -> None:
        """Something that reads the same database, and goes with it."""
        self._close_callbacks.append(close)

    async def close(self) -> None:
        for close in self._close_callbacks:
            await close()
        if hasattr(self, "mesh"):
            await self.mesh.close()
        await self.search.close()
        await self.secrets.close()
        await self.leases.close()
        await self.journal.close()

    # How it does

    def list_unready_reasons(self) -> list[str]:
        residence = self.residence
        return list_unready_reasons(NodeReadiness(residence.is_draining, residence.database_answers, residence.has_valid_leases))

    def collect_figures(self) -> dict[str, float]:
        return {
            "homes": len(self._runtime.owned_lanes()),
            "peers": len(self.mesh.peers),
            "draining": self.residence.is_draining,
            "forwarded": self.homes.forwarded,
            "followed": self.followed,
            "takeovers": self.residence.takeovers,
        }

    # What others store

    def _on_heads_notice(self, moved: HeadsNotice) -> None:
        if moved.heads is None:
            self._poll_now.set()
        else:
            self.followed += 1
            self._runtime.apply_remote_heads(moved.heads)

    async def _poll_heads(self) -> None:
        """A notice may be lost, or name nothing: then what is followed here is compared with the journal."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._poll_now.wait()
            self._poll_now.clear()
            known = self._runtime.followed_heads()
            try:
                heads = await self.journal.read_heads(list(known)) if known else {}
            except errors.JournalUnavailable as problem:
                log.warning("what other nodes have stored cannot be told: %s", problem)
                continue
            behind = {session_id: (known[session_id], head) for session_id, head in heads.items() if head > known[session_id]}
            self._runtime.apply_remote_heads(behind)


class PostgresStoreStatus:
    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._counts = PostgresCounts(node.dsn)
        self.decisions = PostgresAudit(node.dsn)
        node.add_close_callback(self._counts.close)
        node.add_close_callback(self.decisions.close)

    def list_unready_reasons(self) -> list[str]:
        return self._node.list_unready_reasons()

    async def count_states(self) -> Mapping[str, int]:
        """Of the whole tower. Raises `JournalUnavailable`."""
        return await self._counts.count_states()

    async def measure_size(self) -> int:
        return await self._counts.measure_size()


SERVICE_RESTART = 1012
REASON = "service restart, reconnect"


async def drain_clients(listeners: Listeners, relay: LazyRelay, grace_s: float) -> None:
    """Closes all connections but those of pi, which end with the node's lease on pi."""
    await relay.close_for_restart(SERVICE_RESTART, REASON)
    listeners.close_for_restart(grace_s)


_LIBRARIES = ("asyncpg", "cryptography")


async def open_node(settings: config.Settings, home: DaemonHome, redactor: redact.Redactor, version: str) -> LocalNode:
    """Raises `ConfigError`, `CannotListen` or `errors.JournalUnavailable`."""
    assert settings.store is not None, "only a daemon with a shared store is a node"
    for library in _LIBRARIES:
        if importlib.util.find_spec(library) is None:
            hint = "pip install 'switchtower[postgres]'"
            raise ConfigError("store", "your settings", f"needs `{library}`, which is not installed", hint=hint)
    if password := urlsplit(settings.store).password:
        redactor.add_secret(unquote(password))
    node = LocalNode(settings, settings.store, version)
    await node.open(home, os.environ)
    return node


def make_node_host_services(node: LocalNode, local: host_services.HostServices) -> host_services.HostServices:
    """What a session's folder tells is asked where its home is."""
    return cluster_host_services.make_cluster_host_services(
        local, node.mesh, cluster_host_services.make_owner_lookup(node.leases, node.node_id)
    )


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
