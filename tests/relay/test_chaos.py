"""A hub and two hosts while the wire between them is cut, and each of them is killed, at random moments during output. In the
end the hub has what the hosts have, each event once and in order, and so has an app that was there all the time.

`RELAY_CHAOS_ROUNDS` says how often something is broken, `RELAY_CHAOS_SEED` where the randomness begins.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.relay.stage import PATIENCE, Stage, Tower, Wire, counting, eventually, lines, python, same_message

from switchtower.testing.relay_client import Frame, RelayApp
from switchtower.testing.wires import UpgradeRefused

ROUNDS = int(os.environ.get("RELAY_CHAOS_ROUNDS") or 6)
LONGEST_LULL = 1.5
"""Seconds that a round waits for output before it breaks something all the same."""
_BROKEN = (EOFError, OSError, UpgradeRefused, TimeoutError, asyncio.IncompleteReadError)


class Watcher:
    """An app that comes back whenever it is thrown out, and asks for what came after what it has."""

    def __init__(self, hub: Tower) -> None:
        self._hub = hub
        self.told: dict[str, list[Frame]] = {}
        self.count = 0
        self.connections = 0
        self._app: RelayApp | None = None
        self._task = asyncio.ensure_future(self._live())

    async def watch(self, run_id: str) -> None:
        if run_id not in self.told:
            self.told[run_id] = []
            await self._ask_for(run_id)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._app is not None:
            self._app.wire.abort()

    def check(self) -> None:
        if self._task.done():
            self._task.result()

    async def _live(self) -> None:
        while True:
            with contextlib.suppress(*_BROKEN):
                app = await RelayApp.open(self._hub.url, self._hub.token, patience=3_600)
                self.connections += 1
                async with app:
                    await app.command("run.unsubscribe")
                    self._app = app
                    for run_id in tuple(self.told):
                        await self._ask_for(run_id)
                    while True:
                        await self._take(await app.receive())
                        app.frames.clear()
                        app.raw.clear()
            self._app = None
            await asyncio.sleep(0.01)  # the hub may be away for a while

    async def _ask_for(self, run_id: str) -> None:
        if self._app is not None:
            told = self.told[run_id]
            with contextlib.suppress(*_BROKEN):
                await self._app.subscribe(run_id, after_id=told[-1]["id"] if told else 0)

    async def _take(self, frame: Frame) -> None:
        run_id = frame.get("run_id")
        if frame["type"] == "run.error":
            assert frame["data"]["command"] == "run.subscribe", frame
            assert frame["data"]["error"] == "unknown run_id", frame
            await self._ask_for(str(run_id))  # the hub has not heard of it yet
            return
        assert run_id in self.told, f"told of a run that nobody asked for: {frame}"
        told = self.told[run_id]
        assert "id" in frame, frame
        assert not told or frame["id"] > told[-1]["id"], f"not once and in order: {frame['id']} after {told[-1]['id']}"
        told.append(frame)
        self.count += 1


class World:
    def __init__(self, stage: Stage, hub: Tower, hosts: list[Tower], wires: list[Wire], seed: int) -> None:
        self.stage, self.hub, self.hosts, self.wires = stage, hub, hosts, wires
        self.chance = random.Random(seed)
        self.watcher = Watcher(hub)
        self.runs: dict[str, tuple[Tower, int, int, str]] = {}
        """By its id: the host, which of its lives, how many lines, and how they begin."""

    async def start_run(self, host: Tower, number: int) -> None:
        """Through the hub if it lets us, or else on the host itself."""
        name = f"{host.name}{number}"
        upto, pause = self.chance.choice(((150, 0.02), (60, 0.05), (400, 0.004), (4_000, 0.0), (20_000, 0.0)))
        command = counting(upto, pause=pause, name=name)
        asked: dict[str, Any] = {"cwd": str(host.workspace), "tool": name}
        run_id = None
        if self.chance.random() < 0.5:
            with contextlib.suppress(*_BROKEN, AssertionError):
                async with await self.hub.app(patience=2.0) as app:
                    run_id = await app.start(host.host_id, command, **asked)
        if run_id is None:
            async with await host.app() as app:
                run_id = await app.start(host.host_id, command, **asked)
        self.runs[run_id] = (host, host.lives, upto, name)
        await self.watcher.watch(run_id)

    async def wait_for_output(self) -> None:
        wanted = self.watcher.count + self.chance.randrange(1, 60)
        with contextlib.suppress(TimeoutError):
            await eventually(lambda: self.watcher.count >= wanted, patience=LONGEST_LULL)
        self.watcher.check()

    async def break_something(self) -> str:
        wire, host = self.chance.choice(self.wires), self.chance.choice(self.hosts)
        what = self.chance.choice(("cut", "cut", "stall", "stall and cut", "half", "refuse", "kill hub", "kill hub", "kill host"))
        match what:
            case "cut":
                wire.cut()
            case "stall" | "stall and cut":
                wire.stall()
                await self.wait_for_output()
                if what != "stall":
                    wire.cut()
                wire.flow()
            case "half":
                wire.half_close()
            case "refuse":
                wire.refusing = True
                wire.cut()
                await self.wait_for_output()
                wire.refusing = False
            case "kill hub":
                self.hub.kill()
                await self.hub.start()
            case "kill host":
                host.kill()
                await host.start()
        return what

    async def all_ended(self) -> None:
        async def have_ended() -> bool:
            rows = [row for host in self.hosts for row in await host.http.get("/runs")]
            return all(row["status"] == "exited" for row in rows)

        await eventually(have_ended, patience=90)


@pytest.fixture
def seed() -> int:
    given = os.environ.get("RELAY_CHAOS_SEED")
    chosen = int(given) if given else random.SystemRandom().randrange(1_000_000)
    print(f"RELAY_CHAOS_SEED={chosen}")
    return chosen


@pytest.fixture
async def world(stage: Stage, seed: int) -> AsyncIterator[World]:
    hub = await stage.open_hub(lost_after=0.5)
    wires = [await stage.wire(), await stage.wire()]
    hosts = [await stage.real_host(name, url=wire.url) for name, wire in zip("ab", wires, strict=True)]
    for host in hosts:
        await stage.online(host.host_id)
    made = World(stage, hub, hosts, wires, seed)
    yield made
    await made.watcher.close()


async def test_whatever_is_cut_or_killed_the_hub_and_its_apps_have_each_event_once_and_in_order(world: World) -> None:
    done: list[str] = []
    for round_ in range(ROUNDS):
        for host in world.hosts:
            while sum(1 for of, *_ in world.runs.values() if of is host) - round_ < 2:
                await world.start_run(host, len(world.runs))
        await world.wait_for_output()
        done.append(await world.break_something())
        print(done[-1])
    await world.all_ended()
    assert len(world.runs) >= ROUNDS
    for run_id, (host, life, upto, name) in world.runs.items():
        await same_on_the_hub(world, run_id, host)
        output = "".join(frame["data"]["text"] for frame in world.watcher.told[run_id] if frame["type"] == "run.output")
        if life == host.lives:
            assert output == lines(upto, name), run_id
        else:
            assert lines(upto, name).startswith(output.partition("warning")[0].partition("error")[0]), run_id
    assert world.watcher.connections >= done.count("kill hub")
    assert "Traceback" not in world.hub.log()
    assert not [host.name for host in world.hosts if "Traceback" in host.log()]


async def same_on_the_hub(world: World, run_id: str, host: Tower) -> None:
    """The run's history, the hub's journal and what the watcher was told are what its host has."""
    true = [same_message(message) for message in await host.http.messages(run_id)]
    seqs = [message[0] for message in true]

    async def has_arrived() -> bool:
        answer = await world.hub.http.request("GET", f"/runs/{run_id}/messages?limit=1")
        newest = answer.json if answer.status == 200 else []
        told = [frame["seq"] for frame in world.watcher.told[run_id][-3:] if "seq" in frame]
        world.watcher.check()
        return bool(newest and told) and seqs[-1] in told and world.hub.told_seqs(run_id)[-1] == seqs[-1]

    await eventually(has_arrived, patience=PATIENCE)
    history = await world.hub.http.messages(run_id)
    assert [same_message(message) for message in history if message["seq"] is not None] == true
    assert world.hub.told_seqs(run_id) == seqs
    told = world.watcher.told[run_id]
    assert [(frame["seq"], frame["type"], frame["data"]) for frame in told if "seq" in frame] == [
        (message["seq"], message["kind"], message["data"]) for message in history if message["seq"] is not None
    ]
    assert [frame["id"] for frame in told] == [message["id"] for message in history]


async def test_runs_of_a_killed_host_are_lost_while_it_is_away_and_interrupted_when_it_is_back(stage: Stage) -> None:
    hub = await stage.open_hub(lost_after=0.4)
    killed, other = await stage.real_host("a"), await stage.real_host("b")
    app = await stage.app()
    for host in (killed, other):
        await stage.online(host.host_id)
    waiting = python("print('begun')\nwhile line := input(): print('heard', line)")
    lost = await app.start(killed.host_id, waiting, cwd=str(killed.workspace))
    living = await app.start(other.host_id, waiting, cwd=str(other.workspace))
    ended = await app.start(killed.host_id, "exit 3", cwd=str(killed.workspace))
    await app.until(lambda frame: frame["type"] == "run.exited" and frame["run_id"] == ended)
    for run_id in (lost, living):
        await app.until(lambda frame, run_id=run_id: "begun" in app.output(run_id))
    killed.kill()
    await app.next_of("run.lost", lost)
    rows = {row["id"]: row for row in await hub.http.get("/runs")}
    assert (rows[lost]["status"], rows[ended]["status"], rows[ended]["exit_code"]) == ("lost", "exited", 3)
    assert rows[living]["status"] in ("running", "awaiting_input")
    assert not (await hub.http.hosts())[killed.host_id]["online"]
    await app.command("run.send_input", lost, input_id="in-lost", text="x\n")
    assert (await app.next_of("run.error", lost))["data"]["error"] == "host offline"
    await app.command("run.send_input", living, input_id="in-living", text="x\n")
    await app.until(lambda frame: "heard x" in app.output(living))

    await killed.start()
    await app.next_of("run.exited", lost)
    row = await hub.http.run(lost)
    assert row["status"] == "exited"
    assert row["exit_code"] != 0
    assert (await hub.http.run(living))["status"] in ("running", "awaiting_input")
    await app.command("run.send_input", living, input_id="in-again", text="y\n")
    await app.until(lambda frame: "heard y" in app.output(living))
    seqs = [frame["seq"] for frame in app.events(lost) if "seq" in frame]
    assert seqs == sorted(set(seqs)) == hub.told_seqs(lost)


async def test_a_hub_that_is_killed_finds_its_hosts_runs_again_and_they_never_stopped(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    app = await stage.app()
    run_id = await app.start(host.host_id, counting(300, pause=0.01), cwd=str(host.workspace))
    await app.until(lambda frame: "line 20\r\n" in app.output(run_id))
    seen = app.events(run_id)
    hub.kill()
    await app.closed()
    seen = app.events(run_id)
    await hub.start()
    again = await stage.app()
    await again.subscribe(run_id, after_id=seen[-1]["id"])
    await again.next_of("run.exited", run_id)
    whole = seen + again.events(run_id)
    assert "".join(frame["data"]["text"] for frame in whole if frame["type"] == "run.output") == lines(300)
    seqs = [frame["seq"] for frame in whole if "seq" in frame]
    assert seqs == hub.told_seqs(run_id)


async def test_what_a_host_does_while_the_hub_is_away_is_told_when_it_is_back(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    hub.kill()
    there = await stage.app(host)
    runs = [await there.start(host.host_id, counting(200, name=f"n{number}"), cwd=str(host.workspace)) for number in range(5)]
    for run_id in runs:
        await there.until(lambda frame, run_id=run_id: frame["type"] == "run.exited" and frame["run_id"] == run_id)
    await hub.start()
    for number, run_id in enumerate(runs):

        async def is_there(run_id: str = run_id) -> bool:
            answer = await hub.http.request("GET", f"/runs/{run_id}")
            return answer.status == 200 and answer.json["status"] == "exited"

        await eventually(is_there)
        history = await hub.http.messages(run_id)
        assert [same_message(message) for message in history] == [
            same_message(message) for message in await host.http.messages(run_id)
        ]
        assert "".join(message["text"] for message in history if message["kind"] == "run.output") == lines(200, f"n{number}")
