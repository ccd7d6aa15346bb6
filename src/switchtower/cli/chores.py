"""Housekeeping of a session, such as an undo: a run without a model's answer, whose result is one line on stdout."""

from collections.abc import Awaitable, Callable

from switchtower.cli import console, output, signals, through
from switchtower.cli.screens import ProgressOutput
from switchtower.cli.view import EventPrinter
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages


class MaintenanceRun:
    """`result_phase` is the status that tells what came of it."""

    def __init__(self, result_phase: str) -> None:
        self._result_phase = result_phase
        self._printer = EventPrinter(ProgressOutput(answers=False))
        self.result: str | None = None

    async def run(self, client: DaemonClient, session_id: str, start: Callable[[], Awaitable[str]]) -> int:
        """The exit code. Ctrl-C cancels the chore."""
        with signals.catch_interrupts() as interrupted:
            head = (await client.subscribe(session_id).attach()).replay.toSeq
            # Not interruptible: it may have been accepted, and only the run's id lets us cancel it.
            run_id = await start()
            session = client.subscribe(session_id, last_seen_seq=head, on_lost=through.print_connection_lost)
            ended = await through.watch_run(
                client, session, run_id, show=self._on_event, decide=lambda _: None, interrupted=interrupted
            )
        if ended.complete.outcome == "success":
            self.result = self.result or ended.complete.summary
            output.write_line(console.escape_unprintable(self.result))
        return ended.complete.headless.exitCodeHint

    def _on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Status(_, self._result_phase, detail):
                self.result = detail or None
            case messages.RunComplete(run_id, "success"):
                self._printer.print_usage(run_id)
            case _:
                self._printer.print_event(event)
