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
from tests.nodes.conftest import start_cluster as start_cluster
from tests.nodes.fleet import NodeProcess, ProcessCluster
from tests.pi_nodes.test_live import SETTINGS, open_wire

from switchtower.core import events
from switchtower.testing.pi_client import Frame, PiClient

ASKERS = 6
ROUNDS = 6
LOST = (EOFError, OSError, TimeoutError, asyncio.IncompleteReadError)
SHUTTING_DOWN = "Server is shutting down"
PASSING = ("The daemon is stopping", "Interrupted:", "The node that decides for this session cannot be reached")
"""What a command may be told by a session's home that goes. It has not happened, or was cut short."""


class RetryingClient:
    """Gives sessions names and runs commands in them, one after the other. Comes again with the same id until it is answered."""

    def __init__(self, process_cluster: ProcessCluster, name: str, sessions: list[str], dice: random.Random) -> None:
        self.cluster, self.name, self.sessions, self.dice = process_cluster, name, sessions, dice
        self.done: dict[str, Frame] = {}
        """By id: what was asked, and the answer under `answer`."""
        self.came = 0
        self._client: PiClient | None = None

    async def run(self, stop: asyncio.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                break
            id_ = f"{self.name}-{number}"
            kind = self.dice.choice([{"type": "set_session_name", "name": id_}, {"type": "bash", "command": f": {id_}"}])
            command = {"id": id_, "sessionId": self.dice.choice(self.sessions), **kind}
            self.done[id_] = {**command, "answer": await self._wait_for_answer(command)}
        self._leave()

    async def _wait_for_answer(self, command: Frame) -> Frame:
        while True:
            try:
                client = self._client or await self._connect()
                await client.send_frames(command)
                answer = await client.wait_for_response(command["id"])
            except LOST:
                self._leave()
                await asyncio.sleep(0.02)
                continue
            if answer.get("error") != SHUTTING_DOWN:
                return answer
            self._leave()

    async def _connect(self) -> PiClient:
        self.came += 1
        node = self.dice.choice([node for node in self.cluster.nodes if node.daemon is not None and not node.busy])
        client = PiClient(await open_wire(node, "unix"), timeout=10)
        self._client = client
        assert (await client.receive())["type"] == "server_ready"
        return client

    def _leave(self) -> None:
        if self._client is not None:
            self._client.wire.abort()
            self._client = None


async def kill(node: NodeProcess) -> None:
    node.kill()
    await node.start()


async def stop(node: NodeProcess) -> None:
    await node.stop()
    await node.start()


async def sleep(node: NodeProcess) -> None:
    """Beyond its lease."""
    node.pause()
    await asyncio.sleep(2.0)
    node.resume()


async def list_events(process_cluster: ProcessCluster, session_id: str, kind: str) -> list[dict[str, Any]]:
    """The events of one kind in a session, as the journal has them."""
    rows = await process_cluster.ask_database(
        "SELECT data FROM events JOIN homes USING (sid) WHERE session_id = $1 AND kind = $2 ORDER BY seq", session_id, kind
    )
    return [msgspec.json.decode(data) for (data,) in rows]


async def check(process_cluster: ProcessCluster, session_id: str, asked: list[Frame]) -> None:
    names = Counter(event["title"] for event in await list_events(process_cluster, session_id, events.SessionConfigured.kind))
    shells = Counter(
        event["command"].removeprefix(": ") for event in await list_events(process_cluster, session_id, events.ShellStarted.kind)
    )
    versions = len(await list_events(process_cluster, session_id, events.VersionAdvanced.kind))
    for command in asked:
        happened, succeeded = command["id"], command["answer"]["success"]
        if command["type"] == "bash":
            assert shells[happened] == 1 if succeeded else shells[happened] <= 1, (command, shells[happened])
        else:
            # To give a name twice is to give it once; but only who was told so has given it.
            assert (names[happened] > 0) is succeeded, (command, names[happened])
    numbers = [command["answer"]["sessionVersion"] for command in asked if command["answer"]["success"]]
    assert sorted(numbers) == list(range(1, versions + 1)), "each success has a version of its own"


async def test_what_is_asked_until_it_is_answered_happens_once(
    start_cluster: Callable[..., Awaitable[ProcessCluster]], nodes_seed: int
) -> None:
    print(f"seed {nodes_seed}")
    dice = random.Random(nodes_seed)
    fleet = await start_cluster(3, **SETTINGS)
    sessions = []
    for node in fleet.nodes:
        client, session_id = await fleet.start_session_on(node)
        sessions.append(session_id)
        client.close()
    askers = [RetryingClient(fleet, f"asker{number}", sessions, random.Random(dice.random())) for number in range(ASKERS)]
    over = asyncio.Event()
    asking = [asyncio.create_task(asker.run(over)) for asker in askers]
    faults = [kill, stop, sleep, kill, stop, sleep]
    dice.shuffle(faults)
    for number, fault in zip(range(ROUNDS), faults, strict=True):
        before = sum(len(asker.done) for asker in askers)

        async def progress(before: int = before) -> bool:
            return sum(len(asker.done) for asker in askers) >= before + 20 or any(task.done() for task in asking)

        await fleet.wait_until(progress, "somebody is answered")
        # The one that serves every other time, to be sure that it is among them.
        holder = await fleet.find_home("seat:pi")
        node = holder if number % 2 == 0 and holder is not None else dice.choice(fleet.nodes)
        node.busy = True
        await fault(node)
        node.busy = False
    over.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*asking)
    done = [command for asker in askers for command in asker.done.values()]
    failures = Counter(command["answer"]["error"] for command in done if not command["answer"]["success"])
    print(len(done), "asked,", sum(asker.came for asker in askers), "connections,", dict(failures))
    for session_id in sessions:
        await check(fleet, session_id, [command for command in done if command["sessionId"] == session_id])
    assert sum(asker.came for asker in askers) > ASKERS, "somebody had to come again"
    assert all(any(error.startswith(passing) for passing in PASSING) for error in failures), failures
