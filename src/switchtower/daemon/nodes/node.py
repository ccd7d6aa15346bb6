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
from switchtower.daemon.home import Home
from switchtower.daemon.readiness import Standing, reasons_not_ready
from switchtower.runtime.homes.node_homes import NodeHomes
from switchtower.runtime.homes.residence import Residence, Terms
from switchtower.runtime.runtime import Runtime
from switchtower.settings import values
from switchtower.stores.postgres.journal import PostgresJournal
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.stores.postgres.listener import Listener
from switchtower.stores.postgres.notices import Moved
from switchtower.stores.postgres.registry import PostgresRegistry
from switchtower.stores.postgres.search import PostgresSearch
from switchtower.stores.postgres.secrets import PostgresSecrets
from switchtower.stores.postgres_tools.addresses import shown
from switchtower.transports.mesh import identity
from switchtower.transports.mesh.mesh import TcpMesh
from switchtower.transports.mesh.ports import Peer

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""Seconds between two looks at what notices may have failed to tell."""


class Node:
    def __init__(self, settings: config.Settings, dsn: str, version: str) -> None:
        if settings.hub is not None:
            raise config.ConfigError(
                "hub", "the settings", "goes not together with `store`", hint="several nodes are a hub themselves: unset one"
            )
        self._settings = settings
        self.dsn = dsn
        self._version = version
        self.node_id = ids.spell("node", time.time_ns() // 1_000_000, randomness.randbits(80))
        self.name = settings.node_name or host_identity.name(settings)
        self.journal = PostgresJournal(dsn, node_id=self.node_id)
        self.leases = PostgresLeases(dsn)
        self.registry = PostgresRegistry(dsn)
        self.search = PostgresSearch(dsn)
        self.secrets = PostgresSecrets(dsn)
        self.owner_token = ""
        self.jwt_secret = b""
        self.mesh: TcpMesh
        self.homes: NodeHomes
        self.residence: Residence
        self._runtime: Runtime
        self._listener = Listener(dsn, self.node_id, self._heard)
        self._looking: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self.followed = 0
        self._also: list[Callable[[], Awaitable[None]]] = []

    async def open(self, home: Home, environ: Mapping[str, str]) -> None:
        """Everything but the life among the others. Raises `errors.JournalUnavailable`, `CannotListen` or `ConfigError`."""
        try:
            await self.journal.open()
        except errors.JournalUnavailable as problem:
            hint = problem.hint or "`tower doctor` looks at it"
            raise config.ConfigError("store", "your settings", f"{shown(self.dsn)}: {problem.detail}", hint=hint) from problem
        try:
            key = await self._share_secrets(home, environ)
            await self.leases.open()
            await self._open_mesh(key)
        except leases.LeasesUnavailable as problem:
            await self.close()
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        except identity.KeyUnusable as problem:
            await self.close()
            raise config.ConfigError("store", "the settings", str(problem), hint="let all nodes share it") from problem
        except BaseException:
            await self.close()
            raise

    async def _share_secrets(self, home: Home, environ: Mapping[str, str]) -> identity.Key:
        """Whoever logs in at one node is known at all: what says so is made by the first node and kept in the database."""
        data_dir, kept = self._settings.data_dir, self.secrets
        await kept.open()
        token = await kept.made_once("owner_token", lambda: home.owner_token().encode())
        self.owner_token = token.decode()
        if environ.get("JWT_SECRET"):
            self.jwt_secret = credentials.jwt_secret(data_dir, environ)
        else:
            self.jwt_secret = await kept.made_once("jwt_secret", lambda: credentials.jwt_secret(data_dir, {}))
        pair = await kept.made_once("node_key", lambda: msgspec.json.encode(identity.make()))
        return msgspec.json.decode(pair, type=identity.Key)

    async def _open_mesh(self, key: identity.Key) -> None:
        settings = self._settings
        address = values.address(settings.node_listen)
        assert address is not None, "the setting cannot be off"
        me = Peer(self.node_id, self.name, self._version, host_identity.identity(settings).host_id)
        self.mesh = TcpMesh(me, key, host=address.host, port=address.port)
        await self.mesh.open()
        self.homes = NodeHomes(self.leases, self.mesh)

    async def settle(self, runtime: Runtime) -> None:
        """From now on it is one of the nodes, and takes up what it had before. Raises `errors.JournalUnavailable`."""
        self._runtime = runtime
        settings = self._settings
        terms = Terms(settings.node_address or self.mesh.address, settings.node_lease)
        self.residence = Residence(runtime, self.leases, self.homes, self.mesh, terms)
        runtime.nodes = self.residence
        await self._listener.open()
        self._looking = asyncio.create_task(self._keep_looking(), name="node follows")
        try:
            await self.residence.open(self._predecessor())
        except leases.LeasesUnavailable as problem:
            raise errors.JournalUnavailable(str(problem), hint=problem.hint) from problem
        private_files.write(settings.data_dir / "node.id", self.node_id.encode())
        log.info("node %s (%s) at %s", self.name, self.node_id, terms.address)

    def _predecessor(self) -> str | None:
        """The node that this home was last. Whoever holds the home's lock knows that it is dead."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._settings.data_dir / "node.id").read_text().strip() or None
        return None

    async def leave(self) -> None:
        """After the runtime has stopped: the others may have what was here."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._listener.close()
            await self.residence.close()
            (self._settings.data_dir / "node.id").unlink(missing_ok=True)

    def also_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Something that reads the same database, and goes with it."""
        self._also.append(close)

    async def close(self) -> None:
        for close in self._also:
            await close()
        if hasattr(self, "mesh"):
            await self.mesh.close()
        await self.search.close()
        await self.secrets.close()
        await self.leases.close()
        await self.journal.close()

    # How it does

    def reasons_not_ready(self) -> list[str]:
        residence = self.residence
        return reasons_not_ready(Standing(residence.is_draining, residence.database_answers, residence.holds_its_leases))

    def figures(self) -> dict[str, float]:
        return {
            "homes": len(self._runtime.at_home()),
            "peers": len(self.mesh.peers),
            "draining": self.residence.is_draining,
            "forwarded": self.homes.forwarded,
            "followed": self.followed,
            "takeovers": self.residence.takeovers,
        }

    # What others store

    def _heard(self, moved: Moved) -> None:
        if moved.heads is None:
            self._look.set()
        else:
            self.followed += 1
            self._runtime.heard(moved.heads)

    async def _keep_looking(self) -> None:
        """A notice may be lost, or name nothing: then what is followed here is compared with the journal."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._look.wait()
            self._look.clear()
            known = self._runtime.followed()
            try:
                heads = await self.journal.heads(list(known)) if known else {}
            except errors.JournalUnavailable as problem:
                log.warning("what other nodes have stored cannot be told: %s", problem)
                continue
            behind = {session_id: (known[session_id], head) for session_id, head in heads.items() if head > known[session_id]}
            self._runtime.heard(behind)
