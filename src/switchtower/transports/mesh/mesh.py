"""The mesh over TCP with TLS on both sides. Dials the nodes it is told of until they answer, and again when they are lost."""

import asyncio
import errno
import logging
import random
import ssl
from collections.abc import Iterable

from switchtower.transports import errors
from switchtower.transports.mesh import tls
from switchtower.transports.mesh.accepted import AcceptedLink
from switchtower.transports.mesh.dialled import DialledLink
from switchtower.transports.mesh.identity import MeshKey
from switchtower.transports.mesh.link import LinkLimits, MeshLink
from switchtower.transports.mesh.ports import MeshPeer
from switchtower.transports.mesh.switchboard import MeshBase

_log = logging.getLogger(__name__)

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
GOODBYE_SECONDS = 1.0
MOST_UNKNOWN_PEERS = 256


class TcpMesh(MeshBase):
    def __init__(self, me: MeshPeer, key: MeshKey, *, host: str, port: int, limits: LinkLimits | None = None) -> None:
        super().__init__(me)
        self.address = ""
        """Where it listens, as `HOST:PORT`, once it is open."""
        self._key = key
        self._host, self._port = host, port
        self._limits = limits or LinkLimits()
        self._server: asyncio.AbstractServer | None = None
        self._server_context: ssl.SSLContext
        self._client_context: ssl.SSLContext
        self._dialling: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._links: set[MeshLink] = set()
        """Every connection that has not ended yet, also those that only say goodbye."""

    async def open(self) -> None:
        """Listens. Raises `errors.CannotListen` or `identity.KeyUnusable`."""
        self._server_context, self._client_context = self._key.create_server_context(), self._key.create_client_context()
        try:
            self._server = await asyncio.get_running_loop().create_server(self._accept, self._host, self._port)
        except (OSError, UnicodeError, OverflowError) as problem:
            raise _translate_listen_error(problem, format_address(self._host, self._port)) from problem
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = format_address(host, port)

    def update_nodes(self, nodes: Iterable[tuple[str, str]]) -> None:
        wanted = {node_id: address for node_id, address in nodes if node_id != self._local_peer.node_id}
        if self._server is None:
            return
        for node_id, (address, task) in tuple(self._dialling.items()):
            if wanted.get(node_id) != address:
                self._dialling.pop(node_id, None)
                task.cancel()
                if (line := self._dialled_links.get(node_id)) is not None:
                    line.close("it is no node any more")
            if node_id not in wanted:
                self._close_caller(node_id)
        for node_id, address in wanted.items():
            if node_id not in self._dialling:
                self._dialling[node_id] = address, asyncio.create_task(self._keep_dialling(node_id, address))

    async def close(self) -> None:
        """What was said still leaves, if the others take it soon."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        tasks = [task for _address, task in self._dialling.values()]
        self._dialling.clear()
        links = tuple(self._links)
        for link in links:
            link.close(politely=True)
        for task in tasks:
            task.cancel()
        if links:
            await asyncio.wait([link.closed for link in links], timeout=GOODBYE_SECONDS)
        for link in links:
            link.abort()
        await asyncio.gather(*tasks, *(link.closed for link in links), return_exceptions=True)
        await server.wait_closed()

    def _accept(self) -> AcceptedLink:
        return AcceptedLink(
            self._local_peer,
            self._limits,
            tls.TlsChannel(self._key, self._server_context, server_side=True),
            self._subjects,
            made=self._on_caller_connected,
            came=self._on_caller_open,
            went=self._callers.discard,
        )

    def _on_caller_connected(self, caller: AcceptedLink) -> None:
        self._callers.add(caller)
        self._track(caller)
        # Anybody can connect. Whoever says nothing more is hung up on in time, and meanwhile there are only so many.
        if sum(not other.met for other in self._callers) > MOST_UNKNOWN_PEERS:
            caller.close("too many connect and do not say who they are")

    def _track(self, link: MeshLink) -> None:
        self._links.add(link)
        link.closed.add_done_callback(lambda _closed: self._links.discard(link))

    async def _keep_dialling(self, node_id: str, address: str) -> None:
        pause, said = FIRST_PAUSE, ""
        while True:
            security = tls.TlsChannel(self._key, self._client_context, server_side=False)
            line = DialledLink(
                self._local_peer, self._limits, security, node_id, came=self._on_link_open, went=self._on_link_lost
            )
            problem = await self._connection(line, address)
            if line.met:
                pause, said = FIRST_PAUSE, ""
            if problem != said:
                said = problem
                _log.warning("no connection to node %s at %s: %s; it is dialled again", node_id, address, problem)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _connection(self, line: DialledLink, address: str) -> str:
        """One connection from its beginning to its end. Why it ended, or did not begin."""
        try:
            host, port = parse_address(address)
            async with asyncio.timeout(self._limits.silence):
                await asyncio.get_running_loop().create_connection(lambda: line, host, port)
            self._track(line)
            await asyncio.shield(line.closed)
            return line.problem
        except TimeoutError:
            return "no answer"
        except (OSError, ValueError, OverflowError) as problem:
            return str(problem) or type(problem).__name__
        finally:
            line.close()


def parse_address(address: str) -> tuple[str, int]:
    """Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError("the address is not `HOST:PORT`")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _translate_listen_error(problem: Exception, address: str) -> errors.CannotListen:
    if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
        return errors.AddressInUse(address, hint="choose another port for `node_listen` (0 picks a free one)")
    return errors.AddressUnusable(f"{address}, {problem}", hint="give `node_listen` an address of this machine")
