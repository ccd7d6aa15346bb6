"""One host that floods its hub: it is read more slowly, its sessions and questions are bounded, and the others notice nothing."""

import asyncio
from typing import Any, cast

import msgspec
from tests.relay.stage import DaemonView, RelayNetwork, wait_until
from tests.relay.stage import relay_network as relay_network

from switchtower.protocols.relay.hub import mirror

SHOWN_ONCE = 1


def count_log_lines(hub: DaemonView, words: str) -> int:
    return len([line for line in hub.log().splitlines() if words in line])


async def test_a_host_has_no_more_sessions_than_it_may_and_is_told_so(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(host_max_sessions=3)
    host = await relay_network.connect_host("greedy")
    for number in range(3):
        await host.send_frames(host.make_started(f"run{number}"))
        await host.wait_for_ack(f"run{number}", 1)
    for number in range(3, 20):
        await host.send_frames(host.make_started(f"run{number}"), host.make_output(f"run{number}", 2))
        told = await host.next_of_type("run.error", f"run{number}")
        assert "too many sessions" in told["data"]["error"]
        assert host.list_acks(f"run{number}") == [], "what is not stored is not acknowledged"
    # What it has goes on, and so do others.
    await host.send_frames(host.make_output("run0", 2))
    await host.wait_for_ack("run0", 2)
    other = await relay_network.connect_host("modest")
    await other.send_frames(other.make_started("of-another"))
    await other.wait_for_ack("of-another", 1)
    assert len([row for row in await relay_network.hub.http.get("/runs") if row["host_id"] == "greedy"]) == 3
    assert count_log_lines(relay_network.hub, "host greedy has 3 sessions here") == SHOWN_ONCE


async def test_a_new_connection_does_not_make_room_but_a_deleted_session_does(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(host_max_sessions=1)
    host = await relay_network.connect_host("greedy")
    await host.send_frames(host.make_started("first"))
    await host.wait_for_ack("first", 1)
    again = await relay_network.connect_host("greedy")
    await again.send_frames(again.make_started("second"))
    await again.next_of_type("run.error", "second")
    await again.send_frames(again.make_event("run.exited", "first", 2, {"exit_code": 0}))
    await again.wait_for_ack("first", 2)
    assert (await relay_network.hub.http.request("DELETE", "/runs/first")).status == 204

    async def is_taken() -> bool:
        """A host tells again after its next connection; the hub counts again every few seconds."""
        newest = await relay_network.connect_host("greedy")
        await newest.send_frames(newest.make_started("second"))
        told = await newest.wait_for(lambda frame: frame["type"] in ("run.ack", "run.error"))
        return bool(told["type"] == "run.ack")

    await wait_until(is_taken)


async def test_a_host_has_no_more_open_questions_than_it_may(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(host_max_approvals=5)
    host = await relay_network.connect_host("curious")
    for run in ("a", "b"):
        await host.send_frames(host.make_started(run), *(host.make_question(run, seq, f"q-{run}-{seq}") for seq in range(2, 12)))
        await host.wait_for_ack(run, 11)
    assert len(await relay_network.hub.http.get("/approvals")) == 5
    assert count_log_lines(relay_network.hub, "host curious has 5 open questions") == SHOWN_ONCE
    # One that is answered makes room for another.
    await host.send_frames(
        host.make_event("run.permission_decided", "a", 12, {"request_id": "q-a-2", "decision": "deny"}),
        host.make_question("b", 12, "q-b-12"),
    )
    await host.wait_for_ack("b", 12)
    asked = {row["request_id"] for row in await relay_network.hub.http.get("/approvals")}
    assert len(asked) == 5
    assert "q-b-12" in asked
    assert "q-a-2" not in asked


async def test_a_flood_is_read_slowly_and_kept_whole_and_the_hub_stays_small(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub(host_bytes_per_minute=600_000)
    host = await relay_network.connect_host("flooding")
    await host.send_frames(host.make_started("flood"))
    await host.wait_for_ack("flood", 1)
    before = hub.measure_resident_mb()
    text = "x" * 60_000

    async def flood() -> None:
        for seq in range(2, 400):
            host.wire.send(msgspec.json.encode(host.make_output("flood", seq, text)))
            await host.wire.drain()

    flooding = asyncio.ensure_future(flood())
    try:
        await wait_until(lambda: count_log_lines(hub, "host flooding sends more than it may in a minute"))
        other = await relay_network.connect_host("quiet")
        await other.send_frames(other.make_started("of-another"))
        await other.wait_for_ack("of-another", 1)
        # Another reader of the hub is answered meanwhile, and the host is held back: it has not got rid of its flood.
        assert (await hub.http.get_run("flood"))["status"] == "running"
        assert not flooding.done()
        assert hub.measure_resident_mb() - before < 60
        assert count_log_lines(hub, "host flooding sends more than it may in a minute") == SHOWN_ONCE
    finally:
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)


async def test_hosts_of_one_name_are_told_apart_in_lists(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub(host_name="laptop")
    await relay_network.connect_host("h1", name="laptop")
    await relay_network.connect_host("h2", name="LAPTOP ")
    await relay_network.connect_host("h3", name="lap\u200btop")
    await relay_network.connect_host("h4", name="laptop (2)")
    rows = await hub.http.list_hosts()
    names = [row["name"] for row in rows.values()]
    assert rows[hub.host_id]["name"] == "laptop", "the hub itself keeps its name"
    assert len({name.casefold().strip() for name in names}) == len(names) == 5
    assert all(name.isprintable() for name in names)
    printed = hub.run_tower("hosts").stdout
    assert all(name in printed for name in names), printed


# The rules themselves


class QuotaClock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_taken_beyond_a_minutes_share_has_to_be_paid_for_with_time() -> None:
    clock, no_tower = QuotaClock(), cast(Any, None)
    limits = mirror.HostQuotas(messages_per_minute=60, bytes_per_minute=6_000)
    usage = mirror.HostUsage(no_tower, "h", limits, clock)
    assert usage.compute_pause([b"x" * 100] * 60) == 0
    assert usage.compute_pause([b""]) == 1
    clock.now += 2
    assert usage.compute_pause([]) == 0
    assert usage.compute_pause([b"x" * 10_000]) == mirror.MAX_PAUSE
    clock.now += 1_000
    assert usage.compute_pause([b""] * 61) == 1, "no more than one minute is saved up"
