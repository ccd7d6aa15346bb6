"""The users' own shell commands: each starts because a `ShellStarted` was committed, and ends with a `ShellFinished` whatever
happens to it. They run beside the agent and are not part of a run.
"""

import asyncio
import logging

from switchtower.core import commands, errors, events
from switchtower.core.ports import host_services
from switchtower.runtime.lane import Lane, LaneServices

log = logging.getLogger(__name__)

NOT_RUN = 126
"""The exit code that shells use for a command that cannot be run."""


class ShellRunner:
    def __init__(self, services: LaneServices, host_services_: host_services.HostServices) -> None:
        self._services = services
        self._host_services = host_services_
        self._running: dict[str, asyncio.Task[commands.FinishShell]] = {}
        self._of_sessions: dict[str, set[str]] = {}
        self._supervisors: set[asyncio.Task[None]] = set()
        self._stopping = False

    def apply(self, lane: Lane, event: events.AnyEvent) -> None:
        if isinstance(event, events.ShellStarted) and not self._stopping:
            loop = asyncio.get_running_loop()
            doing = self._running[event.shell_id] = loop.create_task(self._run(lane, event), name=f"shell {event.shell_id}")
            self._of_sessions.setdefault(lane.session_id, set()).add(event.shell_id)
            keeper = loop.create_task(self._supervise(lane, event, doing))
            self._supervisors.add(keeper)
            keeper.add_done_callback(self._supervisors.discard)
        elif isinstance(event, events.ShellCancelRequested) and (task := self._running.get(event.shell_id)):
            task.cancel()

    def abandon(self, lane: Lane) -> None:
        """Another node owns the session now: its commands end here, and their `ShellFinished` is refused."""
        if lane.session_id in self._of_sessions:
            for shell_id in self._of_sessions[lane.session_id]:
                self._running[shell_id].cancel()

    async def stop(self) -> None:
        self._stopping = True
        for task in self._running.values():
            task.cancel()
        if self._supervisors:
            await asyncio.wait(list(self._supervisors))

    async def _run(self, lane: Lane, started: events.ShellStarted) -> commands.FinishShell:
        session = lane.session
        assert session is not None, "a shell starts in its session"
        try:
            finished = await self._host_services.run_shell(started.command, session.workspace, session.sandbox, started.shell_id)
        except errors.CoreError as refusal:
            return _make_finish(lane, started, NOT_RUN, refusal.message)
        except Exception:
            log.exception("the command %s failed", started.shell_id)
            return _make_finish(lane, started, NOT_RUN, "the command failed inside the daemon; its log says why")
        return _make_finish(lane, started, finished.exit_code, finished.text)

    async def _supervise(self, lane: Lane, started: events.ShellStarted, doing: "asyncio.Task[commands.FinishShell]") -> None:
        """Waits for the end of the command; the work may be cancelled at any moment, even before it has started."""
        await asyncio.wait([doing])
        self._running.pop(started.shell_id, None)
        self._of_sessions[lane.session_id].discard(started.shell_id)
        if not self._of_sessions[lane.session_id]:
            del self._of_sessions[lane.session_id]
        finish = _make_finish(lane, started, None, "", cancelled=True) if doing.cancelled() else doing.result()
        while True:
            try:
                await lane.ask(finish)
                return
            except errors.JournalUnavailable:
                if self._stopping:
                    return  # the command stays open in the journal; the next start closes it
            except errors.Fenced:
                return  # the new owner reports it
            except errors.CoreError as refusal:
                log.error("the end of %s could not be stored", started.shell_id, exc_info=refusal)
                return
            await asyncio.sleep(self._services.limits.journal_retry)


def _make_finish(
    lane: Lane, started: events.ShellStarted, exit_code: int | None, text: str, *, cancelled: bool = False
) -> commands.FinishShell:
    return commands.FinishShell(
        session_id=lane.session_id, shell_id=started.shell_id, exit_code=exit_code, text=text, cancelled=cancelled
    )
