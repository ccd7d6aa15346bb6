"""Which hosts are there: who came, went, was replaced, is lost and found, and who may not stay."""

import logging
from collections.abc import AsyncIterator

import pytest
from tests.protocols.relay.hall import HubHarness, MemoryHost, open_hub

from switchtower.core import events
from switchtower.core.ports import registry
from switchtower.protocols.relay.hub import connected_hosts, presence

SOON = 0.02
"""How long a host may be away in tests that wait until one is lost."""


@pytest.fixture
async def hub_harness() -> AsyncIterator[HubHarness]:
    async with open_hub() as hall:
        yield hall


@pytest.fixture
async def short_timeout_hub() -> AsyncIterator[HubHarness]:
    """A hall in which a host is soon lost."""
    async with open_hub(lost_after_s=SOON) as hall:
        yield hall


async def leave(host: MemoryHost) -> None:
    host.stream.abort()
    await host.is_cut()


async def wait_for_expiry(hub_harness: HubHarness, number: int = 0) -> None:
    """Whatever was to be lost by now is: one that went after all others has been."""
    host = await hub_harness.connect_host(f"clock{number}")
    run = await hub_harness.run(host.host_id, f"run of clock {number}")
    await leave(host)
    await run.wait_for_event(events.HostLost)


# Coming and going


async def test_who_came_is_online_and_who_went_is_not(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    rows = await hub_harness.list_rows()
    assert list(rows) == ["hub", "a"]
    assert rows["hub"].is_this_daemon
    assert rows["hub"].online
    assert rows["hub"].last_seen_at is not None
    assert rows["a"].online
    assert not rows["a"].is_this_daemon
    await leave(host)
    assert not (await hub_harness.list_rows())["a"].online
    assert await hub_harness.presence.is_known("a")
    assert not await hub_harness.presence.is_known("b")


async def test_a_new_connection_takes_the_place_of_the_old_whose_end_takes_nothing_with_it(hub_harness: HubHarness) -> None:
    old = await hub_harness.connect_host("a")
    new = await hub_harness.connect_host("a")
    assert await old.is_cut() == (connected_hosts.REPLACED, "replaced by a new connection")
    assert (await hub_harness.list_rows())["a"].online
    await new.drain()
    await leave(new)
    assert not (await hub_harness.list_rows())["a"].online


async def test_one_that_is_replaced_again_and_again_is_never_away(short_timeout_hub: HubHarness) -> None:
    hosts = [await short_timeout_hub.connect_host("a")]
    run = await short_timeout_hub.run("a", "run-7")
    for _ in range(20):
        hosts.append(await short_timeout_hub.connect_host("a"))
        assert await hosts[-2].is_cut() == (connected_hosts.REPLACED, "replaced by a new connection")
    await wait_for_expiry(short_timeout_hub)
    assert run.list_events(events.HostLost) == []


async def test_when_it_was_last_seen_is_written_down_now_and_then() -> None:
    now = [1_760_000_000_000]
    async with open_hub(clock=lambda: now[0]) as hall:

        async def seen_ms() -> int:
            host = await hall.registry.find_host("a")
            assert host is not None
            return host.last_seen_ms

        host = await hall.connect_host("a")
        await host.drain()
        came_ms = now[0]
        assert await seen_ms() == came_ms
        now[0] += presence.SEEN_INTERVAL_MS - 1
        await host.drain()
        assert await seen_ms() == came_ms, "not for every word"
        assert (await hall.list_rows())["a"].last_seen_at == (await hall.list_rows())["hub"].last_seen_at, "it is there now"
        now[0] += 1
        await host.drain()
        assert await seen_ms() == now[0]
        now[0] += 1
        await leave(host)
        assert (await hall.list_rows())["a"].online is False
        assert await seen_ms() == now[0], "when it went"


# Lost and found


async def test_runs_of_one_that_stays_away_are_lost_and_found_when_it_is_back(short_timeout_hub: HubHarness) -> None:
    host, _ = await short_timeout_hub.connect_host("a"), await short_timeout_hub.connect_host("b")
    active, other = await short_timeout_hub.run("a", "active"), await short_timeout_hub.run("a", "active too")
    ended, elsewhere = await short_timeout_hub.run("a", "ended", ended=True), await short_timeout_hub.run("b", "elsewhere")
    await leave(host)
    for run in (active, other):
        await run.wait_for_event(events.HostLost)
    assert [card.host_lost for card in await short_timeout_hub.runtime.runtime.list_cards(10) if card.host == "a"].count(
        True
    ) == 2

    await short_timeout_hub.connect_host("a")
    for run in (active, other):
        await run.wait_for_event(events.HostReturned)
    await wait_for_expiry(short_timeout_hub)
    for run in (active, other):
        assert len(run.list_events(events.HostLost)) == len(run.list_events(events.HostReturned)) == 1
    for run in (ended, elsewhere):
        assert run.list_events(events.HostLost) == run.list_events(events.HostReturned) == []


async def test_one_that_is_back_in_time_was_never_lost(short_timeout_hub: HubHarness) -> None:
    run = await short_timeout_hub.run("a", "run-7")
    host = await short_timeout_hub.connect_host("a")
    await leave(host)
    await short_timeout_hub.connect_host("a")
    await wait_for_expiry(short_timeout_hub)
    assert run.list_events(events.HostLost) == run.list_events(events.HostReturned) == []


async def test_one_that_was_away_before_we_began_has_as_long_to_come_back(short_timeout_hub: HubHarness) -> None:
    away, back = await short_timeout_hub.run("away", "run-1"), await short_timeout_hub.run("back", "run-2")
    await short_timeout_hub.run("gone", "run-3", ended=True)
    await short_timeout_hub.presence.start()
    await short_timeout_hub.connect_host("back")
    await away.wait_for_event(events.HostLost)
    await wait_for_expiry(short_timeout_hub)
    assert back.list_events(events.HostLost) == []
    assert len(away.list_events(events.HostLost)) == 1


async def test_after_the_end_nobody_is_lost_any_more(short_timeout_hub: HubHarness) -> None:
    run = await short_timeout_hub.run("a", "run-7")
    await leave(await short_timeout_hub.connect_host("a"))
    await short_timeout_hub.presence.close()
    later = HubHarness(short_timeout_hub.runtime, short_timeout_hub.registry, lost_after_s=SOON)
    await wait_for_expiry(later)
    assert run.list_events(events.HostLost) == []
    await later.presence.close()


async def test_books_that_cannot_be_kept_do_not_keep_a_host_out(
    hub_harness: HubHarness, caplog: pytest.LogCaptureFixture
) -> None:
    host = await hub_harness.connect_host("a")
    await host.drain()
    await hub_harness.registry.close()
    with caplog.at_level(logging.ERROR):
        await leave(host)
        hub_harness.presence.record_activity("a")
        await hub_harness.presence.close()
    assert "a" not in hub_harness.presence.connected_hosts


# Who may stay


@pytest.mark.parametrize(
    ("verb", "reason"),
    [
        ("refuse", "this host is refused"),
        ("ask again", "this host is pending"),
        ("remove", "this host was removed"),
        ("rotate", "come back with a new token"),
    ],
)
async def test_one_that_may_not_stay_is_cut_off_and_told_why(hub_harness: HubHarness, verb: str, reason: str) -> None:
    host, other = await hub_harness.connect_host("a"), await hub_harness.connect_host("b")
    verbs = {
        "refuse": lambda: hub_harness.presence.set_host_state("a", "refused"),
        "ask again": lambda: hub_harness.presence.set_host_state("a", "pending"),
        "remove": lambda: hub_harness.presence.remove_host("a"),
        "rotate": lambda: hub_harness.presence.rotate_host("a"),
    }
    assert await verbs[verb]()
    assert await host.is_cut() == (connected_hosts.REMOVED, reason)
    assert "a" not in hub_harness.presence.connected_hosts
    assert ("a" in await hub_harness.list_rows()) is (verb != "remove")
    await other.drain()


async def test_one_that_is_approved_or_renamed_stays(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    assert await hub_harness.presence.set_host_state("a", "approved")
    assert await hub_harness.presence.rename_host("a", "desk")
    await host.drain()
    row = (await hub_harness.list_rows())["a"]
    assert (row.name, row.state, row.online) == ("desk", "approved", True)


async def test_one_that_rotates_has_no_token_any_more(hub_harness: HubHarness) -> None:
    await hub_harness.connect_host("a")
    await hub_harness.presence.rotate_host("a")
    host = await hub_harness.registry.find_host("a")
    assert host is not None
    assert host.token_sha256 is None
    assert host.state is registry.HostState.APPROVED


async def test_what_is_asked_of_one_that_nobody_knows_is_answered_so(hub_harness: HubHarness) -> None:
    known = await hub_harness.connect_host("a")
    for answer in (
        await hub_harness.presence.set_host_state("b", "refused"),
        await hub_harness.presence.rename_host("b", "desk"),
        await hub_harness.presence.rotate_host("b"),
        await hub_harness.presence.remove_host("b"),
    ):
        assert answer is False
    await known.drain()


async def test_runs_of_one_that_was_removed_are_lost_like_any_others(short_timeout_hub: HubHarness) -> None:
    await short_timeout_hub.connect_host("a")
    run = await short_timeout_hub.run("a", "run-7")
    await short_timeout_hub.presence.remove_host("a")
    await run.wait_for_event(events.HostLost)
