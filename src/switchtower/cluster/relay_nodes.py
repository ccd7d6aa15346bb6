"""The other nodes of a cluster as the relay hub uses them: which host each node is, RPCs on their machines, and the hosts that
are connected to them.

A node that has disconnected is remembered: until another node has taken its sessions over, they still belong to its machine.
Files, git, logs and programs of an RPC are those of the machine that is called; so is the approval of the call.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, cast

from switchtower.cluster import relay_hosts
from switchtower.cluster.mesh import ports
from switchtower.cluster.mesh.ports import Mesh, MeshPeer
from switchtower.cluster.relay_hosts import HostObserver, RemoteHosts
from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.protocols.relay import errors, messages
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.connected_hosts import ConnectedHosts

MAX_REMEMBERED = 1_000


class NodeDirectory:
    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._host_ids: OrderedDict[str, str] = OrderedDict()
        """Host ids by node. A machine that starts again is a new node on the same host."""
        self._unwatch: Callable[[], None] = lambda: None

    def open(self) -> None:
        self._unwatch = self._mesh.watch(self._on_node_connected, lambda peer: None)

    def close(self) -> None:
        self._unwatch()

    def list_other_nodes(self) -> list[MeshPeer]:
        """Returns the nodes that can be called, by name. A host is listed once, also if it has started again."""
        peers = sorted(self._mesh.peers.values(), key=lambda peer: peer.node_id)
        found = {peer.host_id: peer for peer in peers if peer.host_id != self._mesh.local_peer.host_id}
        return sorted(found.values(), key=lambda peer: (peer.name, peer.host_id))

    def get_host_id(self, home: str | None) -> str:
        """Returns the host of the sessions that the node `home` owns. Sessions without an owner count as this host's."""
        if home is None or home == self._mesh.local_peer.node_id:
            return self._mesh.local_peer.host_id
        # A node that never connected has no other known name.
        return self._host_ids.get(home, home)

    def find_node(self, host_id: str) -> str | None:
        """Returns the other node that is this host, if it can be called."""
        # Ids of nodes grow with time: after a restart, the dead node may still seem to be connected.
        return max((node_id for node_id, peer in self._mesh.peers.items() if peer.host_id == host_id), default=None)

    def is_remembered(self, host_id: str) -> bool:
        return host_id in self._host_ids.values()

    def _on_node_connected(self, peer: MeshPeer) -> None:
        self._host_ids[peer.node_id] = peer.host_id
        self._host_ids.move_to_end(peer.node_id)
        if len(self._host_ids) > MAX_REMEMBERED:
            self._host_ids.popitem(last=False)


log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 1_000
"""The number of calls of other nodes on this machine."""

FindCard = Callable[[str], Awaitable[journal.Card]]
"""Returns the card of a run. Raises `RelayError`."""


class NodeRpc:
    def __init__(self, mesh: ports.Mesh, local: HostRpcHandler, find_card: FindCard) -> None:
        self._mesh = mesh
        self._local = local
        self._find_card = find_card
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def open(self) -> None:
        self._mesh.handle_requests(relay_hosts.RUN_RPC, self._on_request)
        self._mesh.handle_requests(relay_hosts.HOST_RPC, self._on_request)

    async def close(self) -> None:
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Outbound calls

    async def call_on_run(self, node_id: str, type_: str, run_id: str, request: messages.RunRpc, actor: events.Actor) -> Any:
        """Raises `RelayError` and `RunMoved`."""
        letter = relay_hosts.NodeRpcMessage(type_, relay_hosts.encode(request), actor, run_id)
        return (await relay_hosts.send_node_request(self._mesh, node_id, relay_hosts.RUN_RPC, letter)).result

    async def call_on_host(self, node_id: str, type_: str, request: messages.HostRpc, actor: events.Actor) -> Any:
        letter = relay_hosts.NodeRpcMessage(type_, relay_hosts.encode(request), actor)
        return (await relay_hosts.send_node_request(self._mesh, node_id, relay_hosts.HOST_RPC, letter)).result

    # Inbound calls

    def _on_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        if self._closed:
            reply(relay_hosts.encode(relay_hosts.NodeReply(False, error=errors.SHUTTING_DOWN)))
        elif len(self._tasks) >= MAX_CONCURRENT_CALLS:
            reply(relay_hosts.encode(relay_hosts.NodeReply(False, error=errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._respond(node_id, body, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        """Runs to its end even when the calling node disconnects: another client may decide, and the journal has the result."""
        answer = relay_hosts.encode(relay_hosts.NodeReply(False, error=errors.SHUTTING_DOWN))
        try:
            answer = relay_hosts.encode(await self._execute(body))
        except Exception:
            log.exception("a call of node %s failed", node_id)
            answer = relay_hosts.encode(relay_hosts.NodeReply(False, error=errors.INTERNAL))
        finally:
            reply(answer)

    async def _execute(self, body: bytes) -> relay_hosts.NodeReply:
        try:
            rpc = relay_hosts.decode(body, relay_hosts.NodeRpcMessage)
            wanted = messages.RPC_DATA.get(rpc.type)
            if wanted is None:
                return relay_hosts.NodeReply(False, error=errors.UNKNOWN_RPC)
            asked = relay_hosts.decode(rpc.data, wanted)
        except relay_hosts.NodeMessageError as problem:
            return relay_hosts.NodeReply(False, error=str(problem))
        try:
            if rpc.type in messages.HOST_RPCS:
                return relay_hosts.NodeReply(
                    True, await self._local.call_on_host(rpc.type, cast(messages.HostRpc, asked), rpc.actor)
                )
            if rpc.run_id is None:
                raise errors.UnknownRun
            card = await self._find_card(rpc.run_id)
            if not self._local.is_local(card):
                return relay_hosts.NodeReply(False, why="moved")
            return relay_hosts.NodeReply(
                True, await self._local.call_on_run(rpc.type, card, cast(messages.RunRpc, asked), rpc.actor)
            )
        except errors.RelayError as refusal:
            return relay_hosts.make_error_reply(refusal)


class RelayNodes:
    def __init__(self, mesh: Mesh, local: HostRpcHandler, find_card: FindCard) -> None:
        self.directory = NodeDirectory(mesh)
        self.calls = NodeRpc(mesh, local, find_card)
        self.remote_hosts = RemoteHosts(mesh)

    def open(self, connected_hosts: ConnectedHosts, observer: HostObserver) -> None:
        self.directory.open()
        self.calls.open()
        self.remote_hosts.open(connected_hosts, observer)

    async def close(self) -> None:
        self.directory.close()
        await asyncio.gather(self.calls.close(), self.remote_hosts.close())

    def list_rows(self) -> tuple[messages.HostRow, ...]:
        return tuple(
            messages.HostRow(id=peer.host_id, name=peer.name, last_seen_at=None, online=True, is_node=True)
            for peer in self.directory.list_other_nodes()
        )
