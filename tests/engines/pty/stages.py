"""A runtime with the terminal engine, and programs in it as a client sees them."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.runtime.parts import KEEP_ALL, RecordingSubscriber

from switchtower.core import commands, errors, events, redact
from switchtower.core.ports import journal, session_service
from switchtower.core.rules import user_actions
from switchtower.engines.pty.engine import TerminalEngine
from switchtower.runtime.runtime import Runtime
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.session_driver import OWNER

SESSION = "sess_1"
TIMEOUT = 60
NO_STARTUP_FILES = ("bash", "--norc", "--noprofile", "-c")


class PtyHarness:
    """One runtime with the terminal engine. A second one over the same journal is a restart."""

    def __init__(self, folder: Path, journal_: journal.Journal | None = None, *, approval_timeout_ms: int = 3_600_000) -> None:
        self.folder = folder
        self.journal = journal_ or MemoryJournal()
        self.runtime = Runtime(
            self.journal,
            {"pty": TerminalEngine(host_socket="/run/hostd.sock", prompts_file=folder / "none.toml")},
            StubHostServices(),
            redactor=redact.Redactor(),
            approval_timeout_ms=approval_timeout_ms,
            receipt_ttl_ms=3_600_000,
            retention=KEEP_ALL,
        )

    async def open(self) -> None:
        await self.journal.open()
        await self.runtime.start()

    async def run(
        self, command: str | list[str], session_id: str = SESSION, *, tool: str = "generic", **options: Any
    ) -> "PtySubscriber":
        """Starts a program and follows it. A line runs in a shell of which nobody has configured anything."""
        argv = [*NO_STARTUP_FILES, command] if isinstance(command, str) else command
        start = commands.StartSession(
            session_id=session_id,
            actor=OWNER,
            engine="pty",
            mode="interactive",
            provider="terminal",
            sandbox="local",
            workspace=events.Workspace(root=str(self.folder)),
            attach_token_sha256="0" * 64,
            program=user_actions.make_program(argv, tool=tool, **options),
        )
        await self.ask(start)
        return self.watch(session_id)

    def watch(self, session_id: str = SESSION) -> "PtySubscriber":
        outlet = PtySubscriber(self, session_id)

        def attached(attachment: session_service.Attachment | errors.CoreError) -> None:
            assert isinstance(attachment, session_service.Attachment)
            attachment.subscription.start()

        self.runtime.attach(session_id, 0, outlet, admit=lambda session: None, done=attached)
        return outlet

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        async with asyncio.timeout(TIMEOUT):
            return await self.runtime.ask(command)


class PtySubscriber(RecordingSubscriber):
    """A program as somebody sees it who follows its session."""

    def __init__(self, pty_harness: PtyHarness, session_id: str) -> None:
        super().__init__()
        self._harness = pty_harness
        self._session_id = session_id

    @property
    def output(self) -> str:
        return "".join(event.text for event in self.list_events(events.ToolProgressed))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_text(self, text: str) -> None:
        await self.wait_until(lambda: text in self.output)

    async def end(self) -> events.RunCompleted:
        completed: events.RunCompleted = await self.wait_for_event(events.RunCompleted)
        return completed

    async def type(self, text: str, input_id: str = "1") -> session_service.SubmitOutcome:
        typed = commands.TypeInput(
            session_id=self._session_id,
            actor=OWNER,
            idempotency_key=f"input:{input_id}",
            input_id=input_id,
            text=text,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
        )
        return await self._harness.ask(typed)

    async def send_keys(self, text: str) -> None:
        await self._harness.ask(commands.TypeKeys(session_id=self._session_id, actor=OWNER, text=text))

    async def resize(self, cols: int, rows: int) -> None:
        await self._harness.ask(commands.ResizeTerminal(session_id=self._session_id, actor=OWNER, cols=cols, rows=rows))

    async def cancel(self, *, force: bool = False) -> None:
        await self._harness.ask(commands.CancelRun(session_id=self._session_id, actor=OWNER, force=force))

    async def decide(self, approval_id: str, verdict: events.Verdict = events.Verdict.APPROVE) -> None:
        await self._harness.ask(
            commands.DecideApproval(session_id=self._session_id, actor=OWNER, approval_id=approval_id, verdict=verdict)
        )

    async def wait_for_question(self, count: int = 1) -> events.Approval:
        """The question, once it is also known that the program waits for its answer."""
        requested: events.ApprovalRequested = await self.wait_for_event(events.ApprovalRequested, count)
        await self.wait_until(
            lambda: any(shown.approval_id == requested.approval.id for shown in self.list_events(events.PromptShown))
        )
        return requested.approval


class MakePtyHarness(Protocol):
    async def __call__(self, journal_: journal.Journal | None = None, **options: Any) -> PtyHarness: ...
