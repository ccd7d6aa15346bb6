"""What is typed into a program: handed over in the order it was accepted, and refused for now while the program takes nothing."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from tests.runtime.parts import KEEP_ALL, PATIENCE, SESSION, Outlet, Scripted, SteeredJournal

from switchtower.core import commands, engine, errors, events, redact, terminals, tower
from switchtower.runtime import terminal_inbox
from switchtower.runtime.runtime import Runtime
from switchtower.runtime.terminal_inbox import TerminalInbox
from switchtower.testing.sessions import OWNER
from switchtower.testing.workshop import BareWorkshop

LONGEST = terminals.MOST_TYPED


class Program(Scripted):
    """A program in a terminal that takes only what it is told to take."""

    def __init__(self) -> None:
        super().__init__(self.take_as_told)
        self.taken: list[engine.Typed | engine.Resized] = []
        self._allowed = asyncio.Semaphore(0)

    async def take_as_told(self, task: engine.Task, desk: engine.Desk) -> engine.Result:
        while True:
            await self._allowed.acquire()
            self.taken.append(await desk.typed())
            self.changed()

    async def take(self, count: int) -> list[engine.Typed | engine.Resized]:
        """The next so many."""
        wanted = len(self.taken) + count
        for _ in range(count):
            self._allowed.release()
        await self.until(lambda: len(self.taken) == wanted)
        return self.taken[-count:]


class Terminal:
    """A runtime with one such program."""

    def __init__(self) -> None:
        self.program = Program()
        self.journal = SteeredJournal()
        self.runtime = Runtime(
            self.journal,
            {"pty": self.program},
            BareWorkshop(),
            redactor=redact.Redactor(),
            approval_timeout_ms=3_600_000,
            receipt_ttl_ms=3_600_000,
            retention=KEEP_ALL,
        )

    async def ask(self, command: commands.AnyCommand) -> tower.Outcome:
        async with asyncio.timeout(PATIENCE):
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
            program=terminals.program(["cat"]),
        )
        await self.ask(start)

    async def type(self, text: str, input_id: str, session_id: str = SESSION) -> tower.Outcome:
        return await self.ask(typed(text, input_id, session_id))

    async def keys(self, text: str, session_id: str = SESSION) -> None:
        await self.ask(commands.TypeKeys(session_id=session_id, actor=OWNER, text=text))

    async def resize(self, cols: int, rows: int) -> None:
        await self.ask(commands.ResizeTerminal(session_id=SESSION, actor=OWNER, cols=cols, rows=rows))

    async def fill(self) -> int:
        """Types until no more is taken; how often that went well."""
        for number in range(100):
            try:
                await self.keys("x" * LONGEST)
            except errors.Overloaded:
                return number
        raise AssertionError("there is no end to it")


def typed(text: str, input_id: str, session_id: str = SESSION) -> commands.TypeInput:
    return commands.TypeInput(
        session_id=session_id,
        actor=OWNER,
        idempotency_key=f"input:{input_id}",
        input_id=input_id,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    made = Terminal()
    await made.journal.open()
    await made.runtime.start()
    await made.start()
    yield made
    made.journal.gate.set()
    await made.runtime.stop()
    await made.journal.close()


async def test_typing_keys_and_sizes_are_taken_in_the_order_they_were_accepted(terminal: Terminal) -> None:
    await terminal.type("one\r", "1")
    await terminal.keys("two")
    await terminal.resize(90, 30)
    await terminal.type("three\r", "3")
    assert await terminal.program.take(4) == [
        engine.Typed("one\r"),
        engine.Typed("two"),
        engine.Resized(90, 30),
        engine.Typed("three\r"),
    ]


async def test_what_many_type_at_once_is_taken_in_the_order_of_the_journal(terminal: Terminal) -> None:
    await asyncio.gather(*(terminal.type(f"{number};", str(number)) for number in range(200)))
    taken = await terminal.program.take(200)
    entries = await terminal.journal.inner.read(SESSION, 0, 1_000)
    stored = [entry.data for entry in entries if entry.kind == events.TerminalTyped.kind]
    assert len(stored) == 200
    for typed_, data in zip(taken, stored, strict=True):
        assert isinstance(typed_, engine.Typed)
        assert f'"{typed_.text}"'.encode() in data


async def test_nothing_is_typed_before_it_is_stored(terminal: Terminal) -> None:
    terminal.journal.gate.clear()
    asked = asyncio.ensure_future(terminal.type("one\r", "1"))
    taking = asyncio.ensure_future(terminal.program.take(1))
    appended = len(terminal.journal.appends)
    await terminal.journal.until(lambda: len(terminal.journal.appends) > appended)
    assert terminal.program.taken == []
    terminal.journal.gate.set()
    await asked
    assert await taking == [engine.Typed("one\r")]


async def test_the_same_input_twice_is_taken_once(terminal: Terminal) -> None:
    first = await terminal.type("once\r", "1")
    assert await terminal.type("once\r", "1") == {**first, "replayed": True}
    await terminal.keys("then")
    assert await terminal.program.take(2) == [engine.Typed("once\r"), engine.Typed("then")]


async def test_a_program_that_does_not_take_what_is_typed_makes_more_of_it_refused_for_now(terminal: Terminal) -> None:
    assert await terminal.fill() == terminal_inbox.MOST_CHARS // LONGEST
    stored = len(await terminal.journal.inner.read(SESSION, 0, 1_000))
    more: tuple[commands.AnyCommand, ...] = (
        typed("more", "1"),
        commands.TypeKeys(session_id=SESSION, actor=OWNER, text="m"),
        commands.SendMessage(session_id=SESSION, actor=OWNER, text="m"),
        commands.QueueMessage(session_id=SESSION, actor=OWNER, text="m", delivery=events.Delivery.STEER),
    )
    for command in more:
        with pytest.raises(errors.Overloaded) as refusal:
            await terminal.ask(command)
        assert refusal.value.retryable
    assert len(await terminal.journal.inner.read(SESSION, 0, 1_000)) == stored, "what is refused has not happened"


async def test_it_goes_on_when_the_program_takes_again_and_nothing_accepted_is_missing(terminal: Terminal) -> None:
    filled = await terminal.fill()
    with pytest.raises(errors.Overloaded):
        await terminal.type("again\r", "1")
    await terminal.program.take(1)
    # The same again, as one who is refused for now would ask: it was not done, so it is done now.
    await terminal.type("again\r", "1")
    taken = await terminal.program.take(filled)
    assert taken == [engine.Typed("x" * LONGEST)] * (filled - 1) + [engine.Typed("again\r")]
    await terminal.keys("and on")
    assert await terminal.program.take(1) == [engine.Typed("and on")]


async def test_a_full_program_is_still_resized_and_ended(terminal: Terminal) -> None:
    filled = await terminal.fill()
    await terminal.resize(90, 30)
    assert (await terminal.program.take(filled + 1))[-1] == engine.Resized(90, 30)
    await terminal.fill()
    outlet = Outlet()
    terminal.runtime.subscribe(SESSION, 0, outlet).start()
    await terminal.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    assert (await outlet.next_of(events.RunCompleted)).outcome is events.Outcome.CANCELLED


async def test_a_full_program_is_in_nobody_else_s_way(terminal: Terminal) -> None:
    await terminal.fill()
    await terminal.start("sess_2")
    await terminal.keys("hello", "sess_2")


async def test_who_types_into_a_program_that_has_ended_is_told_so_however_much_was_left(terminal: Terminal) -> None:
    await terminal.fill()
    outlet = Outlet()
    terminal.runtime.subscribe(SESSION, 0, outlet).start()
    await terminal.ask(commands.CancelRun(session_id=SESSION, actor=OWNER))
    await outlet.next_of(events.RunCompleted)
    with pytest.raises(errors.ProgramEnded):
        await terminal.keys("x")


async def test_an_inbox_counts_what_waits_and_not_what_was_taken() -> None:
    inbox = TerminalInbox()
    half = terminal_inbox.MOST_CHARS // 2
    for _ in range(10):
        inbox.take(engine.Typed("x" * half))
        assert not inbox.is_full
        inbox.take(engine.Resized(80, 24))
        inbox.take(engine.Typed("x" * half))
        assert inbox.is_full
        for _ in range(3):
            await inbox.next()
        assert not inbox.is_full


async def test_who_hurries_is_heard_whenever_they_did() -> None:
    inbox = TerminalInbox()
    waiting = asyncio.ensure_future(inbox.hurried())
    inbox.hurry()
    async with asyncio.timeout(PATIENCE):
        await waiting
        await inbox.hurried()
