"""Which hosts are there: who came, went, was replaced, is lost and found, and who may not stay."""

import logging
from collections.abc import AsyncIterator

import pytest
from tests.protocols.relay.hall import FarHost, Hall, opened

from switchtower.core import events, registry
from switchtower.protocols.relay.hub import presence, roster

SOON = 0.02
"""How long a host may be away in tests that wait until one is lost."""


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    async with opened() as hall:
        yield hall


@pytest.fixture
async def impatient() -> AsyncIterator[Hall]:
    """A hall in which a host is soon lost."""
    async with opened(lost_after_s=SOON) as hall:
        yield hall


async def leave(host: FarHost) -> None:
    host.stream.abort()
    await host.is_cut()


async def enough_time_has_passed(hall: Hall, number: int = 0) -> None:
    """Whatever was to be lost by now is: one that went after all others has been."""
    host = await hall.host(f"clock{number}")
    run = await hall.run(host.host_id, f"run of clock {number}")
    await leave(host)
    await run.next_of(events.HostLost)


# Coming and going


async def test_who_came_is_online_and_who_went_is_not(hall: Hall) -> None:
    host = await hall.host("a")
    rows = await hall.rows()
    assert list(rows) == ["hub", "a"]
    assert rows["hub"].is_this_daemon
    assert rows["hub"].online
    assert rows["hub"].last_seen_at is not None
    assert rows["a"].online
    assert not rows["a"].is_this_daemon
    await leave(host)
    assert not (await hall.rows())["a"].online
    assert await hall.presence.knows("a")
    assert not await hall.presence.knows("b")


async def test_a_new_connection_takes_the_place_of_the_old_whose_end_takes_nothing_with_it(hall: Hall) -> None:
    old = await hall.host("a")
    new = await hall.host("a")
    assert await old.is_cut() == (roster.REPLACED, "replaced by a new connection")
    assert (await hall.rows())["a"].online
    await new.heard()
    await leave(new)
    assert not (await hall.rows())["a"].online


async def test_one_that_is_replaced_again_and_again_is_never_away(impatient: Hall) -> None:
    hosts = [await impatient.host("a")]
    run = await impatient.run("a", "run-7")
    for _ in range(20):
        hosts.append(await impatient.host("a"))
        assert await hosts[-2].is_cut() == (roster.REPLACED, "replaced by a new connection")
    await enough_time_has_passed(impatient)
    assert run.seen(events.HostLost) == []


async def test_when_it_was_last_seen_is_written_down_now_and_then() -> None:
    now = [1_760_000_000_000]
    async with opened(clock=lambda: now[0]) as hall:

        async def seen_ms() -> int:
            host = await hall.registry.host("a")
            assert host is not None
            return host.last_seen_ms

        host = await hall.host("a")
        await host.heard()
        came_ms = now[0]
        assert await seen_ms() == came_ms
        now[0] += presence.SEEN_EVERY_MS - 1
        await host.heard()
        assert await seen_ms() == came_ms, "not for every word"
        assert (await hall.rows())["a"].last_seen_at == (await hall.rows())["hub"].last_seen_at, "it is there now"
        now[0] += 1
        await host.heard()
        assert await seen_ms() == now[0]
        now[0] += 1
        await leave(host)
        assert (await hall.rows())["a"].online is False
        assert await seen_ms() == now[0], "when it went"


# Lost and found


async def test_runs_of_one_that_stays_away_are_lost_and_found_when_it_is_back(impatient: Hall) -> None:
    host, _ = await impatient.host("a"), await impatient.host("b")
    active, other = await impatient.run("a", "active"), await impatient.run("a", "active too")
    ended, elsewhere = await impatient.run("a", "ended", ended=True), await impatient.run("b", "elsewhere")
    await leave(host)
    for run in (active, other):
        await run.next_of(events.HostLost)
    assert [card.host_lost for card in await impatient.house.runtime.cards(10) if card.host == "a"].count(True) == 2

    await impatient.host("a")
    for run in (active, other):
        await run.next_of(events.HostReturned)
    await enough_time_has_passed(impatient)
    for run in (active, other):
        assert len(run.seen(events.HostLost)) == len(run.seen(events.HostReturned)) == 1
    for run in (ended, elsewhere):
        assert run.seen(events.HostLost) == run.seen(events.HostReturned) == []


async def test_one_that_is_back_in_time_was_never_lost(impatient: Hall) -> None:
    run = await impatient.run("a", "run-7")
    host = await impatient.host("a")
    await leave(host)
    await impatient.host("a")
    await enough_time_has_passed(impatient)
    assert run.seen(events.HostLost) == run.seen(events.HostReturned) == []


async def test_one_that_was_away_before_we_began_has_as_long_to_come_back(impatient: Hall) -> None:
    away, back = await impatient.run("away", "run-1"), await impatient.run("back", "run-2")
    await impatient.run("gone", "run-3", ended=True)
    await impatient.presence.start()
    await impatient.host("back")
    await away.next_of(events.HostLost)
    await enough_time_has_passed(impatient)
    assert back.seen(events.HostLost) == []
    assert len(away.seen(events.HostLost)) == 1


async def test_after_the_end_nobody_is_lost_any_more(impatient: Hall) -> None:
    run = await impatient.run("a", "run-7")
    await leave(await impatient.host("a"))
    await impatient.presence.close()
    later = Hall(impatient.house, impatient.registry, lost_after_s=SOON)
    await enough_time_has_passed(later)
    assert run.seen(events.HostLost) == []
    await later.presence.close()


async def test_books_that_cannot_be_kept_do_not_keep_a_host_out(hall: Hall, caplog: pytest.LogCaptureFixture) -> None:
    host = await hall.host("a")
    await host.heard()
    await hall.registry.close()
    with caplog.at_level(logging.ERROR):
        await leave(host)
        hall.presence.heard("a")
        await hall.presence.close()
    assert "a" not in hall.presence.roster


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
async def test_one_that_may_not_stay_is_cut_off_and_told_why(hall: Hall, verb: str, reason: str) -> None:
    host, other = await hall.host("a"), await hall.host("b")
    verbs = {
        "refuse": lambda: hall.presence.set_state("a", "refused"),
        "ask again": lambda: hall.presence.set_state("a", "pending"),
        "remove": lambda: hall.presence.remove("a"),
        "rotate": lambda: hall.presence.rotate("a"),
    }
    assert await verbs[verb]()
    assert await host.is_cut() == (roster.REMOVED, reason)
    assert "a" not in hall.presence.roster
    assert ("a" in await hall.rows()) is (verb != "remove")
    await other.heard()


async def test_one_that_is_approved_or_renamed_stays(hall: Hall) -> None:
    host = await hall.host("a")
    assert await hall.presence.set_state("a", "approved")
    assert await hall.presence.rename("a", "desk")
    await host.heard()
    row = (await hall.rows())["a"]
    assert (row.name, row.state, row.online) == ("desk", "approved", True)


async def test_one_that_rotates_has_no_token_any_more(hall: Hall) -> None:
    await hall.host("a")
    await hall.presence.rotate("a")
    host = await hall.registry.host("a")
    assert host is not None
    assert host.token_sha256 is None
    assert host.state is registry.HostState.APPROVED


async def test_what_is_asked_of_one_that_nobody_knows_is_answered_so(hall: Hall) -> None:
    known = await hall.host("a")
    for answer in (
        await hall.presence.set_state("b", "refused"),
        await hall.presence.rename("b", "desk"),
        await hall.presence.rotate("b"),
        await hall.presence.remove("b"),
    ):
        assert answer is False
    await known.heard()


async def test_runs_of_one_that_was_removed_are_lost_like_any_others(impatient: Hall) -> None:
    await impatient.host("a")
    run = await impatient.run("a", "run-7")
    await impatient.presence.remove("a")
    await run.next_of(events.HostLost)
