"""Pi clients that ask again until they are answered, while the nodes that serve them die, stop and fall asleep: what was
acknowledged has happened once, and what was refused has not."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tests.nodes.conftest import folder as folder
from tests.nodes.conftest import nodes_seed as nodes_seed
from tests.nodes.conftest import shared_server as shared_server
from tests.nodes.conftest import start_fleet as start_fleet
from tests.nodes.fleet import Fleet, Node
from tests.pi_nodes.test_live import SETTINGS, open_wire

from switchtower.testing.pi_client import Frame, PiClient

ASKERS = 6
ROUNDS = 6
LOST = (EOFError, OSError, TimeoutError, asyncio.IncompleteReadError)
SHUTTING_DOWN = "Server is shutting down"


class Asker:
    """Gives its sessions one name after the other. Comes again with the same id until it is answered."""

    def __init__(self, fleet: Fleet, name: str, sessions: list[str], dice: random.Random) -> None:
        self.fleet, self.name, self.sessions, self.dice = fleet, name, sessions, dice
        self.done: dict[str, bool] = {}
        """By the name that was given: whether that was acknowledged or refused."""
        self.errors: Counter[str] = Counter()
        self.came = 0
        self._client: PiClient | None = None

    async def run(self, stop: asyncio.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                break
            name = f"{self.name}-{number}"
            command = {"type": "set_session_name", "id": name, "sessionId": self.dice.choice(self.sessions), "name": name}
            answer = await self._answered(command)
            self.done[name] = bool(answer["success"])
            if not answer["success"]:
                self.errors[str(answer["error"])] += 1
        self._leave()

    async def _answered(self, command: Frame) -> Frame:
        while True:
            try:
                client = self._client or await self._come()
                await client.say(command)
                answer = await client.response(command["id"])
            except LOST:
                self._leave()
                await asyncio.sleep(0.02)
                continue
            if answer.get("error") != SHUTTING_DOWN:
                return answer
            self._leave()

    async def _come(self) -> PiClient:
        self.came += 1
        node = self.dice.choice([node for node in self.fleet.nodes if node.daemon is not None and not node.busy])
        client = PiClient(await open_wire(node, "unix"), patience=10)
        self._client = client
        assert (await client.receive())["type"] == "server_ready"
        return client

    def _leave(self) -> None:
        if self._client is not None:
            self._client.wire.abort()
            self._client = None


async def kill(node: Node) -> None:
    node.kill()
    await node.start()


async def stop(node: Node) -> None:
    await node.stop()
    await node.start()


async def sleep(node: Node) -> None:
    """Beyond its lease."""
    node.pause()
    await asyncio.sleep(2.0)
    node.go_on()


async def titles(fleet: Fleet, sessions: list[str]) -> Counter[str]:
    rows = await fleet.ask_database(
        "SELECT data FROM events JOIN homes USING (sid) WHERE session_id = ANY ($1) AND kind = 'session.configured'", sessions
    )
    told: list[dict[str, Any]] = [msgspec.json.decode(data) for (data,) in rows]
    return Counter(event["title"] for event in told if event.get("title"))


async def test_what_is_asked_until_it_is_answered_happens_once(
    start_fleet: Callable[..., Awaitable[Fleet]], nodes_seed: int
) -> None:
    print(f"seed {nodes_seed}")
    dice = random.Random(nodes_seed)
    fleet = await start_fleet(3, **SETTINGS)
    sessions = []
    for node in fleet.nodes:
        client, session_id = await fleet.session_on(node)
        sessions.append(session_id)
        client.close()
    askers = [Asker(fleet, f"asker{number}", sessions, random.Random(dice.random())) for number in range(ASKERS)]
    over = asyncio.Event()
    asking = [asyncio.create_task(asker.run(over)) for asker in askers]
    faults = [kill, stop, sleep, kill, stop, sleep]
    dice.shuffle(faults)
    for number, fault in zip(range(ROUNDS), faults, strict=True):
        before = sum(len(asker.done) for asker in askers)

        async def progress(before: int = before) -> bool:
            return sum(len(asker.done) for asker in askers) >= before + 20 or any(task.done() for task in asking)

        await fleet.until(progress, "somebody is answered")
        # The one that serves every other time, to be sure that it is among them.
        holder = await fleet.home_of("seat:pi")
        node = holder if number % 2 == 0 and holder is not None else dice.choice(fleet.nodes)
        node.busy = True
        await fault(node)
        node.busy = False
    over.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*asking)
    given = await titles(fleet, sessions)
    print(sum(len(asker.done) for asker in askers), "asked;", sum(asker.came for asker in askers), "connections")
    print([asker.errors for asker in askers])
    for asker in askers:
        for name, acknowledged in asker.done.items():
            assert given[name] == int(acknowledged), (name, acknowledged, given[name])
    assert sum(asker.came for asker in askers) > ASKERS, "somebody had to come again"
