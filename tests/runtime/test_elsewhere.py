"""Sessions that live on other hosts, in a running runtime: what their hosts told is kept, and nothing is done about it here."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.core.test_mirrors import HOST, asks, begins, ends, opening, says
from tests.runtime.parts import SESSION, House, MakeHouse, Outlet, cancel, decide, send

from switchtower.core import commands, errors, events, journal, tower
from switchtower.core.session import Session
from switchtower.testing.sessions import OWNER, start_session

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def mirror(*reports: commands.Report, session_id: str = SESSION) -> commands.MirrorRun:
    return commands.MirrorRun(session_id=session_id, host=HOST, run_id="run_there", reports=reports, opening=opening())


class Elsewhere:
    """The way to another host, which answers at once."""

    def __init__(self, answer: tower.Outcome | errors.CoreError) -> None:
        self.answer = answer
        self.forwarded: list[tuple[str, commands.AnyCommand]] = []

    def forward(self, host: str, command: commands.AnyCommand, done: tower.Done) -> None:
        self.forwarded.append((host, command))
        done(self.answer)


async def test_what_a_host_tells_is_followed_like_any_session_and_no_engine_is_asked(house: House) -> None:
    assert (await house.ask(mirror(begins(), asks(2))))["last_seq"] == 2
    outlet = await house.attached()
    await house.ask(mirror(says(3, "hello"), ends(4)))
    await outlet.next_of(events.RunCompleted)
    assert [event.relayed.seq for event in outlet.told if event.relayed is not None] == [1, 2, 3, 4]
    assert outlet.entries == await house.stored()
    assert house.engine.tasks == []
    assert len(house.runtime.runs) == 0


async def test_a_question_elsewhere_does_not_expire_here(house: House) -> None:
    await house.ask(mirror(begins()))
    outlet = await house.attached()
    old = asks(2)
    requested = old.events[0]
    assert isinstance(requested, events.ApprovalRequested)
    overdue = msgspec.structs.replace(requested, approval=msgspec.structs.replace(requested.approval, expires_at_ms=1))
    await house.ask(mirror(commands.Report(2, (overdue,))))
    await outlet.next_of(events.ApprovalRequested)
    await house.ask(mirror(says(3)))
    await outlet.next_of(events.ToolProgressed)
    assert outlet.seen(events.ApprovalExpired) == []


async def test_what_a_host_says_is_redacted_wherever_it_stands(house: House) -> None:
    extra = events.Relayed(2, 1, {"note": SECRET, "deep": [SECRET]})
    output = events.ToolProgressed("terminal", f"see {SECRET}", relayed=extra)
    said = events.HostSaid(type="run.mood", data={"token": SECRET}, relayed=msgspec.structs.replace(extra, seq=3))
    await house.ask(mirror(begins(), commands.Report(2, (output,)), commands.Report(3, (said,))))
    stored = str(await house.stored())
    assert SECRET not in stored
    assert stored.count("[redacted]") == 6


async def test_after_a_restart_it_goes_on_where_its_host_was(make_house: MakeHouse) -> None:
    before = await make_house()
    await before.ask(mirror(begins(), asks(2)))
    await before.crash()

    after = await make_house(journal_=before.journal.inner)
    assert after.killed == []
    assert (await after.ask(mirror(begins(), asks(2), says(3))))["last_seq"] == 3
    session = await after.runtime.session(SESSION)
    assert session.run is not None, "it lives elsewhere, where nobody has interrupted it"
    assert session.relayed_seq == 3


@pytest.mark.parametrize("command", [send(), cancel(), decide("appr_1")], ids=lambda command: type(command).__name__)
async def test_what_is_its_host_s_to_decide_is_handed_to_it(house: House, command: Any) -> None:
    elsewhere = Elsewhere({"told": "there"})
    house.runtime.elsewhere = elsewhere
    await house.ask(mirror(begins(), asks(2)))
    assert await house.ask(command) == {"told": "there"}
    assert elsewhere.forwarded == [(HOST, command)]

    elsewhere.answer = errors.HostUnreachable(HOST)
    with pytest.raises(errors.HostUnreachable):
        await house.ask(command)


async def test_what_lives_here_is_decided_here(house: House) -> None:
    elsewhere = Elsewhere({"told": "there"})
    house.runtime.elsewhere = elsewhere
    await house.ask(start_session(SESSION))
    assert "run_id" in await house.ask(send())
    assert elsewhere.forwarded == []


async def test_without_a_way_to_other_hosts_the_asker_is_told_where_it_lives(house: House) -> None:
    await house.ask(mirror(begins()))
    with pytest.raises(errors.LivesElsewhere):
        await house.ask(send())


async def test_a_host_is_back_with_its_first_word(house: House) -> None:
    await house.ask(mirror(begins()))
    await house.ask(commands.MarkHost(session_id=SESSION, lost=True))
    card = await house.runtime.card(SESSION)
    assert card is not None
    assert card.host_lost
    await house.ask(mirror(says(2)))
    card = await house.runtime.card(SESSION)
    assert card is not None
    assert not card.host_lost


# Batches


async def test_who_watches_batches_is_shown_all_of_any_session_once_it_is_stored(house: House) -> None:
    shown: list[tuple[str, list[int], int]] = []

    def watch(session: Session, batch: tower.Batch) -> None:
        shown.append((batch.session_id, [entry.seq for entry in batch.entries], session.seq))

    stop = house.runtime.watch_batches(watch)
    await house.ask(mirror(begins(), says(2)))
    await house.ask(start_session("sess_2"))
    stop()
    await house.ask(mirror(says(3)))
    assert shown == [(SESSION, [1, 2, 3], 3), ("sess_2", [1], 1)]


async def test_a_watcher_that_fails_is_nobody_else_s_trouble(house: House) -> None:
    def fail(session: Session, batch: tower.Batch) -> None:
        raise RuntimeError("a bug of theirs")

    house.runtime.watch_batches(fail)
    outlet = Outlet()
    await house.ask(mirror(begins()))
    outlet = await house.attached(outlet=outlet)
    await house.ask(mirror(says(2)))
    await outlet.next_of(events.ToolProgressed)


async def test_going_back_in_a_session_s_log(house: House) -> None:
    await house.ask(mirror(begins(), *[says(seq) for seq in range(2, 12)], asks(12)))
    page = await house.runtime.entries_before(SESSION, 10, 3)
    assert [entry.seq for entry in page] == [7, 8, 9]
    page = await house.runtime.entries_before(SESSION, tower.FROM_THE_HEAD, 2, streamed=False)
    assert [entry.kind for entry in page] == ["run.started", "approval.requested"]
    assert await house.runtime.card("sess_none") is None


# What a hub has not yet


async def test_what_a_hub_has_not_acknowledged_is_not_pruned(make_house: MakeHouse) -> None:
    house = await make_house(retention=journal.Retention(keep_entries=1, keep_ms=0))
    house.runtime.undelivered = lambda: {SESSION: 5}
    await house.ask(mirror(begins(), *[says(seq) for seq in range(2, 12)], ends(12)))
    async with asyncio.timeout(60):
        await house.journal.until(lambda: SESSION in house.journal.prunings)
    await house.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="read"))
    assert [entry.seq for entry in await house.stored() if entry.kind == "tool.progressed"] == [*range(5, 13)]
