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
from tests.relay.stage import (
    TIMEOUT,
    HubProxy,
    RelayNetwork,
    RestartableDaemon,
    get_comparable_message,
    make_counting_program,
    make_expected_lines,
    make_python_command,
    wait_until,
)

from switchtower.testing.relay_client import Frame, RelayApp
from switchtower.testing.wire import UpgradeRefused

ROUNDS = int(os.environ.get("RELAY_CHAOS_ROUNDS") or 6)
LONGEST_LULL = 1.5
"""Seconds that a round waits for output before it breaks something all the same."""
_BROKEN = (EOFError, OSError, UpgradeRefused, TimeoutError, asyncio.IncompleteReadError)


class ReconnectingApp:
    """An app that comes back whenever it is thrown out, and asks for what came after what it has."""

    def __init__(self, hub: RestartableDaemon) -> None:
        self._hub = hub
        self.told: dict[str, list[Frame]] = {}
        self.count = 0
        self.connections = 0
        self._app: RelayApp | None = None
        self._task = asyncio.ensure_future(self._run())

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

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(*_BROKEN):
                app = await RelayApp.open(self._hub.url, self._hub.token, timeout=3_600)
                self.connections += 1
                async with app:
                    await app.send_command("run.unsubscribe")
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


class RelayChaos:
    def __init__(
        self,
        relay_network: RelayNetwork,
        hub: RestartableDaemon,
        hosts: list[RestartableDaemon],
        wires: list[HubProxy],
        seed: int,
    ) -> None:
        self.network, self.hub, self.hosts, self.wires = relay_network, hub, hosts, wires
        self.chance = random.Random(seed)
        self.watcher = ReconnectingApp(hub)
        self.runs: dict[str, tuple[RestartableDaemon, int, int, str]] = {}
        """By its id: the host, which of its lives, how many lines, and how they begin."""

    async def start_run(self, host: RestartableDaemon, number: int) -> None:
        """Through the hub if it lets us, or else on the host itself."""
        name = f"{host.name}{number}"
        upto, pause = self.chance.choice(((150, 0.02), (60, 0.05), (400, 0.004), (4_000, 0.0), (20_000, 0.0)))
        command = make_counting_program(upto, pause=pause, name=name)
        asked: dict[str, Any] = {"cwd": str(host.workspace), "tool": name}
        run_id = None
        if self.chance.random() < 0.5:
            with contextlib.suppress(*_BROKEN, AssertionError):
                async with await self.hub.connect_app(timeout=2.0) as app:
                    run_id = await app.start(host.host_id, command, **asked)
        if run_id is None:
            async with await host.connect_app() as app:
                run_id = await app.start(host.host_id, command, **asked)
        self.runs[run_id] = (host, host.lives, upto, name)
        await self.watcher.watch(run_id)

    async def wait_for_output(self) -> None:
        wanted = self.watcher.count + self.chance.randrange(1, 60)
        with contextlib.suppress(TimeoutError):
            await wait_until(lambda: self.watcher.count >= wanted, timeout=LONGEST_LULL)
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
                wire.forward()
            case "half":
                wire.close_host_side()
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

    async def wait_all_ended(self) -> None:
        async def have_ended() -> bool:
            rows = [row for host in self.hosts for row in await host.http.get("/runs")]
            return all(row["status"] == "exited" for row in rows)

        await wait_until(have_ended, timeout=90)


@pytest.fixture
def seed() -> int:
    given = os.environ.get("RELAY_CHAOS_SEED")
    chosen = int(given) if given else random.SystemRandom().randrange(1_000_000)
    print(f"RELAY_CHAOS_SEED={chosen}")
    return chosen


@pytest.fixture
async def relay_chaos(relay_network: RelayNetwork, seed: int) -> AsyncIterator[RelayChaos]:
    hub = await relay_network.open_hub(lost_after=0.5)
    wires = [await relay_network.open_proxy(), await relay_network.open_proxy()]
    hosts = [await relay_network.start_host(name, url=wire.url) for name, wire in zip("ab", wires, strict=True)]
    for host in hosts:
        await relay_network.wait_online(host.host_id)
    made = RelayChaos(relay_network, hub, hosts, wires, seed)
    yield made
    await made.watcher.close()


async def test_whatever_is_cut_or_killed_the_hub_and_its_apps_have_each_event_once_and_in_order(relay_chaos: RelayChaos) -> None:
    done: list[str] = []
    for round_ in range(ROUNDS):
        for host in relay_chaos.hosts:
            while sum(1 for of, *_ in relay_chaos.runs.values() if of is host) - round_ < 2:
                await relay_chaos.start_run(host, len(relay_chaos.runs))
        await relay_chaos.wait_for_output()
        done.append(await relay_chaos.break_something())
        print(done[-1])
    await relay_chaos.wait_all_ended()
    assert len(relay_chaos.runs) >= ROUNDS
    for run_id, (host, life, upto, name) in relay_chaos.runs.items():
        await check_same_on_hub(relay_chaos, run_id, host)
        output = "".join(frame["data"]["text"] for frame in relay_chaos.watcher.told[run_id] if frame["type"] == "run.output")
        if life == host.lives:
            assert output == make_expected_lines(upto, name), run_id
        else:
            assert make_expected_lines(upto, name).startswith(output.partition("warning")[0].partition("error")[0]), run_id
    assert relay_chaos.watcher.connections >= done.count("kill hub")
    assert "Traceback" not in relay_chaos.hub.log()
    assert not [host.name for host in relay_chaos.hosts if "Traceback" in host.log()]


async def check_same_on_hub(relay_chaos: RelayChaos, run_id: str, host: RestartableDaemon) -> None:
    """The run's history, the hub's journal and what the watcher was told are what its host has."""
    true = [get_comparable_message(message) for message in await host.http.list_messages(run_id)]
    seqs = [message[0] for message in true]

    async def has_arrived() -> bool:
        answer = await relay_chaos.hub.http.request("GET", f"/runs/{run_id}/messages?limit=1")
        newest = answer.json if answer.status == 200 else []
        told = [frame["seq"] for frame in relay_chaos.watcher.told[run_id][-3:] if "seq" in frame]
        relay_chaos.watcher.check()
        return bool(newest and told) and seqs[-1] in told and relay_chaos.hub.list_host_seqs(run_id)[-1] == seqs[-1]

    await wait_until(has_arrived, timeout=TIMEOUT)
    history = await relay_chaos.hub.http.list_messages(run_id)
    assert [get_comparable_message(message) for message in history if message["seq"] is not None] == true
    assert relay_chaos.hub.list_host_seqs(run_id) == seqs
    told = relay_chaos.watcher.told[run_id]
    assert [(frame["seq"], frame["type"], frame["data"]) for frame in told if "seq" in frame] == [
        (message["seq"], message["kind"], message["data"]) for message in history if message["seq"] is not None
    ]
    assert [frame["id"] for frame in told] == [message["id"] for message in history]


async def test_runs_of_a_killed_host_are_lost_while_it_is_away_and_interrupted_when_it_is_back(
    relay_network: RelayNetwork,
) -> None:
    hub = await relay_network.open_hub(lost_after=0.4)
    killed, other = await relay_network.start_host("a"), await relay_network.start_host("b")
    app = await relay_network.connect_app()
    for host in (killed, other):
        await relay_network.wait_online(host.host_id)
    waiting = make_python_command("print('begun')\nwhile line := input(): print('heard', line)")
    lost = await app.start(killed.host_id, waiting, cwd=str(killed.workspace))
    living = await app.start(other.host_id, waiting, cwd=str(other.workspace))
    ended = await app.start(killed.host_id, "exit 3", cwd=str(killed.workspace))
    await app.wait_for(lambda frame: frame["type"] == "run.exited" and frame["run_id"] == ended)
    for run_id in (lost, living):
        await app.wait_for(lambda frame, run_id=run_id: "begun" in app.join_output(run_id))
    killed.kill()
    await app.next_of_type("run.lost", lost)
    rows = {row["id"]: row for row in await hub.http.get("/runs")}
    assert (rows[lost]["status"], rows[ended]["status"], rows[ended]["exit_code"]) == ("lost", "exited", 3)
    assert rows[living]["status"] in ("running", "awaiting_input")
    assert not (await hub.http.list_hosts())[killed.host_id]["online"]
    await app.send_command("run.send_input", lost, input_id="in-lost", text="x\n")
    assert (await app.next_of_type("run.error", lost))["data"]["error"] == "host offline"
    await app.send_command("run.send_input", living, input_id="in-living", text="x\n")
    await app.wait_for(lambda frame: "heard x" in app.join_output(living))

    await killed.start()
    await app.next_of_type("run.exited", lost)
    row = await hub.http.get_run(lost)
    assert row["status"] == "exited"
    assert row["exit_code"] != 0
    assert (await hub.http.get_run(living))["status"] in ("running", "awaiting_input")
    await app.send_command("run.send_input", living, input_id="in-again", text="y\n")
    await app.wait_for(lambda frame: "heard y" in app.join_output(living))
    seqs = [frame["seq"] for frame in app.list_events(lost) if "seq" in frame]
    assert seqs == sorted(set(seqs)) == hub.list_host_seqs(lost)


async def test_a_hub_that_is_killed_finds_its_hosts_runs_again_and_they_never_stopped(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    app = await relay_network.connect_app()
    run_id = await app.start(host.host_id, make_counting_program(300, pause=0.01), cwd=str(host.workspace))
    await app.wait_for(lambda frame: "line 20\r\n" in app.join_output(run_id))
    seen = app.list_events(run_id)
    hub.kill()
    await app.wait_closed()
    seen = app.list_events(run_id)
    await hub.start()
    again = await relay_network.connect_app()
    await again.subscribe(run_id, after_id=seen[-1]["id"])
    await again.next_of_type("run.exited", run_id)
    whole = seen + again.list_events(run_id)
    assert "".join(frame["data"]["text"] for frame in whole if frame["type"] == "run.output") == make_expected_lines(300)
    seqs = [frame["seq"] for frame in whole if "seq" in frame]
    assert seqs == hub.list_host_seqs(run_id)


async def test_what_a_host_does_while_the_hub_is_away_is_told_when_it_is_back(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    hub.kill()
    there = await relay_network.connect_app(host)
    runs = [
        await there.start(host.host_id, make_counting_program(200, name=f"n{number}"), cwd=str(host.workspace))
        for number in range(5)
    ]
    for run_id in runs:
        await there.wait_for(lambda frame, run_id=run_id: frame["type"] == "run.exited" and frame["run_id"] == run_id)
    await hub.start()
    for number, run_id in enumerate(runs):

        async def is_there(run_id: str = run_id) -> bool:
            answer = await hub.http.request("GET", f"/runs/{run_id}")
            return answer.status == 200 and answer.json["status"] == "exited"

        await wait_until(is_there)
        history = await hub.http.list_messages(run_id)
        assert [get_comparable_message(message) for message in history] == [
            get_comparable_message(message) for message in await host.http.list_messages(run_id)
        ]
        assert "".join(message["text"] for message in history if message["kind"] == "run.output") == make_expected_lines(
            200, f"n{number}"
        )
