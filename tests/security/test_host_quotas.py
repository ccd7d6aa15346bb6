"""One host that floods its hub: it is read more slowly, its sessions and questions are bounded, and the others notice nothing."""

import asyncio
from typing import Any, cast

import msgspec
from tests.relay.stage import Place, Stage, eventually
from tests.relay.stage import stage as stage

from switchtower.protocols.relay.hub import quotas

SHOWN_ONCE = 1


def noted(hub: Place, words: str) -> int:
    return len([line for line in hub.log().splitlines() if words in line])


async def test_a_host_has_no_more_sessions_than_it_may_and_is_told_so(stage: Stage) -> None:
    await stage.open_hub(host_max_sessions=3)
    host = await stage.host("greedy")
    for number in range(3):
        await host.say(host.started(f"run{number}"))
        await host.acknowledged(f"run{number}", 1)
    for number in range(3, 20):
        await host.say(host.started(f"run{number}"), host.output(f"run{number}", 2))
        told = await host.next_of("run.error", f"run{number}")
        assert "too many sessions" in told["data"]["error"]
        assert host.acks(f"run{number}") == [], "what is not stored is not acknowledged"
    # What it has goes on, and so do others.
    await host.say(host.output("run0", 2))
    await host.acknowledged("run0", 2)
    other = await stage.host("modest")
    await other.say(other.started("of-another"))
    await other.acknowledged("of-another", 1)
    assert len([row for row in await stage.hub.http.get("/runs") if row["host_id"] == "greedy"]) == 3
    assert noted(stage.hub, "host greedy has 3 sessions here") == SHOWN_ONCE


async def test_a_new_connection_does_not_make_room_but_a_deleted_session_does(stage: Stage) -> None:
    await stage.open_hub(host_max_sessions=1)
    host = await stage.host("greedy")
    await host.say(host.started("first"))
    await host.acknowledged("first", 1)
    again = await stage.host("greedy")
    await again.say(again.started("second"))
    await again.next_of("run.error", "second")
    await again.say(again.event("run.exited", "first", 2, {"exit_code": 0}))
    await again.acknowledged("first", 2)
    assert (await stage.hub.http.request("DELETE", "/runs/first")).status == 204

    async def is_taken() -> bool:
        """A host tells again after its next connection; the hub counts again every few seconds."""
        newest = await stage.host("greedy")
        await newest.say(newest.started("second"))
        told = await newest.until(lambda frame: frame["type"] in ("run.ack", "run.error"))
        return bool(told["type"] == "run.ack")

    await eventually(is_taken)


async def test_a_host_has_no_more_open_questions_than_it_may(stage: Stage) -> None:
    await stage.open_hub(host_max_approvals=5)
    host = await stage.host("curious")
    for run in ("a", "b"):
        await host.say(host.started(run), *(host.question(run, seq, f"q-{run}-{seq}") for seq in range(2, 12)))
        await host.acknowledged(run, 11)
    assert len(await stage.hub.http.get("/approvals")) == 5
    assert noted(stage.hub, "host curious has 5 open questions") == SHOWN_ONCE
    # One that is answered makes room for another.
    await host.say(
        host.event("run.permission_decided", "a", 12, {"request_id": "q-a-2", "decision": "deny"}),
        host.question("b", 12, "q-b-12"),
    )
    await host.acknowledged("b", 12)
    asked = {row["request_id"] for row in await stage.hub.http.get("/approvals")}
    assert len(asked) == 5
    assert "q-b-12" in asked
    assert "q-a-2" not in asked


async def test_a_flood_is_read_slowly_and_kept_whole_and_the_hub_stays_small(stage: Stage) -> None:
    hub = await stage.open_hub(host_bytes_per_minute=600_000)
    host = await stage.host("flooding")
    await host.say(host.started("flood"))
    await host.acknowledged("flood", 1)
    before = hub.resident_mb()
    text = "x" * 60_000

    async def flood() -> None:
        for seq in range(2, 400):
            host.wire.send(msgspec.json.encode(host.output("flood", seq, text)))
            await host.wire.drain()

    flooding = asyncio.ensure_future(flood())
    try:
        await eventually(lambda: noted(hub, "host flooding sends more than it may in a minute"))
        other = await stage.host("quiet")
        await other.say(other.started("of-another"))
        await other.acknowledged("of-another", 1)
        # Another reader of the hub is answered meanwhile, and the host is held back: it has not got rid of its flood.
        assert (await hub.http.run("flood"))["status"] == "running"
        assert not flooding.done()
        assert hub.resident_mb() - before < 60
        assert noted(hub, "host flooding sends more than it may in a minute") == SHOWN_ONCE
    finally:
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)


async def test_hosts_of_one_name_are_told_apart_in_lists(stage: Stage) -> None:
    hub = await stage.open_hub(host_name="laptop")
    await stage.host("h1", name="laptop")
    await stage.host("h2", name="LAPTOP ")
    await stage.host("h3", name="lap\u200btop")
    await stage.host("h4", name="laptop (2)")
    rows = await hub.http.hosts()
    names = [row["name"] for row in rows.values()]
    assert rows[hub.host_id]["name"] == "laptop", "the hub itself keeps its name"
    assert len({name.casefold().strip() for name in names}) == len(names) == 5
    assert all(name.isprintable() for name in names)
    printed = hub.tower("hosts").stdout
    assert all(name in printed for name in names), printed


# The rules themselves


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_taken_beyond_a_minutes_share_has_to_be_paid_for_with_time() -> None:
    clock, no_tower = Clock(), cast(Any, None)
    limits = quotas.Quotas(messages_per_minute=60, bytes_per_minute=6_000)
    usage = quotas.HostUsage(no_tower, "h", limits, clock)
    assert usage.pause_after([b"x" * 100] * 60) == 0
    assert usage.pause_after([b""]) == 1
    clock.now += 2
    assert usage.pause_after([]) == 0
    assert usage.pause_after([b"x" * 10_000]) == quotas.LONGEST_PAUSE
    clock.now += 1_000
    assert usage.pause_after([b""] * 61) == 1, "no more than one minute is saved up"
