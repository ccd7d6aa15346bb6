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
from tests.protocols.relay.hall import FarHost, Frame
from tests.runtime.parts import PATIENCE, House, Work, work_until_cancelled

from switchtower.core import commands, events, journal, registry, tower
from switchtower.core.access import Access
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.host.settings import HostSettings
from switchtower.protocols.relay.hub.app_peer import AppPeer
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.stores.registry_memory import MemoryRegistry
from switchtower.testing.sessions import start_session
from switchtower.transports.mesh import identity
from switchtower.transports.mesh.mesh import TcpMesh
from switchtower.transports.mesh.ports import Peer
from switchtower.transports.pair import Inbox, pair

LONG = 3_600.0
SOON = 0.2
"""How long a host may be away in tests that wait until one is lost."""
ANN = events.Actor(name="ann", via="web")

make_key = cache(identity.make)


class TowerAt:
    """The one tower as a node has it: each card with its home, and what is begun here lives here."""

    def __init__(self, runtime: tower.Tower, homes: dict[str, str], node_id: str) -> None:
        self._runtime = runtime
        self._homes = homes
        self._node_id = node_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def ask(self, command: commands.AnyCommand) -> tower.Outcome:
        if isinstance(command, commands.StartSession):
            self._homes[command.session_id] = self._node_id
        return await self._runtime.ask(command)

    async def card(self, session_id: str) -> journal.Card | None:
        card = await self._runtime.card(session_id)
        return None if card is None else self._with_home(card)

    async def cards(self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = ()) -> list[journal.Card]:
        return [self._with_home(card) for card in await self._runtime.cards(limit, loaded=loaded, states=states)]

    def _with_home(self, card: journal.Card) -> journal.Card:
        return msgspec.structs.replace(card, home=self._homes.get(card.session_id))


class App(Inbox):
    """An app at its own end of `/ws/app`."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Frame] = []

    def say(self, type_: str, run_id: str | None = None, /, **data: object) -> None:
        self.send(json.dumps({"type": type_, "run_id": run_id, "data": data}).encode())

    async def told(self, type_: str) -> Frame:
        """The next message of this type; what came before it is kept."""
        async with asyncio.timeout(PATIENCE):
            while (frame := json.loads(await self.next()))["type"] != type_:
                self.others.append(frame)
            return cast(Frame, frame)

    async def asks(self, type_: str, run_id: str | None = None, /, **data: object) -> Any:
        """What it is answered: the result, or the refusal's words."""
        self.say(type_, run_id, **{"request_id": "q", **data})
        response = (await self.told("rpc.response"))["data"]
        return response["result"] if response["ok"] else response["error"]


class Node:
    def __init__(self, name: str, city: "City", folder: Path, mesh: TcpMesh, *, lost_after_s: float) -> None:
        self.name = name
        self.node_id = mesh.me.node_id
        self.host_id = mesh.me.host_id
        self.mesh = mesh
        self.city = city
        self.log = folder / f"{name}.log"
        self.log.write_text(f"the log of {name}\n")
        self.tower = cast(tower.Tower, TowerAt(city.house.runtime, city.homes, self.node_id))
        settings = HostSettings(
            host_id=self.host_id,
            version="1",
            default_cwd=str(folder),
            approval_timeout_ms=3_600_000,
            log_path=str(self.log),
            node_id=self.node_id,
        )
        self.rpc = HostRpc(self.tower, settings)
        self.hub = Hub(self.tower, city.registry, self.rpc, host_name=name, lost_after_s=lost_after_s, mesh=mesh)

    async def host(self, host_id: str) -> FarHost:
        """One that has come in here."""
        visit = registry.Visit(host_id, "0" * 64, "", self.tower.now_ms())
        await self.city.registry.meet(visit, first_state=registry.HostState.APPROVED, most=1_000)
        host = FarHost(host_id)
        host.hubs_end, _ = pair(self.hub.welcome(host_id), host)
        return host

    def app(self) -> App:
        app = App()
        self.city.apps.append(app)
        pair(AppPeer(self.hub, Access(name="ann", via="web", trusted=True)), app)
        return app

    async def sees(self, host_id: str) -> bool:
        return any(row.id == host_id and row.online for row in await self.hub.hosts())

    async def until_it_sees(self, host_id: str, *, online: bool = True) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.sees(host_id) is not online:
                await self.city.turn()

    async def session(self, session_id: str, folder: Path | None = None) -> str:
        """An agent's, which lives here; a run is under way."""
        root = events.Workspace(root=str(folder or self.log.parent))
        await self.tower.ask(msgspec.structs.replace(start_session(session_id), workspace=root))
        await self.city.house.send(session_id=session_id)
        return session_id


class City:
    """All of them."""

    def __init__(self, work: Work) -> None:
        self.house = House(work)
        self.registry = MemoryRegistry()
        self.homes: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.apps: list[App] = []

    async def turn(self) -> None:
        """Lets the network have a turn, where nothing tells that it had one: words between nodes have no answer."""
        await asyncio.sleep(0.002)

    async def close(self) -> None:
        for app in self.apps:
            app.stream.abort()
            await app.until(lambda: app.closed)  # noqa: B023 - waited for before the next

    def join(self, *groups: Sequence[Node]) -> None:
        """Only nodes of one group know each other from now on."""
        for group in groups:
            for node in group:
                node.mesh.meet([(other.node_id, other.mesh.address) for other in group])

    async def joined(self, *groups: Sequence[Node]) -> None:
        self.join(*groups)
        wanted = {node.node_id: {other.node_id for other in group} - {node.node_id} for group in groups for node in group}
        await self.until(lambda: all(set(node.mesh.peers) == wanted[node.node_id] for group in groups for node in group))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self.turn()


@asynccontextmanager
async def city(folder: Path, *names: str, work: Work = work_until_cancelled, lost_after_s: float = LONG) -> AsyncIterator[City]:
    made = City(work)
    async with AsyncExitStack() as stack:
        await made.house.open()
        stack.push_async_callback(made.house.close)
        await made.registry.open()
        stack.push_async_callback(made.registry.close)
        for name in names:
            peer = Peer(node_id=f"node_{name}", name=name, version="1", host_id=f"machine_{name}")
            mesh = TcpMesh(peer, make_key(), host="127.0.0.1", port=0)
            await mesh.open()
            stack.push_async_callback(mesh.close)
            node = Node(name, made, folder, mesh, lost_after_s=lost_after_s)
            await node.hub.start()
            stack.push_async_callback(node.hub.close)
            made.nodes.append(node)
        made.house.runtime.elsewhere = made.nodes[0].hub
        stack.push_async_callback(made.close)
        await made.joined(made.nodes)
        yield made


def fs_read(path: str, request_id: str = "q") -> messages.FsRead:
    return messages.FsRead(request_id, path)
