"""Sessions that live on other hosts, in a running runtime: what their hosts told is kept, and nothing is done about it here."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.core.test_mirrors import HOST, make_approval, make_ended, make_opened, make_output, make_started
from tests.runtime.parts import SESSION, MakeRuntime, RecordingSubscriber, RuntimeHarness, cancel, decide, send

from switchtower.core import commands, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, start_session

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def mirror(*reports: commands.HostReport, session_id: str = SESSION) -> commands.MirrorRun:
    return commands.MirrorRun(session_id=session_id, host=HOST, run_id="run_there", reports=reports, opening=make_opened())


class FakeHostForwarder:
    """The way to another host, which answers at once."""

    def __init__(self, answer: session_service.SubmitOutcome | errors.CoreError) -> None:
        self.answer = answer
        self.forwarded: list[tuple[str, commands.AnyCommand]] = []

    def forward(self, host: str, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        self.forwarded.append((host, command))
        done(self.answer)


async def test_what_a_host_tells_is_followed_like_any_session_and_no_engine_is_asked(runtime_harness: RuntimeHarness) -> None:
    assert (await runtime_harness.ask(mirror(make_started(), make_approval(2))))["last_seq"] == 2
    outlet = await runtime_harness.attach_subscriber()
    await runtime_harness.ask(mirror(make_output(3, "hello"), make_ended(4)))
    await outlet.wait_for_event(events.RunCompleted)
    assert [event.relayed.seq for event in outlet.told if event.relayed is not None] == [1, 2, 3, 4]
    assert outlet.entries == await runtime_harness.list_stored()
    assert runtime_harness.engine.tasks == []
    assert len(runtime_harness.runtime.runs) == 0


async def test_a_question_elsewhere_does_not_expire_here(runtime_harness: RuntimeHarness) -> None:
    await runtime_harness.ask(mirror(make_started()))
    outlet = await runtime_harness.attach_subscriber()
    old = make_approval(2)
    requested = old.events[0]
    assert isinstance(requested, events.ApprovalRequested)
    overdue = msgspec.structs.replace(requested, approval=msgspec.structs.replace(requested.approval, expires_at_ms=1))
    await runtime_harness.ask(mirror(commands.HostReport(2, (overdue,))))
    await outlet.wait_for_event(events.ApprovalRequested)
    await runtime_harness.ask(mirror(make_output(3)))
    await outlet.wait_for_event(events.ToolProgressed)
    assert outlet.list_events(events.ApprovalExpired) == []


async def test_what_a_host_says_is_redacted_wherever_it_stands(runtime_harness: RuntimeHarness) -> None:
    extra = events.Relayed(2, 1, {"note": SECRET, "deep": [SECRET]})
    output = events.ToolProgressed("terminal", f"see {SECRET}", relayed=extra)
    said = events.HostEventReceived(type="run.mood", data={"token": SECRET}, relayed=msgspec.structs.replace(extra, seq=3))
    await runtime_harness.ask(mirror(make_started(), commands.HostReport(2, (output,)), commands.HostReport(3, (said,))))
    stored = str(await runtime_harness.list_stored())
    assert SECRET not in stored
    assert stored.count("[redacted]") == 6


async def test_after_a_restart_it_goes_on_where_its_host_was(make_runtime: MakeRuntime) -> None:
    before = await make_runtime()
    await before.ask(mirror(make_started(), make_approval(2)))
    await before.crash()

    after = await make_runtime(journal_=before.journal.inner)
    assert after.killed == []
    assert (await after.ask(mirror(make_started(), make_approval(2), make_output(3))))["last_seq"] == 3
    session = await after.runtime.get_session(SESSION)
    assert session.run is not None, "it lives elsewhere, where nobody has interrupted it"
    assert session.relayed_seq == 3


@pytest.mark.parametrize("command", [send(), cancel(), decide("appr_1")], ids=lambda command: type(command).__name__)
async def test_what_is_its_host_s_to_decide_is_handed_to_it(runtime_harness: RuntimeHarness, command: Any) -> None:
    elsewhere = FakeHostForwarder({"told": "there"})
    runtime_harness.runtime.elsewhere = elsewhere
    await runtime_harness.ask(mirror(make_started(), make_approval(2)))
    assert await runtime_harness.ask(command) == {"told": "there"}
    assert elsewhere.forwarded == [(HOST, command)]

    elsewhere.answer = errors.HostUnreachable(HOST)
    with pytest.raises(errors.HostUnreachable):
        await runtime_harness.ask(command)


async def test_what_lives_here_is_decided_here(runtime_harness: RuntimeHarness) -> None:
    elsewhere = FakeHostForwarder({"told": "there"})
    runtime_harness.runtime.elsewhere = elsewhere
    await runtime_harness.ask(start_session(SESSION))
    assert "run_id" in await runtime_harness.ask(send())
    assert elsewhere.forwarded == []


async def test_without_a_way_to_other_hosts_the_asker_is_told_where_it_lives(runtime_harness: RuntimeHarness) -> None:
    await runtime_harness.ask(mirror(make_started()))
    with pytest.raises(errors.SessionOnOtherHost):
        await runtime_harness.ask(send())


async def test_a_host_is_back_with_its_first_word(runtime_harness: RuntimeHarness) -> None:
    await runtime_harness.ask(mirror(make_started()))
    await runtime_harness.ask(commands.MarkHost(session_id=SESSION, lost=True))
    card = await runtime_harness.runtime.find_card(SESSION)
    assert card is not None
    assert card.host_lost
    await runtime_harness.ask(mirror(make_output(2)))
    card = await runtime_harness.runtime.find_card(SESSION)
    assert card is not None
    assert not card.host_lost


# Batches


async def test_who_watches_batches_is_shown_all_of_any_session_once_it_is_stored(runtime_harness: RuntimeHarness) -> None:
    shown: list[tuple[str, list[int], int]] = []

    def watch(session: Session, batch: session_service.Batch) -> None:
        shown.append((batch.session_id, [entry.seq for entry in batch.entries], session.seq))

    stop = runtime_harness.runtime.watch_batches(watch)
    await runtime_harness.ask(mirror(make_started(), make_output(2)))
    await runtime_harness.ask(start_session("sess_2"))
    stop()
    await runtime_harness.ask(mirror(make_output(3)))
    assert shown == [(SESSION, [1, 2, 3], 3), ("sess_2", [1], 1)]


async def test_a_watcher_that_fails_is_nobody_else_s_trouble(runtime_harness: RuntimeHarness) -> None:
    def fail(session: Session, batch: session_service.Batch) -> None:
        raise RuntimeError("a bug of theirs")

    runtime_harness.runtime.watch_batches(fail)
    outlet = RecordingSubscriber()
    await runtime_harness.ask(mirror(make_started()))
    outlet = await runtime_harness.attach_subscriber(outlet=outlet)
    await runtime_harness.ask(mirror(make_output(2)))
    await outlet.wait_for_event(events.ToolProgressed)


async def test_going_back_in_a_session_s_log(runtime_harness: RuntimeHarness) -> None:
    await runtime_harness.ask(mirror(make_started(), *[make_output(seq) for seq in range(2, 12)], make_approval(12)))
    page = await runtime_harness.runtime.read_entries_before(SESSION, 10, 3)
    assert [entry.seq for entry in page] == [7, 8, 9]
    page = await runtime_harness.runtime.read_entries_before(SESSION, session_service.HEAD_CURSOR, 2, streamed=False)
    assert [entry.kind for entry in page] == ["run.started", "approval.requested"]
    assert await runtime_harness.runtime.find_card("sess_none") is None


# What a hub has not yet


async def test_what_a_hub_has_not_acknowledged_is_not_pruned(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(retention=journal.Retention(keep_entries=1, keep_ms=0))
    house.runtime.undelivered = lambda: {SESSION: 5}
    await house.ask(mirror(make_started(), *[make_output(seq) for seq in range(2, 12)], make_ended(12)))
    async with asyncio.timeout(60):
        await house.journal.wait_until(lambda: SESSION in house.journal.prunings)
    await house.ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="read"))
    assert [entry.seq for entry in await house.list_stored() if entry.kind == "tool.progressed"] == [*range(5, 13)]
