"""The mesh: the connected peers, the handlers of this node and the watchers of peers, and its implementation over TCP with TLS
on both sides. It dials the nodes of the cluster until they answer, and again when a connection is lost.
"""

import asyncio
import errno
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.connections import AcceptedLink, DialledLink, SubjectHandlers
from switchtower.cluster.mesh.link import LinkLimits, MeshLink
from switchtower.cluster.mesh.ports import (
    MeshPeer,
    NodeUnreachable,
    NotificationHandler,
    RequestHandler,
    ResponseCallback,
    TunnelAcceptor,
)
from switchtower.cluster.mesh.tls import MeshKey
from switchtower.transports import stream
from switchtower.transports.stream import Receiver

_log = logging.getLogger(__name__)

PeerCallback = Callable[[MeshPeer], None]


class MeshBase:
    def __init__(self, me: MeshPeer) -> None:
        self._local_peer = me
        self._subjects = SubjectHandlers()
        self._dialled_links: dict[str, DialledLink] = {}
        """The connections to the nodes that can be called."""
        self._peers: dict[str, MeshPeer] = {}
        self._callers: set[AcceptedLink] = set()
        """All accepted connections, whether or not the peer has identified itself."""
        self._watchers: list[tuple[PeerCallback, PeerCallback]] = []

    @property
    def local_peer(self) -> MeshPeer:
        return self._local_peer

    @property
    def peers(self) -> Mapping[str, MeshPeer]:
        return MappingProxyType(self._peers)

    def request(self, node_id: str, subject: str, body: bytes, done: ResponseCallback) -> None:
        line = self._dialled_links.get(node_id)
        if line is None:
            asyncio.get_running_loop().call_soon(done, NodeUnreachable(node_id, sent=False))
        else:
            line.request(subject, body, done)

    def notify(self, node_id: str, subject: str, body: bytes) -> bool:
        line = self._dialled_links.get(node_id)
        return line is not None and line.notify(subject, body)

    def open_tunnel(self, node_id: str, subject: str, opening: bytes, receiver: Receiver) -> None:
        line = self._dialled_links.get(node_id)
        if line is None:
            raise NodeUnreachable(node_id, sent=False)
        line.open_tunnel(subject, opening, receiver)

    def handle_requests(self, subject: str, answerer: RequestHandler) -> None:
        assert subject not in self._subjects.answerers, "one answers for a subject"
        self._subjects.answerers[subject] = answerer

    def handle_notifications(self, subject: str, hearer: NotificationHandler) -> None:
        assert subject not in self._subjects.hearers, "one hears of a subject"
        self._subjects.hearers[subject] = hearer

    def accept_tunnels(self, subject: str, host: TunnelAcceptor) -> None:
        assert subject not in self._subjects.hosts, "one hosts a subject's tunnels"
        self._subjects.hosts[subject] = host

    def watch(self, came: PeerCallback, went: PeerCallback) -> Callable[[], None]:
        watcher = (came, went)
        self._watchers.append(watcher)
        for peer in tuple(self._peers.values()):
            _notify_watcher(came, peer)

        def stop() -> None:
            self._watchers = [other for other in self._watchers if other is not watcher]

        return stop

    # Callbacks of the connections.

    def _on_link_open(self, line: DialledLink) -> None:
        self._dialled_links[line.node_id] = line
        self._peers[line.node_id] = line.peer
        for came, _went in tuple(self._watchers):
            _notify_watcher(came, line.peer)

    def _on_link_lost(self, line: DialledLink) -> None:
        if self._dialled_links.get(line.node_id) is line:
            del self._dialled_links[line.node_id], self._peers[line.node_id]
            for _came, went in tuple(self._watchers):
                _notify_watcher(went, line.peer)

    def _on_caller_open(self, caller: AcceptedLink) -> None:
        # A node has one connection to here. Frames of an older one must not arrive after those of this one.
        for other in tuple(self._callers):
            if other is not caller and other.met and other.peer.node_id == caller.peer.node_id:
                other.close("it came again")

    def _close_caller(self, node_id: str) -> None:
        for caller in tuple(self._callers):
            if caller.met and caller.peer.node_id == node_id:
                caller.close("it is no node any more")


def _notify_watcher(callback: PeerCallback, peer: MeshPeer) -> None:
    try:
        callback(peer)
    except Exception:
        _log.exception("who watches the nodes failed")


FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
GOODBYE_SECONDS = 1.0
MOST_UNKNOWN_PEERS = 256


class TcpMesh(MeshBase):
    def __init__(self, me: MeshPeer, key: MeshKey, *, host: str, port: int, limits: LinkLimits | None = None) -> None:
        super().__init__(me)
        self.address = ""
        """The address where it listens, as `HOST:PORT`, once it is open."""
        self._key = key
        self._host, self._port = host, port
        self._limits = limits or LinkLimits()
        self._server: asyncio.AbstractServer | None = None
        self._server_context: ssl.SSLContext
        self._client_context: ssl.SSLContext
        self._dialling: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._links: set[MeshLink] = set()
        """Every connection that has not ended yet, also those that are only closing."""

    async def open(self) -> None:
        """Starts to listen. Raises `errors.CannotListen` or `MeshKeyError`."""
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
        """Queued data is still sent, if the other nodes take it soon."""
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
        # Any process can connect. A connection that stays silent is closed in time, and meanwhile their number is limited.
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
        """Runs one connection from start to end. Returns why it ended, or why it could not be opened."""
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
    """Raises `ValueError`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError("the address is not `HOST:PORT`")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _translate_listen_error(problem: Exception, address: str) -> stream.CannotListen:
    if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
        return stream.AddressInUse(address, hint="choose another port for `node_listen` (0 picks a free one)")
    return stream.AddressUnusable(f"{address}, {problem}", hint="give `node_listen` an address of this machine")
