"""What is typed into a program: handed over in the order it was accepted, and refused for now while the program takes nothing."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from tests.runtime.parts import KEEP_ALL, SESSION, TIMEOUT, ControlledJournal, RecordingSubscriber, ScriptedEngine

from switchtower.core import commands, errors, events, redact
from switchtower.core.ports import engine, session_service
from switchtower.core.rules import user_actions
from switchtower.runtime import run_context
from switchtower.runtime.run_context import TerminalInputQueue
from switchtower.runtime.runtime import Runtime
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.session_driver import OWNER

LONGEST = user_actions.MOST_TYPED


class TypingEngine(ScriptedEngine):
    """A program in a terminal that takes only what it is told to take."""

    def __init__(self) -> None:
        super().__init__(self.take_as_told)
        self.taken: list[engine.TypedText | engine.ResizedScreen] = []
        self._allowed = asyncio.Semaphore(0)

    async def take_as_told(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        while True:
            await self._allowed.acquire()
            self.taken.append(await context.next_terminal_input())
            self.notify_changed()

    async def take(self, count: int) -> list[engine.TypedText | engine.ResizedScreen]:
        """The next so many."""
        wanted = len(self.taken) + count
        for _ in range(count):
            self._allowed.release()
        await self.wait_until(lambda: len(self.taken) == wanted)
        return self.taken[-count:]


class TypingHarness:
    """A runtime with one such program."""

    def __init__(self) -> None:
        self.program = TypingEngine()
        self.journal = ControlledJournal()
        self.runtime = Runtime(
            self.journal,
            {"pty": self.program},
            StubHostServices(),
            redactor=redact.Redactor(),
            approval_timeout_ms=3_600_000,
            receipt_ttl_ms=3_600_000,
            retention=KEEP_ALL,
        )

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        async with asyncio.timeout(TIMEOUT):
            return await self.runtime.ask(command)

    async def start(self, session_id: str = SESSION) -> None:
        start = commands.StartSession(
            session_id=session_id,
            actor=OWNER,
            engine="pty",
            mode="interactive",
            provider="terminal",
            sandbox="local",
            workspace=events.Workspace(root="/"),
            attach_token_sha256="0" * 64,
            program=user_actions.make_program(["cat"]),
        )
        await self.ask(start)

    async def type(self, text: str, input_id: str, session_id: str = SESSION) -> session_service.SubmitOutcome:
        return await self.ask(make_typed_input(text, input_id, session_id))

    async def send_keys(self, text: str, session_id: str = SESSION) -> None:
        await self.ask(commands.TypeKeys(session_id=session_id, actor=OWNER, text=text))

    async def resize(self, cols: int, rows: int) -> None:
        await self.ask(commands.ResizeTerminal(session_id=SESSION, actor=OWNER, cols=cols, rows=rows))

    async def fill(self) -> int:
        """Types until no more is taken; how often that went well."""
        for number in range(100):
            try:
                await self.send_keys("x" * LONGEST)
            except errors.Overloaded:
                return number
        raise AssertionError("there is no end to it")


def make_typed_input(text: str, input_id: str, session_id: str = SESSION) -> commands.TypeInput:
    return commands.TypeInput(
        session_id=session_id,
        actor=OWNER,
        idempotency_key=f"input:{input_id}",
        input_id=input_id,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


@pytest.fixture
async def typing_harness() -> AsyncIterator[TypingHarness]:
    made = TypingHarness()
    await made.journal.open()
    await made.runtime.start()
    await made.start()
    yield made
    made.journal.gate.set()
    await made.runtime.stop()
    await made.journal.close()


async def test_typing_keys_and_sizes_are_taken_in_the_order_they_were_accepted(typing_harness: TypingHarness) -> None:
    await typing_harness.type("one\r", "1")
    await typing_harness.send_keys("two")
    await typing_harness.resize(90, 30)
    await typing_harness.type("three\r", "3")
    assert await typing_harness.program.take(4) == [
        engine.TypedText("one\r"),
        engine.TypedText("two"),
        engine.ResizedScreen(90, 30),
        engine.TypedText("three\r"),
    ]


async def test_what_many_type_at_once_is_taken_in_the_order_of_the_journal(typing_harness: TypingHarness) -> None:
    await asyncio.gather(*(typing_harness.type(f"{number};", str(number)) for number in range(200)))
    taken = await typing_harness.program.take(200)
    entries = await typing_harness.journal.inner.read(SESSION, 0, 1_000)
    stored = [entry.data for entry in entries if entry.kind == events.TerminalTyped.kind]
    assert len(stored) == 200
    for typed_, data in zip(taken, stored, strict=True):
        assert isinstance(typed_, engine.TypedText)
        assert f'"{typed_.text}"'.encode() in data


async def test_nothing_is_typed_before_it_is_stored(typing_harness: TypingHarness) -> None:
    typing_harness.journal.gate.clear()
    asked = asyncio.ensure_future(typing_harness.type("one\r", "1"))
    taking = asyncio.ensure_future(typing_harness.program.take(1))
    appended = len(typing_harness.journal.appends)
    await typing_harness.journal.wait_until(lambda: len(typing_harness.journal.appends) > appended)
    assert typing_harness.program.taken == []
    typing_harness.journal.gate.set()
    await asked
    assert await taking == [engine.TypedText("one\r")]


async def test_the_same_input_twice_is_taken_once(typing_harness: TypingHarness) -> None:
    first = await typing_harness.type("once\r", "1")
    assert await typing_harness.type("once\r", "1") == {**first, "replayed": True}
    await typing_harness.send_keys("then")
    assert await typing_harness.program.take(2) == [engine.TypedText("once\r"), engine.TypedText("then")]


async def test_a_program_that_does_not_take_what_is_typed_makes_more_of_it_refused_for_now(typing_harness: TypingHarness) -> None:
    assert await typing_harness.fill() == run_context.MOST_CHARS // LONGEST
    stored = len(await typing_harness.journal.inner.read(SESSION, 0, 1_000))
    more: tuple[commands.AnyCommand, ...] = (
        make_typed_input("more", "1"),
        commands.TypeKeys(session_id=SESSION, actor=OWNER, text="m"),
        commands.SendMessage(session_id=SESSION, actor=OWNER, text="m"),
        commands.QueueMessage(session_id=SESSION, actor=OWNER, text="m", delivery=events.Delivery.STEER),
    )
    for command in more:
        with pytest.raises(errors.Overloaded) as refusal:
            await typing_harness.ask(command)
        assert refusal.value.retryable
    assert len(await typing_harness.journal.inner.read(SESSION, 0, 1_000)) == stored, "what is refused has not happened"


async def test_it_goes_on_when_the_program_takes_again_and_nothing_accepted_is_missing(typing_harness: TypingHarness) -> None:
    filled = await typing_harness.fill()
    with pytest.raises(errors.Overloaded):
        await typing_harness.type("again\r", "1")
    await typing_harness.program.take(1)
    # The same again, as one who is refused for now would ask: it was not done, so it is done now.
    await typing_harness.type("again\r", "1")
    taken = await typing_harness.program.take(filled)
    assert taken == [engine.TypedText("x" * LONGEST)] * (filled - 1) + [engine.TypedText("again\r")]
    await typing_harness.send_keys("and on")
    assert await typing_harness.program.take(1) == [engine.TypedText("and on")]


async def test_a_full_program_is_still_resized_and_ended(typing_harness: TypingHarness) -> None:
    filled = await typing_harness.fill()
    await typing_harness.resize(90, 30)
    assert (await typing_harness.program.take(filled + 1))[-1] == engine.ResizedScreen(90, 30)
    await typing_harness.fill()
    outlet = RecordingSubscriber()
    typing_harness.runtime.subscribe(SESSION, 0, outlet).start()
    await typing_harness.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    assert (await outlet.wait_for_event(events.RunCompleted)).outcome is events.Outcome.CANCELLED


async def test_a_full_program_is_in_nobody_else_s_way(typing_harness: TypingHarness) -> None:
    await typing_harness.fill()
    await typing_harness.start("sess_2")
    await typing_harness.send_keys("hello", "sess_2")


async def test_who_types_into_a_program_that_has_ended_is_told_so_however_much_was_left(typing_harness: TypingHarness) -> None:
    await typing_harness.fill()
    outlet = RecordingSubscriber()
    typing_harness.runtime.subscribe(SESSION, 0, outlet).start()
    await typing_harness.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    await outlet.wait_for_event(events.RunCompleted)
    with pytest.raises(errors.ProgramEnded):
        await typing_harness.send_keys("x")


async def test_an_inbox_counts_what_waits_and_not_what_was_taken() -> None:
    inbox = TerminalInputQueue()
    half = run_context.MOST_CHARS // 2
    for _ in range(10):
        inbox.put(engine.TypedText("x" * half))
        assert not inbox.is_full
        inbox.put(engine.ResizedScreen(80, 24))
        inbox.put(engine.TypedText("x" * half))
        assert inbox.is_full
        for _ in range(3):
            await inbox.next()
        assert not inbox.is_full


async def test_who_hurries_is_heard_whenever_they_did() -> None:
    inbox = TerminalInputQueue()
    waiting = asyncio.ensure_future(inbox.wait_for_force())
    inbox.force_end()
    async with asyncio.timeout(TIMEOUT):
        await waiting
        await inbox.wait_for_force()
