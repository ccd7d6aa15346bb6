"""What makes this daemon one of several: a PostgreSQL that all of them share, leases on sessions, and a way to the others.

Made before the runtime, and joined to it when that is there. Loaded only by a daemon that has `store` set.
"""

import asyncio
import contextlib
import logging
import secrets as randomness
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from switchtower import config
from switchtower.core import errors, ids, leases
from switchtower.daemon import credentials, host_identity, private_files
from switchtower.daemon.home import DaemonHome
from switchtower.daemon.readiness import NodeReadiness, list_unready_reasons
from switchtower.runtime.homes.node_homes import LeasedOwnership
from switchtower.runtime.homes.residence import NodeMembership, MembershipTerms
from switchtower.runtime.runtime import Runtime
from switchtower.settings import values
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.listener import NotificationListener
from switchtower.stores.postgres.notices import HeadsNotice
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.stores.postgres.secrets import PostgresSecrets
from switchtower.stores.postgres_tools.addresses import mask_password
from switchtower.transports.mesh import identity
from switchtower.transports.mesh.mesh import TcpMesh
from switchtower.transports.mesh.ports import MeshPeer

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds between two looks at what notices may have failed to tell."""


class LocalNode:
    def __init__(self, settings: config.Settings, dsn: str, version: str) -> None:
        if settings.hub is not None:
            raise config.ConfigError(
                "hub", "the settings", "goes not together with `store`", hint="several nodes are a hub themselves: unset one"
            )
        self._settings = settings
        self.dsn = dsn
        self._version = version
        self.node_id = ids.format_id("node", time.time_ns() // 1_000_000, randomness.randbits(80))
        self.name = settings.node_name or host_identity.get_host_name(settings)
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
            raise config.ConfigError(
                "store", "your settings", f"{mask_password(self.dsn)}: {problem.detail}", hint=hint
            ) from problem
        try:
            key = await self._share_secrets(home, environ)
            await self.leases.open()
            await self._open_mesh(key)
        except leases.LeasesUnavailable as problem:
            await self.close()
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        except identity.MeshKeyError as problem:
            await self.close()
            raise config.ConfigError("store", "the settings", str(problem), hint="let all nodes share it") from problem
        except BaseException:
            await self.close()
            raise

    async def _share_secrets(self, home: DaemonHome, environ: Mapping[str, str]) -> identity.MeshKey:
        """Whoever logs in at one node is known at all: what says so is made by the first node and kept in the database."""
        data_dir, kept = self._settings.data_dir, self.secrets
        await kept.open()
        token = await kept.get_or_create("owner_token", lambda: home.load_owner_token().encode())
        self.owner_token = token.decode()
        if environ.get("JWT_SECRET"):
            self.jwt_secret = credentials.load_jwt_secret(data_dir, environ)
        else:
            self.jwt_secret = await kept.get_or_create("jwt_secret", lambda: credentials.load_jwt_secret(data_dir, {}))
        pair = await kept.get_or_create("node_key", lambda: msgspec.json.encode(identity.generate_key()))
        return msgspec.json.decode(pair, type=identity.MeshKey)

    async def _open_mesh(self, key: identity.MeshKey) -> None:
        settings = self._settings
        address = values.parse_address(settings.node_listen)
        assert address is not None, "the setting cannot be off"
        me = MeshPeer(self.node_id, self.name, self._version, host_identity.load_host_identity(settings).host_id)
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
        except leases.LeasesUnavailable as problem:
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        private_files.write_private(settings.data_dir / "node.id", self.node_id.encode())
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
