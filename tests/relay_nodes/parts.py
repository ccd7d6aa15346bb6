"""A tower of several nodes without its doors: hubs that know each other over a real mesh, with one registry and one runtime.

That sessions are the same on every node is the runtime's promise, so here all nodes have the very same one. A node differs from
another in what relay sees: which sessions have it as their home, its machine, and who is connected to it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
from tests.protocols.relay.hall import Frame, MemoryHost
from tests.runtime.parts import TIMEOUT, RuntimeHarness, Work, work_until_cancelled

from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.mesh import TcpMesh
from switchtower.cluster.mesh.ports import MeshPeer
from switchtower.core import commands, events
from switchtower.core.ports import journal, registry, session_service
from switchtower.core.roles import Access
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.app_connection import AppConnection
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.protocols.relay.settings import HostSettings
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.testing.memory.stream import RecordingReceiver, join_receivers
from switchtower.testing.session_driver import start_session

LONG = 3_600.0
SOON = 0.2
"""How long a host may be away in tests that wait until one is lost."""
ANN = events.Actor(name="ann", via="web")

make_key = cache(tls.generate_key)


class NodeSessionService:
    """The one tower as a node has it: each card with its home, and what is begun here lives here."""

    def __init__(self, runtime: session_service.SessionService, homes: dict[str, str], node_id: str) -> None:
        self._runtime = runtime
        self._homes = homes
        self._node_id = node_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        if isinstance(command, commands.StartSession):
            self._homes[command.session_id] = self._node_id
        return await self._runtime.ask(command)

    async def find_card(self, session_id: str) -> journal.Card | None:
        card = await self._runtime.find_card(session_id)
        return None if card is None else self._add_home(card)

    async def list_cards(
        self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = ()
    ) -> list[journal.Card]:
        return [self._add_home(card) for card in await self._runtime.list_cards(limit, loaded=loaded, states=states)]

    def _add_home(self, card: journal.Card) -> journal.Card:
        return msgspec.structs.replace(card, home=self._homes.get(card.session_id))


class MemoryApp(RecordingReceiver):
    """An app at its own end of `/ws/app`."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Frame] = []

    def send_message(self, type_: str, run_id: str | None = None, /, **data: object) -> None:
        self.send(json.dumps({"type": type_, "run_id": run_id, "data": data}).encode())

    async def wait_for_message(self, type_: str) -> Frame:
        """The next message of this type; what came before it is kept."""
        async with asyncio.timeout(TIMEOUT):
            while (frame := json.loads(await self.next_frame()))["type"] != type_:
                self.others.append(frame)
            return cast(Frame, frame)

    async def request(self, type_: str, run_id: str | None = None, /, **data: object) -> Any:
        """What it is answered: the result, or the refusal's words."""
        self.send_message(type_, run_id, **{"request_id": "q", **data})
        response = (await self.wait_for_message("rpc.response"))["data"]
        return response["result"] if response["ok"] else response["error"]


class RelayNode:
    def __init__(self, name: str, relay_cluster: "RelayCluster", folder: Path, mesh: TcpMesh, *, lost_after_s: float) -> None:
        self.name = name
        self.node_id = mesh.local_peer.node_id
        self.host_id = mesh.local_peer.host_id
        self.mesh = mesh
        self.cluster = relay_cluster
        self.log = folder / f"{name}.log"
        self.log.write_text(f"the log of {name}\n")
        self.tower = cast(
            session_service.SessionService, NodeSessionService(relay_cluster.runtime.runtime, relay_cluster.homes, self.node_id)
        )
        settings = HostSettings(
            host_id=self.host_id,
            version="1",
            default_cwd=str(folder),
            approval_timeout_ms=3_600_000,
            log_path=str(self.log),
            node_id=self.node_id,
        )
        self.rpc = HostRpcHandler(self.tower, settings)
        self.hub = Hub(self.tower, relay_cluster.registry, self.rpc, host_name=name, lost_after_s=lost_after_s, mesh=mesh)

    async def connect_host(self, host_id: str) -> MemoryHost:
        """One that has come in here."""
        visit = registry.HostContact(host_id, "0" * 64, "", self.tower.now_ms())
        await self.cluster.registry.record_contact(visit, first_state=registry.HostState.APPROVED, most=1_000)
        host = MemoryHost(host_id)
        host.hubs_end, _ = join_receivers(self.hub.make_host_connection(host_id), host)
        return host

    def connect_app(self) -> MemoryApp:
        app = MemoryApp()
        self.cluster.apps.append(app)
        join_receivers(AppConnection(self.hub, Access(name="ann", via="web", trusted=True)), app)
        return app

    async def is_host_online(self, host_id: str) -> bool:
        return any(row.id == host_id and row.online for row in await self.hub.list_hosts())

    async def wait_for_host(self, host_id: str, *, online: bool = True) -> None:
        async with asyncio.timeout(TIMEOUT):
            while await self.is_host_online(host_id) is not online:
                await self.cluster.run_network_turn()

    async def start_session(self, session_id: str, folder: Path | None = None) -> str:
        """An agent's, which lives here; a run is under way."""
        root = events.Workspace(root=str(folder or self.log.parent))
        await self.tower.ask(msgspec.structs.replace(start_session(session_id), workspace=root))
        await self.cluster.runtime.send(session_id=session_id)
        return session_id


class RelayCluster:
    """All of them."""

    def __init__(self, work: Work) -> None:
        self.runtime = RuntimeHarness(work)
        self.registry = MemoryRegistry()
        self.homes: dict[str, str] = {}
        self.nodes: list[RelayNode] = []
        self.apps: list[MemoryApp] = []

    async def run_network_turn(self) -> None:
        """Lets the network have a turn, where nothing tells that it had one: words between nodes have no answer."""
        await asyncio.sleep(0.002)

    async def close(self) -> None:
        for app in self.apps:
            app.stream.abort()
            await app.wait_until(lambda: app.closed)  # noqa: B023 - waited for before the next

    def join(self, *groups: Sequence[RelayNode]) -> None:
        """Only nodes of one group know each other from now on."""
        for group in groups:
            for node in group:
                node.mesh.update_nodes([(other.node_id, other.mesh.address) for other in group])

    async def join_nodes(self, *groups: Sequence[RelayNode]) -> None:
        self.join(*groups)
        wanted = {node.node_id: {other.node_id for other in group} - {node.node_id} for group in groups for node in group}
        await self.wait_until(lambda: all(set(node.mesh.peers) == wanted[node.node_id] for group in groups for node in group))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                await self.run_network_turn()


@asynccontextmanager
async def open_cluster(
    folder: Path, *names: str, work: Work = work_until_cancelled, lost_after_s: float = LONG
) -> AsyncIterator[RelayCluster]:
    made = RelayCluster(work)
    async with AsyncExitStack() as stack:
        await made.runtime.open()
        stack.push_async_callback(made.runtime.close)
        await made.registry.open()
        stack.push_async_callback(made.registry.close)
        for name in names:
            peer = MeshPeer(node_id=f"node_{name}", name=name, version="1", host_id=f"machine_{name}")
            mesh = TcpMesh(peer, make_key(), host="127.0.0.1", port=0)
            await mesh.open()
            stack.push_async_callback(mesh.close)
            node = RelayNode(name, made, folder, mesh, lost_after_s=lost_after_s)
            await node.hub.start()
            stack.push_async_callback(node.hub.close)
            made.nodes.append(node)
        made.runtime.runtime.elsewhere = made.nodes[0].hub
        stack.push_async_callback(made.close)
        await made.join_nodes(made.nodes)
        yield made


def make_fs_read(path: str, request_id: str = "q") -> messages.FsRead:
    return messages.FsRead(request_id, path)
