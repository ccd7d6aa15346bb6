"""Housekeeping of a session, such as an undo: a run without a model's answer, whose result is one line on stdout."""

from collections.abc import Awaitable, Callable

from switchtower.cli import console, output, signals, through
from switchtower.cli.screens import Progress
from switchtower.cli.view import View
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import messages


class Chore:
    """`result_phase` is the status that tells what came of it."""

    def __init__(self, result_phase: str) -> None:
        self._result_phase = result_phase
        self._view = View(Progress(answers=False))
        self.result: str | None = None

    async def see_through(self, client: Client, session_id: str, start: Callable[[], Awaitable[str]]) -> int:
        """The exit code. Ctrl-C cancels the chore."""
        with signals.interruption() as interrupted:
            head = (await client.session(session_id).attach()).replay.toSeq
            # Not interruptible: it may have been accepted, and only the run's id lets us cancel it.
            run_id = await start()
            session = client.session(session_id, last_seen_seq=head, on_lost=through.say_lost)
            ended = await through.see_through(
                client, session, run_id, show=self._show, decide=lambda _: None, interrupted=interrupted
            )
        if ended.complete.outcome == "success":
            self.result = self.result or ended.complete.summary
            output.line(console.printable(self.result))
        return ended.complete.headless.exitCodeHint

    def _show(self, event: Event) -> None:
        match event.payload:
            case messages.Status(_, self._result_phase, detail):
                self.result = detail or None
            case messages.RunComplete(run_id, "success"):
                self._view.show_usage(run_id)
            case _:
                self._view.show(event)
