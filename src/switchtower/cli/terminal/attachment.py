"""Attaches this terminal or pipe to a session's program: its output appears here and input is sent to it, until the program ends
or the user detaches. The terminal is raw for that time and always restored.

Nothing is printed in between, because the program owns the screen; messages are printed after the terminal is restored.
"""

import asyncio
import codecs
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any, NamedTuple

from switchtower.cli import console, output, signals
from switchtower.cli.terminal import raw_mode
from switchtower.cli.terminal.raw_mode import HOLD_SECONDS, DetachKeys
from switchtower.client import errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

CANCEL_TIMEOUT = 15.0
"""Seconds that a cancelled program may take to end."""
END_OF_INPUT = "\x04"
"""The character that a terminal treats as the end of input at the start of a line."""
_INTERRUPT = b"\x03"
_SCREEN_PHASE, _OUTPUT_PHASE = "Screen", "Tool output"


class AttachOptions(NamedTuple):
    """`is_ours` means that this command started the program, so the program's input ends with ours; without a user at a terminal
    the program ends too."""

    session_id: str
    after_seq: int = 0
    answered_seq: int = 0
    """Terminal queries up to this seq have been answered by another terminal."""
    read_only: bool = False
    is_ours: bool = False
    on_stderr: bool = False
    """True when the output goes to stderr, because stdout carries something else."""


class DetachResult(NamedTuple):
    """The result. If `has_ended` is false, the program continues without this client. How it ended is not always known."""

    has_ended: bool
    complete: messages.RunComplete | None = None
    exit_code: int | None = None
    notices: tuple[str, ...] = ()
    interrupted: bool = False


class InputDropped(errors.ClientError):
    """Some input was lost. This is an error, because a user who pipes data would not notice that a part is missing."""

    def __init__(self) -> None:
        super().__init__(
            "the program does not read its input as fast as it came, so some of it was dropped",
            hint="let the program read a file instead of stdin",
        )


class TerminalAttachment:
    def __init__(self, client: DaemonClient, options: AttachOptions) -> None:
        self._client = client
        self._options = options
        self._session = client.subscribe(options.session_id, last_seen_seq=options.after_seq, on_lost=self._on_lost)
        self._modes = raw_mode.TerminalModes()
        self._at_terminal = raw_mode.has_terminal()
        self._wants_screen = options.after_seq > 0
        self._notices: dict[str, None] = {}
        self._complete: messages.RunComplete | None = None

    async def run(self) -> DetachResult:
        raw = raw_mode.RawTerminal() if self._at_terminal else None
        with ExitStack() as stack:
            stack.callback(self._reset_terminal)
            if raw is not None:
                stack.enter_context(raw)
            interrupted = stack.enter_context(signals.catch_interrupts(raw.restore if raw is not None else lambda: None))
            has_ended = await self._wait_for_detach(interrupted)
        exit_code = await self._fetch_exit_code() if has_ended else None
        return DetachResult(has_ended, self._complete, exit_code, tuple(self._notices), interrupted.is_set())

    async def _wait_for_detach(self, interrupted: asyncio.Event) -> bool:
        """Returns whether the program has ended; otherwise the user has detached or this process received a stop signal."""
        showing = asyncio.create_task(self._show_output())
        typing = asyncio.create_task(self._forward_keys())
        sizing = asyncio.create_task(self._sync_window_size())
        asked = asyncio.create_task(interrupted.wait())
        tasks: set[asyncio.Task[Any]] = {showing, typing, sizing, asked}
        try:
            while True:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if showing.done():
                    showing.result()
                    return True
                if asked.done():
                    return not self._at_terminal and await self._end_own_program(showing)
                for done in tasks & {typing, sizing}:
                    if done.done():
                        tasks.discard(done)
                        if done.result():
                            return False
        except (output.OutputClosed, InputDropped):
            if self._options.is_ours:
                await self._cancel()
            raise
        finally:
            for task in (showing, typing, sizing, asked):
                task.cancel()

    async def _show_output(self) -> None:
        async with aclosing(self._session.stream_events()) as events:
            async for event in events:
                if self._handle_event(event):
                    return

    def _handle_event(self, event: PushEvent) -> bool:
        match event.payload:
            case messages.Status("tool", phase, str(text)) if phase == _OUTPUT_PHASE or (
                phase == _SCREEN_PHASE and self._wants_screen
            ):
                self._wants_screen = False
                if event.seq <= self._options.answered_seq:
                    text = raw_mode.strip_queries(text)
                self._modes.on_output(text)
                self._write(text)
            case messages.Failure("NOT_STARTED", message):
                self._notices[message] = None
            case messages.Warn("INPUT_DROPPED", message):
                if self._options.is_ours and not self._at_terminal:
                    raise InputDropped
                self._notices[message] = None
            case messages.Warn("EVENT_GAP"):
                self._wants_screen = True
                self._notices["some of the output was not kept until it could be shown"] = None
            case messages.SessionSnapshot(_, None) if self._wants_screen:
                return True  # the program ended in the part that was not kept
            case messages.RunComplete():
                self._complete = event.payload
                return True
        return False

    def _write(self, text: str) -> None:
        if self._options.on_stderr:
            console.write_program_output(text)
        else:
            output.write_piece(text)

    async def _forward_keys(self) -> bool:
        """Returns whether the user has detached. Input is sent in order, and no more is read than has been forwarded."""
        if self._options.read_only and not self._at_terminal:
            return False
        keys = DetachKeys(extra_keys=_INTERRUPT if self._options.read_only else b"") if self._at_terminal else None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        at_line_start = True
        while True:
            data = await raw_mode.read_stdin(HOLD_SECONDS if keys is not None and keys.is_holding else None)
            if data == b"":
                break
            left = False
            if keys is not None:
                data, left = (keys.release_held(), False) if data is None else keys.feed(data)
            if not self._options.read_only and (text := decoder.decode(data or b"")):
                at_line_start = text.endswith(("\n", "\r"))
                if not await self._send_keys(text):
                    return False
            if left:
                return True
        if self._at_terminal:
            return True  # the terminal was closed
        rest = decoder.decode(b"", final=True)
        if self._options.is_ours:
            # In the middle of a line, the first one only submits the partial line.
            rest += END_OF_INPUT if at_line_start and not rest else 2 * END_OF_INPUT
        if rest:
            await self._send_keys(rest)
        return False

    async def _send_keys(self, text: str) -> bool:
        """Returns False when the program no longer accepts input."""
        try:
            await self._client.type_keys(self._options.session_id, text)
        except errors.RequestFailed as problem:
            if problem.code == "NO_ACTIVE_RUN":
                return False
            if not (self._at_terminal and problem.retryable):
                raise
            self._notices[f"some of what was typed did not arrive: {problem.message}"] = None
        except errors.ConnectionLost as problem:
            if not self._at_terminal:
                raise
            self._notices[f"some of what was typed may not have arrived: {problem.message}"] = None
        return True

    async def _sync_window_size(self) -> bool:
        """Keeps the program's window the same size as this terminal's, from the start."""
        if self._options.read_only or raw_mode.get_window_size() is None:
            return False
        with _watch_window_size() as changed:
            while True:
                changed.clear()
                if (size := raw_mode.get_window_size()) is not None:
                    try:
                        await self._client.resize_terminal(self._options.session_id, *size)
                    except errors.RequestFailed as problem:
                        if problem.code == "NO_ACTIVE_RUN":
                            return False
                        self._notices[f"the program was not told the window's size: {problem.message}"] = None
                await changed.wait()

    async def _end_own_program(self, showing: "asyncio.Task[None]") -> bool:
        """Ends a program that this command started: without a terminal no user can attach again, so nothing may keep running."""
        if not self._options.is_ours:
            return False
        await self._cancel()
        await asyncio.wait({showing}, timeout=CANCEL_TIMEOUT)
        if not showing.done():
            raise errors.ClientError(
                "the program was asked to stop but has not ended", hint=f"see `tower attach {self._options.session_id}`"
            )
        showing.result()
        return True

    async def _cancel(self) -> None:
        try:
            await self._client.cancel_run(self._options.session_id)
        except errors.RequestFailed as problem:
            if problem.code != "NO_ACTIVE_RUN":  # the program has ended in the meantime
                raise

    async def _fetch_exit_code(self) -> int | None:
        about = await self._client.get_session(self._options.session_id)
        return about.terminal.exitCode if about.terminal is not None else None

    def _reset_terminal(self) -> None:
        if os.isatty(2 if self._options.on_stderr else 1) and (undo := self._modes.build_reset()):
            self._write(undo)

    def _on_lost(self) -> None:
        self._notices["the connection to the daemon was lost in between"] = None
        if not self._at_terminal:
            console.print_line("connection lost; waiting for the daemon", "yellow")


@contextmanager
def _watch_window_size() -> Iterator[asyncio.Event]:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        yield changed
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def print_detach_result(result: DetachResult, session_id: str) -> int:
    """Prints the pending messages after the terminal is restored. Returns the exit code: the program's, if it has one."""
    for notice in result.notices:
        console.print_line(f"tower: {notice}", "yellow")
    if not result.has_ended:
        console.print_line(f"left it running; come back with `tower attach {session_id}`", "dim")
        return console.ExitStatus.CANCELLED if result.interrupted else console.ExitStatus.OK
    complete = result.complete
    if complete is not None and (result.exit_code is None or complete.outcome in ("cancelled", "denied")):
        console.print_line(f"= {complete.outcome}: {' '.join(complete.summary.split())}", "yellow")
    if result.interrupted:
        return console.ExitStatus.CANCELLED
    if result.exit_code is not None:
        return result.exit_code & 0xFF
    return complete.headless.exitCodeHint if complete is not None else console.ExitStatus.FAILED
