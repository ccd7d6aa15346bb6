"""What a host tells its hub: everything, in order, once, whatever becomes of the connection."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.protocols.relay.link_parts import (
    HOST,
    TOKEN,
    Frame,
    LinkedHost,
    ScriptedHostConnection,
    ScriptedHub,
    find_unsettled_seq,
    make_output_tool,
)
from tests.runtime.parts import work_until_cancelled

from switchtower.core import errors, events
from switchtower.core.ports import engine, journal, session_service
from switchtower.protocols.relay import settings as link_settings
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.transports import upgrade

A, B, C = "sess_a", "sess_b", "sess_c"

MakeHost = Callable[..., Awaitable[LinkedHost]]


@pytest.fixture
async def hub() -> AsyncIterator[ScriptedHub]:
    made = ScriptedHub()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def make_host(hub: ScriptedHub) -> AsyncIterator[MakeHost]:
    async with AsyncExitStack() as stack:

        async def make(*args: Any, link: bool = True, **options: Any) -> LinkedHost:
            host = LinkedHost(hub, *args, **options)
            await host.open(link=link)
            stack.push_async_callback(host.close)
            return host

        yield make


async def run(host: LinkedHost, session_id: str) -> None:
    """One run, to its end."""
    outlet = await host.runtime.attach_subscriber(session_id, session_service.HEAD_CURSOR)
    await host.runtime.send(session_id=session_id)
    await outlet.wait_for_event(events.RunCompleted)


async def test_a_host_introduces_itself_and_tells_what_happens(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(20))
    call = await hub.wait_for_connection()
    assert call.query == {"host_id": HOST, "host_token": TOKEN, "name": "a host & its name"}
    await host.start_session(A)
    await run(host, A)
    await host.wait_until_synced(hub, A)
    assert [frame["type"] for frame in hub.stored[A]][:2] == ["run.started", "run.input"]
    assert all(frame["host_id"] == HOST for frame in call.frames)
    assert host.link.status.phase == "connected"


async def test_what_the_hub_has_acknowledged_is_not_told_again(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(30))
    await host.start_session(A)
    await run(host, A)
    await host.wait_until_synced(hub, A)
    await wait_until_settled(host)
    hub.call.cut()
    second = await hub.wait_for_connection(2)
    await run(host, A)
    await host.wait_until_synced(hub, A)
    last_before = hub.calls[0].events[-1]
    assert second.events[0]["prev_seq"] == last_before["seq"]


async def wait_until_settled(host: LinkedHost) -> None:
    async with asyncio.timeout(60):
        while host.link.status.unacknowledged or host.link.status.backlog:
            await asyncio.sleep(0)


@pytest.mark.parametrize("k", range(1, 25))
async def test_after_a_cut_exactly_what_is_unacknowledged_is_told(hub: ScriptedHub, make_host: MakeHost, k: int) -> None:
    """Of each connection the hub stores `k` events and acknowledges every third that it is told."""
    acknowledged = {A: 0, B: 0}
    acknowledged_at_start: list[dict[str, int]] = []
    hub.acks = False

    def cut_after_k(call: ScriptedHostConnection, frame: Frame) -> None:
        if len(call.events) == 1:
            acknowledged_at_start.append(dict(acknowledged))
        if hub.acks:
            return
        if sum(len(each.events) for each in hub.calls) % 3 == 2:
            acknowledged[frame["run_id"]] = hub.stored[frame["run_id"]][-1]["seq"]
            call.send_ack(frame["run_id"], acknowledged[frame["run_id"]])
        if len(call.events) == k:
            call.ended = True
            call.stream.close()

    hub.after_heard = cut_after_k
    host = await make_host(make_output_tool(12))
    for session_id in (A, B):
        await host.start_session(session_id)
        await run(host, session_id)
    await host.wait_until_synced(hub, A, B)
    hub.acks = True
    await hub.wait_until(lambda: not hub.call.ended and hasattr(hub.call, "stream"))
    hub.call.cut()
    await wait_until_settled(host)
    assert len(hub.calls) > 24 // k
    assert [hub.stored[run_id] for run_id in (A, B)] == [await host.list_expected(run_id) for run_id in (A, B)]
    for call, known in zip((call for call in hub.calls if call.events), acknowledged_at_start, strict=True):
        for run_id in (A, B):
            before = known[run_id]
            for frame in (frame for frame in call.events if frame["run_id"] == run_id):
                assert frame["prev_seq"] == before, "from what was acknowledged on, and without a hole"
                before = frame["seq"]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_the_hub_does_it_has_everything_once_in_the_end(hub: ScriptedHub, make_host: MakeHost, seed: int) -> None:
    """It acknowledges late, cuts the connection, forgets what it had and says so, in any order."""
    chance = random.Random(seed)
    hub.acks = False

    def misbehave(call: ScriptedHostConnection, frame: Frame) -> None:
        run_id, whim = frame["run_id"], chance.random()
        stored = hub.stored[run_id]
        if hub.acks or whim < 0.6:
            return
        if whim < 0.8:
            call.send_ack(run_id, chance.choice(stored)["seq"])
        elif whim < 0.85:
            call.send_ack(run_id, chance.randrange(1, 10_000))
        elif whim < 0.95:
            call.send_ack(run_id, stored[-1]["seq"])
        else:
            if whim < 0.97:
                del stored[chance.randrange(len(stored)) :]
            call.cut()

    hub.after_heard = misbehave
    hub.forgetful = True
    host = await make_host(make_output_tool(100), window_events=chance.choice([1, 7, 60, 5_000]), lanes=chance.choice([1, 3]))
    for session_id in (A, B, C):
        await host.start_session(session_id)
        await run(host, session_id)
    hub.acks = True  # from here on it is honest, and says what it has
    await hub.wait_until(lambda: not hub.call.ended and hasattr(hub.call, "stream"))
    for run_id in (A, B, C):
        hub.call.send_ack(run_id, hub.list_seqs(run_id)[-1] if hub.list_seqs(run_id) else 0)
    await host.wait_until_synced(hub, A, B, C)
    await wait_until_settled(host)


async def test_a_new_link_over_the_same_registry_goes_on_where_the_old_one_was(hub: ScriptedHub, make_host: MakeHost) -> None:
    journal_, registry_ = MemoryJournal(), MemoryRegistry()
    first = await make_host(make_output_tool(50), journal_=journal_, registry_=registry_)
    await first.start_session(A)
    await run(first, A)
    await first.wait_until_synced(hub, A)
    await wait_until_settled(first)
    await first.close()
    second = await make_host(make_output_tool(50), journal_=journal_, registry_=registry_)
    await run(second, A)
    await second.wait_until_synced(hub, A)
    call = await hub.wait_for_connection(2)
    assert call.events[0]["prev_seq"] == hub.calls[0].events[-1]["seq"]
    assert await registry_.load_acknowledgements(second.settings.hub)


async def test_a_backlog_of_20_000_events_is_told_in_order_and_never_too_much_at_once(
    hub: ScriptedHub, make_host: MakeHost
) -> None:
    host = await make_host(make_output_tool(20_000), link=False, window_events=1_000)
    await host.start_session(A)
    # The link was made before: what happens from here on is to be told, though nobody is there to hear it.
    await host.registry.record_hub(host.settings.hub, 0)
    await run(host, A)
    most = 0

    def count(call: ScriptedHostConnection, frame: Frame) -> None:
        nonlocal most
        most = max(most, host.link.status.unacknowledged)

    hub.after_heard = count
    host.link.start()
    await host.wait_until_synced(hub, A)
    assert len(hub.stored[A]) > 20_000
    assert len(hub.calls) == 1
    assert 0 < most <= 1_000


async def test_a_hub_that_never_acknowledges_is_sent_a_window_and_no_more(hub: ScriptedHub, make_host: MakeHost) -> None:
    hub.acks = False
    host = await make_host(make_output_tool(500), window_events=100, heartbeat_s=0.01)
    for session_id in (A, B):
        await host.start_session(session_id)
        await run(host, session_id)
    call = await hub.wait_for_connection()
    seen = len(call.frames)
    await hub.wait_until(lambda: len(call.list_messages("host.heartbeat")) > 20 and len(call.frames) > seen)
    assert len(call.events) <= 100
    assert {frame["run_id"] for frame in call.events} == {A, B}
    assert host.link.status.backlog == 2
    hub.acks = True
    call.cut()
    await host.wait_until_synced(hub, A, B)


async def test_one_long_backlog_does_not_keep_the_others_waiting(hub: ScriptedHub, make_host: MakeHost) -> None:
    async def by_session(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        return await make_output_tool(5_000 if task.session_id == A else 5)(task, desk)

    host = await make_host(by_session, link=False, lanes=2, window_events=400)
    await host.registry.record_hub(host.settings.hub, 0)
    for session_id in (A, B):
        await host.start_session(session_id)
        await run(host, session_id)
    host.link.start()
    await hub.wait_until(lambda: len(hub.stored.get(A, [])) > 200)
    await host.start_session(C)
    await run(host, C)
    await host.wait_until_synced(hub, A, B, C)
    order = [frame["run_id"] for frame in hub.call.events]
    assert order.index(C) < len(order) - 1 - order[::-1].index(A)
    assert len(order) - 1 - order[::-1].index(B) < len(order) - 1 - order[::-1].index(A)
    assert len(order) - 1 - order[::-1].index(C) < len(order) - 1 - order[::-1].index(A)


async def test_acknowledgements_that_cannot_be_right_change_nothing(
    hub: ScriptedHub, make_host: MakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    hub.acks = False
    host = await make_host(make_output_tool(10))
    await host.start_session(A)
    await run(host, A)
    expected = await host.list_expected(A)
    call = await hub.wait_for_connection()
    await hub.wait_until(lambda: len(call.events) == len(expected))
    for _ in range(3):
        call.send_ack("sess_nobody", 1)
        call.send_ack("\x00" * 10, 1)
        call.send_ack("é" * 128, 1)
    call.send("run.ack", {"run_id": A, "last_seq": -1})
    call.send("run.ack", {"run_id": A, "last_seq": "7"})
    await hub.wait_until(lambda: len(call.list_messages("error")) == 2)
    assert host.link.status.unacknowledged == len(expected)
    assert find_unsettled_seq(host.link, A) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["the hub acknowledges a run that it was not told of"]
    call.send_ack(A, expected[-1]["seq"])
    await wait_until_settled(host)
    assert find_unsettled_seq(host.link, A) is None


async def test_an_acknowledgement_of_the_future_counts_as_far_as_the_past_goes(hub: ScriptedHub, make_host: MakeHost) -> None:
    hub.acks = False
    host = await make_host(make_output_tool(10))
    await host.start_session(A)
    call = await hub.wait_for_connection()
    await hub.wait_stored(A, 1)
    call.send_ack(A, 2**53)
    await wait_until_settled(host)
    await run(host, A)
    expected = await host.list_expected(A)
    await hub.wait_stored(A, len(expected))
    assert host.link.status.unacknowledged == len(expected) - 1
    assert hub.stored[A] == expected


async def test_a_hub_that_remembers_more_than_the_host_is_told_no_further_than_needed(
    hub: ScriptedHub, make_host: MakeHost
) -> None:
    """The host was killed before it wrote down what was acknowledged."""
    journal_ = MemoryJournal()
    first = await make_host(make_output_tool(1_000), journal_=journal_)
    await first.start_session(A)
    await run(first, A)
    await first.wait_until_synced(hub, A)
    await first.close()
    second = await make_host(make_output_tool(10), journal_=journal_, window_events=50, link=False)
    await second.registry.record_hub(second.settings.hub, 0)
    second.link.start()
    await run(second, A)
    await second.wait_until_synced(hub, A)
    await wait_until_settled(second)


async def test_runs_that_are_never_acknowledged_do_not_stop_the_others(hub: ScriptedHub, make_host: MakeHost) -> None:
    hub.ignored = {A, B}
    host = await make_host(make_output_tool(1_000), window_events=100)
    for session_id in (A, B, C):
        await host.start_session(session_id)
        await run(host, session_id)
    await host.wait_until_synced(hub, C)
    assert host.link.status.unacknowledged < 100
    assert find_unsettled_seq(host.link, A) == 1


async def test_many_sessions_with_a_backlog_are_all_told(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(5), link=False, window_events=40, lanes=3)
    await host.registry.record_hub(host.settings.hub, 0)
    names = [f"sess_{number}" for number in range(200)]
    for name in names:
        await host.start_session(name)
        await host.runtime.send(session_id=name)
    host.link.start()
    for name in names:
        await hub.wait_until(lambda name=name: hub.stored.get(name, [{"type": ""}])[-1]["type"] == "run.awaiting_input")  # type: ignore[misc]
    await host.wait_until_synced(hub, *names)
    await wait_until_settled(host)


async def test_a_journal_that_cannot_be_read_for_a_moment_is_tried_again(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(5), link=False)
    await host.registry.record_hub(host.settings.hub, 0)
    await host.start_session(A)
    await run(host, A)
    host.runtime.journal.failing_reads = [errors.JournalUnavailable("the disk is away"), RuntimeError("a bug")]
    host.link.start()
    await host.wait_until_synced(hub, A)


async def test_a_registry_that_cannot_be_read_is_waited_for(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(5), link=False)
    await host.registry.close()
    host.link.start()
    await host.start_session(A)
    await wait_until(lambda: "registry" in host.link.status.problem)
    assert find_unsettled_seq(host.link, A) == 1
    await host.registry.open()
    await host.wait_until_synced(hub, A)


async def test_what_is_acknowledged_while_the_registry_is_away_is_written_when_it_is_back(
    hub: ScriptedHub, make_host: MakeHost
) -> None:
    host = await make_host(make_output_tool(5))
    await hub.wait_for_connection()
    await host.registry.close()
    await host.start_session(A)
    await run(host, A)
    await host.wait_until_synced(hub, A)
    await wait_until_settled(host)
    await host.registry.open()
    await host.link.close()
    assert (await host.registry.load_acknowledgements(host.settings.hub))[A][0] == hub.stored[A][-1]["seq"]


async def test_a_hub_that_has_less_than_it_said_is_told_again_from_there(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(10))
    await host.start_session(A)
    await run(host, A)
    await host.wait_until_synced(hub, A)
    await wait_until_settled(host)
    expected = await host.list_expected(A)
    call = hub.call
    already = len(call.events)
    kept = hub.stored[A] = hub.stored[A][:4]
    call.send_ack(A, kept[-1]["seq"])
    await host.wait_until_synced(hub, A)
    assert call.events[already:] == expected[4:]


async def test_a_hub_that_repeats_itself_is_told_again(hub: ScriptedHub, make_host: MakeHost) -> None:
    """It has lost what it was sent behind its last acknowledgement, and says so by repeating that one."""
    hub.acks = False
    host = await make_host(make_output_tool(10))
    await host.start_session(A)
    await run(host, A)
    expected = await host.list_expected(A)
    call = await hub.wait_for_connection()
    await hub.wait_until(lambda: len(call.events) == len(expected))
    del hub.stored[A][3:]
    call.send_ack(A, expected[2]["seq"])
    call.send_ack(A, expected[2]["seq"])
    hub.acks = True
    await host.wait_until_synced(hub, A)
    assert call.events[len(expected) :] == expected[3:]


async def test_a_session_that_was_settled_long_ago_can_be_asked_for_again(hub: ScriptedHub, make_host: MakeHost) -> None:
    journal_, registry_ = MemoryJournal(), MemoryRegistry()
    first = await make_host(make_output_tool(5), journal_=journal_, registry_=registry_)
    await first.start_session(A)
    await run(first, A)
    await first.wait_until_synced(hub, A)
    await wait_until_settled(first)
    await first.close()
    hub.stored.clear()
    second = await make_host(make_output_tool(5), journal_=journal_, registry_=registry_)
    call = await hub.wait_for_connection(2)
    call.send_ack(A, 0)
    await second.wait_until_synced(hub, A)


class CountingJournal(MemoryJournal):
    """Knows whose entries were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        self.reads.append(session_id)
        return await super().read(session_id, after_seq, limit)


class SlowJournal(MemoryJournal):
    """Its next read of so many entries waits until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_back_after = 2**62
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        entries = await super().read(session_id, after_seq, limit)
        if after_seq >= self.holds_back_after:
            self.holds_back_after = 2**62
            self.waiting.set()
            await self.gate.wait()
        return entries


@pytest.mark.parametrize("is_back_first", [True, False])
async def test_a_page_that_was_read_for_a_lost_connection_is_not_sent_on_the_next(
    hub: ScriptedHub, make_host: MakeHost, is_back_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    journal_ = SlowJournal()
    host = await make_host(make_output_tool(1_200), journal_=journal_, link=False)
    await host.registry.record_hub(host.settings.hub, 0)
    await host.start_session(A)
    await run(host, A)
    hub.acks = False
    journal_.holds_back_after = 400
    host.link.start()
    await journal_.waiting.wait()
    (await hub.wait_for_connection()).cut()
    if is_back_first:
        second = await hub.wait_for_connection(2)
        await hub.wait_until(lambda: bool(second.list_messages("host.heartbeat")))
    else:
        await wait_until(lambda: host.link.status.phase != "connected")
    journal_.gate.set()
    hub.acks = True
    await host.wait_until_synced(hub, A)
    await wait_until_settled(host)
    assert [frame["seq"] for frame in hub.calls[1].events] == hub.list_seqs(A)
    assert len(hub.calls) == 2
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_sessions_that_the_hub_has_are_not_read_at_the_next_start(hub: ScriptedHub, make_host: MakeHost) -> None:
    journal_, registry_ = CountingJournal(), MemoryRegistry()
    first = await make_host(make_output_tool(5), journal_=journal_, registry_=registry_)
    for number in range(30):
        await first.start_session(f"sess_{number}")
    await run(first, "sess_7")
    await first.wait_until_synced(hub, *(f"sess_{number}" for number in range(30)))
    await wait_until_settled(first)
    quiet = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, quiet.set)  # the clock must have moved on since the last event
    await quiet.wait()
    await first.close()
    second = await make_host(make_output_tool(5), journal_=journal_, registry_=registry_, link=False)
    journal_.reads.clear()
    second.link.start()
    await hub.wait_for_connection(2)
    assert second.link.status.backlog == 0
    await second.start_session(B)
    await second.wait_until_synced(hub, B)
    assert set(journal_.reads) <= {B}


async def test_sessions_from_before_the_first_link_are_not_told(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(5), link=False)
    await host.start_session(A)
    await run(host, A)
    card = await host.runtime.runtime.find_card(A)
    assert card is not None
    await host.registry.record_hub(host.settings.hub, card.updated_at_ms + 1)
    host.make_link().start()
    await hub.wait_for_connection()
    assert find_unsettled_seq(host.link, A) is None
    await host.start_session(B)
    await host.wait_until_synced(hub, B)
    assert set(hub.stored) == {B}


async def test_an_old_session_that_is_used_again_is_told_from_its_beginning(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(5), link=False)
    await host.start_session(A)
    await host.registry.record_hub(host.settings.hub, host.runtime.runtime.now_ms() + 60_000)
    host.make_link().start()
    await hub.wait_for_connection()
    await run(host, A)
    await host.wait_until_synced(hub, A)


async def test_nothing_may_be_pruned_before_it_is_known_what_the_hub_has(hub: ScriptedHub, make_host: MakeHost) -> None:
    hub.acks = False
    host = await make_host(make_output_tool(5), link=False)
    await host.start_session(A)
    assert find_unsettled_seq(host.link, A) == 1
    host.link.start()
    call = await hub.wait_for_connection()
    await hub.wait_until(lambda: bool(call.events))
    assert find_unsettled_seq(host.link, A) == 1
    call.send_ack(A, 1)
    await wait_until_settled(host)
    assert find_unsettled_seq(host.link, A) is None


async def test_what_retention_took_is_skipped_and_said_so_by_the_numbers(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(100), link=False)
    await host.registry.record_hub(host.settings.hub, 0)
    await host.start_session(A)
    await run(host, A)
    await host.runtime.journal.inner.prune(journal.Retention(10, 0), host.runtime.runtime.now_ms(), A)
    expected = await host.list_expected(A)
    assert len(expected) < 100
    host.link.start()
    await host.wait_until_synced(hub, A)
    assert [frame["prev_seq"] for frame in hub.stored[A]] == [0, *(frame["seq"] for frame in expected[:-1])]


async def test_heartbeats_come_without_a_run(hub: ScriptedHub, make_host: MakeHost) -> None:
    await make_host(heartbeat_s=0.01)
    call = await hub.wait_for_connection()
    await hub.wait_until(lambda: len(call.list_messages("host.heartbeat")) >= 3)
    beat = call.list_messages("host.heartbeat")[1]
    assert {**beat, "ts": ""} == {"type": "host.heartbeat", "ts": "", "host_id": HOST, "data": {}}


async def test_a_hub_that_refuses_is_asked_again_but_complained_of_once(
    hub: ScriptedHub, make_host: MakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hub.refuse_with = upgrade.UpgradeRefusal(401, "the host token is not the one we know")
    host = await make_host()
    await hub.wait_until(lambda: hub.refusals >= 4)
    state = host.link.status
    assert state.phase in ("refused", "connecting")
    assert state.problem == "the hub refuses this host: 401 the host token is not the one we know"
    assert [record.getMessage() for record in caplog.records if record.name.startswith("switchtower")].count(
        f"{state.problem} ({host.settings.hub})"
    ) == 1
    assert TOKEN not in caplog.text
    hub.refuse_with = None
    await hub.wait_for_connection()
    await hub.wait_until(lambda: host.link.status.phase == "connected")


async def test_a_hub_that_is_away_is_found_again_when_it_is_back(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(10))
    await hub.wait_for_connection()
    port = hub.listener.port
    await hub.close()
    await host.start_session(A)
    await run(host, A)
    await wait_until(lambda: host.link.status.problem.startswith("the hub cannot be reached"))
    assert host.link.status.backlog == 1
    await hub.open(port)
    await host.wait_until_synced(hub, A)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_a_hub_that_reads_slowly_gets_everything_in_the_end(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(make_output_tool(3_000, "x" * 2_000), window_events=100_000)
    call = await hub.wait_for_connection()
    call.stream.pause_reading()
    await host.start_session(A)
    await run(host, A)
    assert host.link.status.backlog == 1
    assert host.link.status.unacknowledged < 3_000
    call.stream.resume_reading()
    await host.wait_until_synced(hub, A)


async def test_a_session_that_is_quiet_for_long_is_told_on_when_it_speaks(hub: ScriptedHub, make_host: MakeHost) -> None:
    go_on = asyncio.Event()

    async def speak_twice(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(events.ToolProgressed("call_1", "first\n"))
        await go_on.wait()
        return await make_output_tool(5)(task, desk)

    host = await make_host(speak_twice)
    await host.start_session(A)
    await host.runtime.send(session_id=A)
    await hub.wait_until(lambda: len(hub.stored.get(A, [])) >= 3)
    await wait_until(lambda: find_unsettled_seq(host.link, A) is None)
    go_on.set()
    await hub.wait_until(lambda: hub.stored[A][-1]["type"] == "run.awaiting_input")
    await host.wait_until_synced(hub, A)


async def test_closing_says_goodbye_and_leaves_no_task(hub: ScriptedHub, make_host: MakeHost) -> None:
    before = asyncio.all_tasks()
    host = await make_host(work_until_cancelled)
    call = await hub.wait_for_connection()
    await host.start_session(A)
    await host.runtime.send(session_id=A)
    await host.wait_until_synced(hub, A)
    call.send("rpc.bash", {"request_id": "r1", "cmd": "true"}, run_id=A)
    await hub.wait_until(lambda: bool(call.list_messages("run.permission_requested")))
    assert any("relay/link" in where for where in map(find_source_file, asyncio.all_tasks() - before))
    await host.link.close()
    await hub.wait_until(lambda: call.ended)
    assert not [
        where for where in map(find_source_file, asyncio.all_tasks() - before) if "relay/link" in where or "ws_client" in where
    ]


def find_source_file(task: "asyncio.Task[Any]") -> str:
    """The file that a task's work is written in."""
    return str(getattr(task.get_coro(), "cr_code", None))


async def test_closing_before_anything_began_is_fine(hub: ScriptedHub, make_host: MakeHost) -> None:
    host = await make_host(link=False)
    await host.link.close()


@pytest.mark.parametrize("url", ["", "hub.example", "ftp://hub.example", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused_with_a_hint(url: str) -> None:
    made = link_settings.LinkSettings(hub_url=url, host_id=HOST, host_token=TOKEN, host_name="")
    with pytest.raises(link_settings.InvalidHubUrl, match="hint: "):
        _ = made.dial_url


@pytest.mark.parametrize(
    ("url", "hub", "dialled"),
    [
        ("http://127.0.0.1:8787", "ws://127.0.0.1:8787", "ws://127.0.0.1:8787/ws/host?"),
        ("https://Hub.Example/", "wss://hub.example", "wss://hub.example/ws/host?"),
        ("https://me:pw@hub.example/tower/?x=1", "wss://hub.example/tower", "wss://me:pw@hub.example/tower/ws/host?"),
        ("ws://[::1]:1", "ws://[::1]:1", "ws://[::1]:1/ws/host?"),
    ],
)
def test_the_hubs_address_is_understood(url: str, hub: str, dialled: str) -> None:
    made = link_settings.LinkSettings(hub_url=url, host_id="h 1", host_token="a&b", host_name="ü")
    assert made.hub == hub
    assert made.dial_url == f"{dialled}host_id=h%201&name=%C3%BC"
    assert made.dial_url_with_token == f"{dialled}host_id=h%201&host_token=a%26b&name=%C3%BC"
    assert "a&b" not in repr(made)
