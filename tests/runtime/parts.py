"""The parts that the runtime's tests are put together from. Each is real at its port and has one thing to steer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from switchtower.core import codec, commands, errors, events, redact
from switchtower.core.ports import cluster, engine, journal, session_service
from switchtower.runtime.lane_items import RuntimeLimits
from switchtower.runtime.runtime import DEFAULT_LIMITS, Runtime
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.session_driver import OWNER, start_session

SESSION = "sess_1"
TIMEOUT = 60.0
KEEP_ALL = journal.Retention(0, 0)

Work = Callable[[engine.Task, engine.RunContext], Awaitable[engine.RunResult]]
SUCCESS = engine.RunResult(events.Outcome.SUCCESS, "done")


async def finish_at_once(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    return SUCCESS


async def work_until_cancelled(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    await asyncio.Event().wait()
    return SUCCESS


async def ask_once(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    """Goes on where a restart left it, because the question is the same."""
    answer = await context.request_approval(make_question())
    if answer.verdict is None:
        return engine.RunResult(events.Outcome.FAILED, "expired")
    approved = answer.verdict is events.Verdict.APPROVE
    return SUCCESS if approved else engine.RunResult(events.Outcome.DENIED, "denied")


def make_question(call_id: str = "call_1", subject: str = "make test") -> engine.ApprovalQuestion:
    return engine.ApprovalQuestion(
        call_id=call_id, kind="exec", title="Run a command", summary=subject, details={"command": subject}, subject=subject
    )


class Waitable:
    """Something that can be waited on."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify_changed(self) -> None:
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class ScriptedEngine(Waitable):
    """An engine that does what the test says; `tasks` are the runs that it was given."""

    def __init__(self, work: Work = finish_at_once) -> None:
        super().__init__()
        self.work = work
        self.tasks: list[engine.Task] = []

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        self.tasks.append(task)
        self.notify_changed()
        return await self.work(task, context)


class RecordingSubscriber(Waitable):
    """A subscriber that keeps what it is given. `ready` says whether it takes more."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = True
        self.entries: list[journal.Entry] = []
        self.batches = 0
        self.behind: list[str] = []

    def deliver(self, batch: session_service.Batch) -> None:
        assert self.is_ready, "nothing is delivered to who cannot take it"
        self.batches += 1
        self.entries.extend(batch.entries)
        self.notify_changed()

    def on_gap(self, session_id: str) -> None:
        self.behind.append(session_id)
        self.notify_changed()

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.entries]

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries]

    @property
    def told(self) -> list[events.AnyEvent]:
        return [codec.decode(entry.kind, entry.data) for entry in self.entries]

    def list_events(self, event_type: type[events.Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, event_type)]

    async def wait_for_event(self, event_type: type[events.Event], count: int = 1) -> Any:
        """The `count`-th event of this type, once it is there."""
        await self.wait_until(lambda: self.kinds.count(event_type.kind) >= count)
        return self.list_events(event_type)[count - 1]


class ControlledJournal(Waitable):
    """A journal in front of another: appends wait while the gate is shut, and fail as often as told to."""

    def __init__(self, inner: journal.Journal | None = None) -> None:
        super().__init__()
        self.inner = inner or MemoryJournal()
        self.gate = asyncio.Event()
        self.gate.set()
        self.confirmation = asyncio.Event()
        self.confirmation.set()
        """While it is not set, what is stored can be read already, but its writer does not know yet."""
        self.turns_to_confirm: Callable[[], int] = lambda: 0
        self.appends: list[journal.Append] = []
        """What was handed in, stored or not."""
        self.stored = 0
        self.gone = False
        self.failing: list[Exception | None] = []
        """What becomes of the next appends: `None` goes well."""
        self.failing_reads: list[Exception] = []
        self.prunings: list[str | None] = []
        self.failing_prunings: list[Exception] = []
        self.failing_deletions: list[Exception] = []

    async def append(self, append: journal.Append) -> None:
        self.appends.append(append)
        self.notify_changed()
        await self.gate.wait()
        if self.gone:
            raise errors.JournalUnavailable("nothing is stored any more")
        if self.failing and (failure := self.failing.pop(0)) is not None:
            raise failure
        await self.inner.append(append)
        self.stored += 1
        self.notify_changed()
        await self.confirmation.wait()
        for _ in range(self.turns_to_confirm()):
            await asyncio.sleep(0)

    async def read(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        if self.failing_reads:
            raise self.failing_reads.pop(0)
        return await self.inner.read(session_id, after_seq, limit)

    async def read_back(self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True) -> list[journal.Entry]:
        return await self.inner.read_back(session_id, before_seq, limit, streamed=streamed)

    async def prune(
        self,
        retention: journal.Retention,
        now_ms: int,
        session_id: str | None = None,
        *,
        keep_from: Mapping[str, int] = journal.NOTHING_KEPT,
    ) -> int:
        self.prunings.append(session_id)
        self.notify_changed()
        if self.failing_prunings:
            raise self.failing_prunings.pop(0)
        return await self.inner.prune(retention, now_ms, session_id, keep_from=keep_from)

    async def delete(self, session_id: str) -> int:
        if self.failing_deletions:
            raise self.failing_deletions.pop(0)
        return await self.inner.delete(session_id)

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def load(self, session_id: str) -> journal.StoredSession | None:
        return await self.inner.load(session_id)

    async def find_gap(self, session_id: str, after_seq: int) -> int | None:
        return await self.inner.find_gap(session_id, after_seq)

    async def find_receipt(self, scope: str, key: str, now_ms: int) -> journal.Receipt | None:
        return await self.inner.find_receipt(scope, key, now_ms)

    async def list_receipts(self, scope: str, limit: int, now_ms: int) -> list[journal.Receipt]:
        return await self.inner.list_receipts(scope, limit, now_ms)

    async def list_cards(
        self,
        *,
        limit: int,
        states: Sequence[events.SessionState] = (),
        session_id: str | None = None,
        loaded: bool = False,
    ) -> list[journal.Card]:
        return await self.inner.list_cards(limit=limit, states=states, session_id=session_id, loaded=loaded)


class RuntimeHarness:
    """One runtime over one journal. Opening a second one over the same journal is a restart."""

    def __init__(
        self,
        work: Work = finish_at_once,
        journal_: journal.Journal | None = None,
        *,
        approval_timeout_ms: int = 3_600_000,
        receipt_ttl_ms: int = 3_600_000,
        retention: journal.Retention = KEEP_ALL,
        clock: Callable[[], int] | None = None,
        check_criterion: Callable[..., Awaitable[events.CriterionResult]] | None = None,
        limits: RuntimeLimits = DEFAULT_LIMITS,
        homes_: cluster.SessionOwnership | None = None,
    ) -> None:
        self.engine = ScriptedEngine(work)
        self.journal = ControlledJournal(journal_)
        self.workshop = workshop = StubHostServices(check_criterion) if check_criterion else StubHostServices()
        self.killed = workshop.killed
        self.runtime = Runtime(
            self.journal,
            {"agent": self.engine},
            workshop,
            redactor=redact.Redactor(),
            approval_timeout_ms=approval_timeout_ms,
            receipt_ttl_ms=receipt_ttl_ms,
            retention=retention,
            limits=limits,
            ownership=homes_,
            **({"clock": clock} if clock else {}),
        )

    async def open(self) -> None:
        await self.journal.open()
        await self.runtime.start()

    async def close(self) -> None:
        self.journal.gate.set()
        await self.runtime.stop()
        await self.journal.close()

    async def crash(self) -> None:
        """From this moment on nothing is stored, whatever the parts of this house still do."""
        self.journal.gone = True
        await self.runtime.stop()

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        """The answer, or the refusal raised."""
        async with asyncio.timeout(TIMEOUT):
            return await self.start_submit(command)

    def start_submit(self, command: commands.AnyCommand) -> "asyncio.Future[session_service.SubmitOutcome]":
        answer: asyncio.Future[session_service.SubmitOutcome] = asyncio.get_running_loop().create_future()

        def done(outcome: session_service.SubmitOutcome | errors.CoreError) -> None:
            assert not answer.done() or answer.cancelled(), "an asker is answered once"
            if isinstance(outcome, errors.CoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self.runtime.submit(command, done)
        return answer

    async def attach_subscriber(
        self, session_id: str = SESSION, after_seq: int = 0, outlet: RecordingSubscriber | None = None
    ) -> RecordingSubscriber:
        outlet = outlet or RecordingSubscriber()
        (await self.open_attachment(outlet, session_id, after_seq)).subscription.start()
        return outlet

    async def open_attachment(
        self, outlet: RecordingSubscriber, session_id: str = SESSION, after_seq: int = 0
    ) -> session_service.Attachment:
        answer: asyncio.Future[session_service.Attachment] = asyncio.get_running_loop().create_future()

        def done(attachment: session_service.Attachment | errors.CoreError) -> None:
            if isinstance(attachment, errors.CoreError):
                answer.set_exception(attachment)
            else:
                answer.set_result(attachment)

        self.runtime.attach(session_id, after_seq, outlet, admit=lambda session: None, done=done)
        async with asyncio.timeout(TIMEOUT):
            return await answer

    async def start_session(self, session_id: str = SESSION) -> RecordingSubscriber:
        """Starts a session and follows it."""
        await self.ask(start_session(session_id))
        outlet = await self.attach_subscriber(session_id)
        await outlet.wait_for_event(events.SessionStarted)
        return outlet

    async def send(self, text: str = "hello", session_id: str = SESSION, **fields: Any) -> str:
        return str((await self.ask(send(text, session_id, **fields)))["run_id"])

    async def list_stored(self, session_id: str = SESSION) -> list[journal.Entry]:
        return await self.journal.inner.read(session_id, 0, 1_000_000)


class MakeRuntime(Protocol):
    async def __call__(self, work: Work = ..., journal_: journal.Journal | None = None, **options: Any) -> RuntimeHarness: ...


def send(text: str = "hello", session_id: str = SESSION, **fields: Any) -> commands.SendMessage:
    return commands.SendMessage(session_id=session_id, actor=OWNER, text=text, **fields)


def decide(
    approval_id: str, verdict: events.Verdict = events.Verdict.APPROVE, session_id: str = SESSION
) -> commands.DecideApproval:
    return commands.DecideApproval(session_id=session_id, actor=OWNER, approval_id=approval_id, verdict=verdict)


def cancel(session_id: str = SESSION) -> commands.CancelRun:
    return commands.CancelRun(session_id=session_id, actor=OWNER)
