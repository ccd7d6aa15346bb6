"""The parts of a daemon that is a node of a cluster: a PostgreSQL store that all nodes share, leases on sessions, and a mesh to
the other nodes. Only a daemon with `store` set loads this module.

The node is made before the runtime, and joined to it later. `ClusterComposition` has what differs for the composition root: which
node serves pi's clients, what hosts and users share, and how the node leaves. Clients of a node that is drained are disconnected,
each in its protocol's own way, with the hint to reconnect: a load balancer, or their own list, leads them to another node.
"""

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
from switchtower.cluster.pi_router import GOING_AWAY, ClusterPiServer, SingletonLease
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
from switchtower.stores.postgres.database import mask_password
from switchtower.stores.postgres.inspection import PostgresAudit, PostgresCounts
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.pool import HeadsNotice, NotificationListener
from switchtower.stores.postgres.registry import PostgresRegistry, PostgresSecrets
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.tools import atomic_write


class NodeReadiness(Struct, frozen=True):
    """The state from which a node's readiness follows. The defaults are those of a node that is ready."""

    draining: bool = False
    database_answers: bool = True
    lease_holds: bool = True
    """The node renewed its lease in time. Once it did not, other nodes may own its sessions."""


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
"""Seconds between two polls for changes whose notices may be lost."""


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
        """Opens everything but the membership. Raises `errors.JournalUnavailable`, `CannotListen` or `ConfigError`."""
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
        """A user that logs in at one node is known at all: the first node makes the secrets and keeps them in the database."""
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
        """Joins the cluster, and resumes the sessions that this home had before. Raises `errors.JournalUnavailable`."""
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
        """Returns the node id that this home had last. The holder of the home's lock knows that this node is dead."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._settings.data_dir / "node.id").read_text().strip() or None
        return None

    async def leave(self) -> None:
        """Leaves the cluster, after the runtime has stopped: other nodes may take the sessions."""
        looking, self._poll_task = self._poll_task, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._listener.close()
            await self.residence.close()
            (self._settings.data_dir / "node.id").unlink(missing_ok=True)

    def add_close_callback(self, close: Callable[[], Awaitable[None]]) -> None:
        """Adds a callback that closes another reader of the same database."""
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

    # Status

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

    # Changes by other nodes

    def _on_heads_notice(self, moved: HeadsNotice) -> None:
        if moved.heads is None:
            self._poll_now.set()
        else:
            self.followed += 1
            self._runtime.apply_remote_heads(moved.heads)

    async def _poll_heads(self) -> None:
        """A notice may be lost, or name nothing: then the followed sessions are compared with the journal."""
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
        """Counts the sessions of the whole cluster. Raises `JournalUnavailable`."""
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
    """Questions about a session's folder are sent to the node that owns the session."""
    return cluster_host_services.make_cluster_host_services(
        local, node.mesh, cluster_host_services.make_owner_lookup(node.leases, node.node_id)
    )


class ClusterComposition:
    def __init__(self, node: LocalNode, server: LazyPiServer, settings: config.Settings) -> None:
        """`node` has joined the cluster."""
        self._node = node
        self._timeout = settings.shutdown_timeout
        residence = node.residence
        seat = SingletonLease(node.leases, node.node_id)
        self.pi = ClusterPiServer(server, seat, node.mesh, holds_lease=lambda: residence.has_valid_leases)
        residence.lapsed = self.pi.on_lease_lost
        self.shared = SharedServices(node.registry, node.jwt_secret, node.mesh)

    def set_clients(self, listeners: Listeners, relay: LazyRelay) -> None:
        """Sets the clients that are disconnected when the node is drained."""
        self._node.residence.release_singletons = partial(self.pi.leave, self._timeout)
        self._node.residence.drain_clients = partial(drain_clients, listeners, relay, self._timeout)

    async def load_relay(self, relay: LazyRelay, stop: asyncio.Event) -> None:
        """Other nodes may need relay at any time. A node that serves does not stop because its database is unavailable for a
        while."""
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
        """Clients of pi are the first to get the shutdown."""
        await self.pi.leave(self._timeout, GOING_AWAY)

    async def leave_cluster(self) -> None:
        """Leaves the cluster. The caller has stopped the runtime."""
        await self.pi.close()
        await self._node.leave()
