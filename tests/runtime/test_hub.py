"""Cursors: whenever one attaches and however slowly it reads, it sees each event once, in order, and slows nobody."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.parts import (
    SESSION,
    SUCCESS,
    MakeRuntime,
    RecordingSubscriber,
    RuntimeHarness,
    cancel,
    send,
    work_until_cancelled,
)

from switchtower.core import events
from switchtower.core.ports import engine, journal, session_service
from switchtower.runtime.lane_items import RuntimeLimits

WORDS = 300


async def _emit_words(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    for number in range(WORDS):
        await context.emit(events.TextDelta(f"{number} "))
        if number % 7 == 0:
            await asyncio.sleep(0)
    return SUCCESS


class SlowSubscriber(RecordingSubscriber):
    """Takes a random number of batches, then none for a random while, as a socket does whose client reads in spurts."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._takes = 0
        self.subscription: session_service.Subscription | None = None
        self.pauses = 0

    def deliver(self, batch: session_service.Batch) -> None:
        super().deliver(batch)
        self._takes -= 1
        if self._takes <= 0:
            self.is_ready = False
            self.pauses += 1
            self._recover_after(self._dice.randrange(20))

    def _recover_after(self, turns: int) -> None:
        asyncio.get_running_loop().call_soon(self._recover_after, turns - 1) if turns > 0 else self._resume()

    def _resume(self) -> None:
        self.is_ready = True
        self._takes = self._dice.randrange(1, 6)
        if self.subscription is not None:
            self.subscription.wake()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), page=st.sampled_from([1, 3, 50, 500]))
def test_subscribers_that_attach_anywhere_and_pause_at_will_see_each_event_once_in_order(seed: int, page: int) -> None:
    async def scenario() -> None:
        dice = random.Random(seed)
        house = RuntimeHarness(_emit_words, limits=RuntimeLimits(page=page))
        house.journal.turns_to_confirm = lambda: dice.randrange(4)
        await house.open()
        whole = await house.start_session()
        await house.send()
        attached: list[tuple[int, SlowSubscriber]] = []
        while "run.completed" not in whole.kinds:
            after_seq = dice.randint(0, whole.seqs[-1])
            outlet = SlowSubscriber(dice)
            attachment = await house.open_attachment(outlet, after_seq=after_seq)
            assert not attachment.gap
            outlet.subscription = attachment.subscription
            attachment.subscription.start()
            attached.append((after_seq, outlet))
            for _ in range(dice.randrange(10)):
                await asyncio.sleep(0)
        stored = await house.list_stored()
        for after_seq, outlet in attached:
            await outlet.wait_until(lambda outlet=outlet: bool(outlet.seqs) and outlet.seqs[-1] == stored[-1].seq)
            assert outlet.entries == stored[after_seq:]
        await house.close()

    asyncio.run(scenario())


async def test_what_was_read_from_the_journal_before_it_was_published_is_not_told_again(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(work_until_cancelled)
    whole = await house.start_session()
    early = RecordingSubscriber()
    attachment = await house.open_attachment(early)
    house.journal.confirmation.clear()
    sent = house.start_submit(send())
    await house.journal.wait_until(lambda: house.journal.stored == 2)
    attachment.subscription.start()
    await early.wait_for_event(events.RunStarted)
    assert "run.started" not in whole.kinds
    house.journal.confirmation.set()
    async with asyncio.timeout(60):
        await sent
    await house.ask(cancel())
    for outlet in (early, whole):
        await outlet.wait_for_event(events.RunCompleted)
        assert outlet.entries == await house.list_stored()


async def test_a_subscriber_that_does_not_read_holds_back_nobody(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(_emit_words)
    whole = await house.start_session()
    stuck = RecordingSubscriber()
    stuck.is_ready = False
    attachment = await house.open_attachment(stuck)
    attachment.subscription.start()
    await house.send()
    await whole.wait_for_event(events.RunCompleted)
    assert stuck.entries == []

    stuck.is_ready = True
    attachment.subscription.wake()
    await stuck.wait_until(lambda: stuck.entries == whole.entries)


async def test_a_subscriber_that_has_caught_up_by_paging_hears_the_next_event_live(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(_emit_words)
    whole = await house.start_session()
    await house.send()
    await whole.wait_for_event(events.RunCompleted)
    late = await house.attach_subscriber()
    await late.wait_until(lambda: late.seqs == whole.seqs)
    batches = late.batches
    house.engine.work = work_until_cancelled
    await house.send()
    await late.wait_for_event(events.RunStarted, count=2)
    assert late.batches == batches + 1


async def test_closing_while_a_page_is_being_read_delivers_nothing_more(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(_emit_words)
    whole = await house.start_session()
    await house.send()
    await whole.wait_for_event(events.RunCompleted)

    reading, go_on = asyncio.Event(), asyncio.Event()
    read = house.journal.read

    async def slow_read(session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        reading.set()
        await go_on.wait()
        return await read(session_id, after_seq, limit)

    house.journal.read = slow_read  # type: ignore[method-assign]
    late = RecordingSubscriber()
    attachment = await house.open_attachment(late)
    attachment.subscription.start()
    async with asyncio.timeout(60):
        await reading.wait()
    attachment.subscription.close()
    go_on.set()
    await house.attach_subscriber(after_seq=whole.seqs[-1])
    assert late.entries == []
    assert late.behind == []
    attachment.subscription.wake()
    attachment.subscription.close()
    await house.attach_subscriber(after_seq=whole.seqs[-1])
    assert late.entries == []


async def test_a_subscriber_that_retention_has_overtaken_is_told_that_it_fell_behind(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(_emit_words, retention=journal.Retention(10, 0))
    whole = await house.start_session()
    slow = RecordingSubscriber()
    slow.is_ready = False
    attachment = await house.open_attachment(slow, after_seq=1)
    attachment.subscription.start()
    await house.send()
    await whole.wait_for_event(events.RunCompleted)
    await house.journal.wait_until(lambda: SESSION in house.journal.prunings)
    assert await house.journal.find_gap(SESSION, 1) is not None

    slow.is_ready = True
    attachment.subscription.wake()
    await slow.wait_until(lambda: bool(slow.behind))
    assert slow.behind == [SESSION]
    # Whatever came before it was told is the log without a hole.
    assert slow.seqs == list(range(2, 2 + len(slow.seqs)))
    assert len(slow.seqs) < WORDS

    anew = await house.open_attachment(RecordingSubscriber(), after_seq=1)
    assert anew.gap
    assert anew.subscription.cursor == whole.seqs[-1]
    assert anew.earliest_seq == (await house.journal.find_gap(SESSION, 1) or 0) + 1


async def test_a_cursor_beyond_the_head_is_a_gap_too(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    await house.start_session()
    attachment = await house.open_attachment(RecordingSubscriber(), after_seq=1_000)
    assert attachment.gap
    assert attachment.subscription.cursor == 1


class LagAwareSubscriber(RecordingSubscriber):
    """Tells when it fell behind the live stream, and when it had caught up."""

    def __init__(self) -> None:
        super().__init__()
        self.paces: list[str] = []

    def on_lagging(self, session_id: str) -> None:
        self.paces.append("behind")

    def on_caught_up(self, session_id: str) -> None:
        self.paces.append("caught up")
        self.notify_changed()


async def test_who_wants_to_know_is_told_when_it_falls_behind_and_when_it_has_caught_up(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    follower = await house.start_session()
    paced = LagAwareSubscriber()
    subscription = (await house.open_attachment(paced, after_seq=1)).subscription
    subscription.start()

    paced.is_ready = False
    await house.send("one")
    await follower.wait_for_event(events.RunCompleted)
    assert paced.paces == ["behind"]

    paced.is_ready = True
    subscription.wake()
    await paced.wait_until(lambda: paced.paces == ["behind", "caught up"])
    assert paced.seqs == follower.seqs[1:]
