"""A host that was alone for a long time: everything it has arrives once and in order, and neither it nor the hub swells up."""

import asyncio
import socket
import threading

import pytest
from tests.relay.stage import RelayNetwork, RestartableDaemon, make_counting_program, make_expected_lines, wait_until

from switchtower.core import codec, events
from switchtower.testing.relay_client import RelayApp

MOST_GROWTH_MB = 150
TIMEOUT = 90.0


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class MemoryGauge:
    """Weighs daemons all the time, from a thread of its own."""

    def __init__(self, *towers: RestartableDaemon) -> None:
        self._towers = towers
        self._first = {tower.name: tower.measure_resident_mb() for tower in towers}
        self.grown_mb = dict.fromkeys(self._first, 0.0)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._weigh)
        self._thread.start()

    def _weigh(self) -> None:
        while not self._enough.wait(0.1):
            for tower in self._towers:
                grown = tower.measure_resident_mb() - self._first[tower.name]
                self.grown_mb[tower.name] = max(self.grown_mb[tower.name], grown)

    def stop(self) -> dict[str, float]:
        self._enough.set()
        self._thread.join()
        return self.grown_mb


def get_agent_text(host: RestartableDaemon, run_id: str) -> list[tuple[int, str]]:
    """What an agent said, as its host has it."""
    found = [(entry.seq, codec.decode(entry.kind, entry.data)) for entry in host.list_entries(run_id)]
    return [(seq, event.text) for seq, event in found if isinstance(event, events.TextDelta)]


def get_hub_text(hub: RestartableDaemon, run_id: str) -> list[tuple[int, str]]:
    """What the hub has of it."""
    told = [event for event in hub.list_host_events(run_id) if isinstance(event, events.ToolProgressed)]
    return [(event.relayed.seq, event.text) for event in told if event.relayed is not None and not event.relayed.extra]


async def count_to(host: RestartableDaemon, upto: int) -> str:
    """A session of the demo model in which every number is an event; its id."""
    async with await host.push() as push:
        session_id = (await push.start_session(host.workspace)).session_id
        await push.send(session_id, f"count {upto}")
    return session_id


async def is_done(host: RestartableDaemon, run_id: str) -> bool:
    return (
        bool((await host.http.get_run(run_id))["status"] in ("exited", "awaiting_input")) and len(host.list_entries(run_id)) > 3
    )


@pytest.mark.parametrize(("backlog", "killed"), [(100_000, False), (25_000, True)], ids=["in one life", "killed before"])
async def test_a_long_backlog_arrives_once_and_in_order(relay_network: RelayNetwork, backlog: int, killed: bool) -> None:
    port = find_free_port()
    host = await relay_network.start_host("a", url=f"http://127.0.0.1:{port}", retention_entries=0)
    shares = (backlog * 6 // 10, backlog * 4 // 10)
    runs = [await count_to(host, share) for share in shares]
    async with await host.connect_app() as app:
        program = await app.start(host.host_id, make_counting_program(3_000), cwd=str(host.workspace))
    for run_id in (*runs, program):
        await wait_until(lambda run_id=run_id: is_done(host, run_id), timeout=TIMEOUT)
    true = {run_id: await asyncio.to_thread(get_agent_text, host, run_id) for run_id in runs}
    # One more, when the last number could have begun one of the daemon's own secrets and was held back for a moment.
    assert all(share <= len(said) <= share + 1 for said, share in zip(true.values(), shares, strict=True))
    if killed:
        await host.restart()

    hub = await relay_network.open_hub(http=f"127.0.0.1:{port}", retention_entries=0)
    scales = MemoryGauge(hub, host)
    try:
        async with asyncio.timeout(TIMEOUT):
            apps = [await follow(relay_network, run_id, share) for run_id, share in zip(runs, shares, strict=True)]
        for run_id in runs:
            await wait_until(lambda run_id=run_id: is_there(hub, host, run_id), timeout=TIMEOUT)
    finally:
        grown = scales.stop()
    print("grown by", grown, "MB")
    for run_id, app in zip(runs, apps, strict=True):
        assert await asyncio.to_thread(get_hub_text, hub, run_id) == true[run_id]
        seqs = hub.list_host_seqs(run_id)
        assert seqs == sorted(set(seqs))
        told = [frame["seq"] for frame in app.list_events(run_id) if "seq" in frame]
        assert told == seqs[: len(told)]
        assert len(told) >= len(true[run_id])
    await wait_until(lambda: is_there(hub, host, program), timeout=TIMEOUT)
    output = "".join(message["text"] for message in await hub.http.list_messages(program) if message["kind"] == "run.output")
    assert output == make_expected_lines(3_000)
    assert max(grown.values()) < MOST_GROWTH_MB, grown


async def test_what_is_not_delivered_is_kept_however_little_is_kept_otherwise(relay_network: RelayNetwork) -> None:
    port = find_free_port()
    host = await relay_network.start_host("a", url=f"http://127.0.0.1:{port}", retention_entries=1_000)
    runs = [await count_to(host, 8_000) for _ in range(3)]
    for run_id in runs:
        await wait_until(lambda run_id=run_id: is_done(host, run_id), timeout=TIMEOUT)
    await host.restart()
    later = await count_to(host, 2_000)  # when it is done, what is to be pruned is
    await wait_until(lambda: is_done(host, later), timeout=TIMEOUT)
    hub = await relay_network.open_hub(http=f"127.0.0.1:{port}", retention_entries=0)
    for run_id, count in (*((run_id, 8_000) for run_id in runs), (later, 2_000)):
        await wait_until(lambda run_id=run_id: is_there(hub, host, run_id), timeout=TIMEOUT)
        assert "".join(text for _, text in get_hub_text(hub, run_id)).split() == [str(number) for number in range(1, count + 1)]


async def follow(relay_network: RelayNetwork, run_id: str, outputs: int) -> RelayApp:
    """An app that was told of a run from its beginning until so many pieces of output have come."""
    app = await relay_network.connect_app(timeout=TIMEOUT)
    await app.send_command("run.unsubscribe")
    await app.wait_until_processed()

    async def is_known() -> bool:
        return (await relay_network.hub.http.request("GET", f"/runs/{run_id}")).status == 200

    await wait_until(is_known)
    await app.subscribe(run_id, after_id=0)
    while outputs:
        frame = await app.receive()
        app.raw.clear()
        outputs -= frame["type"] == "run.output" and frame["run_id"] == run_id
    return app


async def is_there(hub: RestartableDaemon, host: RestartableDaemon, run_id: str) -> bool:
    """The newest of its messages has arrived."""
    answer = await hub.http.request("GET", f"/runs/{run_id}/messages?limit=1")
    newest = await host.http.get(f"/runs/{run_id}/messages?limit=1")
    return answer.status == 200 and bool(answer.json) and answer.json[0]["seq"] == newest[0]["seq"]
