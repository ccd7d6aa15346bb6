"""What makes an agent work and what stops it: prompt, steer, follow_up, abort, compaction, retry, bash.

The state changes while the command holds its lane; what takes time is left as the `rest`, so that whoever wants to stop a
run, or look at it, need not wait for its end.
"""

import asyncio
from collections.abc import Awaitable

from msgspec import UNSET

from switchtower.core import commands, errors, events
from switchtower.core.session import LastRun
from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.handlers.hall import Hall, Visitor
from switchtower.protocols.pi.handlers.shapes_of import images
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import Ended, Standing

OURSELVES = events.Actor(name="switchtower", via="pi", counts=True)
ABORT_PATIENCE = 10.0
"""How long an abort waits for its run to have ended before it answers all the same."""


class WorkHandlers:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    # Interaction

    def prompt(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> Awaitable[ports.Handled]:
        body = request.body
        assert isinstance(body, messages.Prompt)
        # What a program in a terminal is told is typed, and that is all: no run begins whose end could be waited for.
        is_typed = standing.purpose is events.Purpose.PROGRAM
        if standing.run_id is not None and (is_typed or body.streamingBehavior is not None):
            steers = body.streamingBehavior == "steer" and standing.purpose is events.Purpose.WORK
            return self._queue(request, visitor, standing, body, events.Delivery.STEER if steers else events.Delivery.FOLLOW_UP)
        return self._prompt(request, visitor, standing, body)

    async def _prompt(
        self, request: inbound.Request, visitor: Visitor, standing: Standing, body: messages.Prompt
    ) -> ports.Handled:
        session_id = standing.id
        self._wait_if_busy(session_id)
        self._check_breaker(standing.provider)
        run_id = self._hall.tower.mint("run")
        end = self._hall.roster.run_end(run_id)
        command = commands.SendMessage(
            session_id=session_id,
            actor=visitor.actor,
            text=body.message,
            images=images(body.images),
            run_id=run_id,
            receipts=self._hall.begun(request, visitor, run_id=run_id, at=session_id),
        )
        await self._start(command, session_id, end)
        return ports.Handled(rest=self.run_to_its_end(session_id, run_id, end), is_run=True)

    def steer(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> Awaitable[ports.Handled]:
        assert isinstance(request.body, messages.Steer)
        return self._queue(request, visitor, standing, request.body, events.Delivery.STEER)

    def follow_up(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> Awaitable[ports.Handled]:
        assert isinstance(request.body, messages.FollowUp)
        return self._queue(request, visitor, standing, request.body, events.Delivery.FOLLOW_UP)

    async def _queue(
        self,
        request: inbound.Request,
        visitor: Visitor,
        standing: Standing,
        body: messages.Prompt | messages.Steer | messages.FollowUp,
        delivery: events.Delivery,
    ) -> ports.Handled:
        await self._hall.ask(
            commands.QueueMessage(
                session_id=standing.id,
                actor=visitor.actor,
                text=body.message,
                images=images(body.images),
                delivery=delivery,
                receipts=self._hall.begun(request, visitor, done=True),
            )
        )
        return ports.Handled()

    def abort(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled | Awaitable[ports.Handled]:
        if standing.run_id is None:
            return ports.Handled()  # it has ended by itself
        return self._abort(visitor, standing, standing.run_id)

    async def _abort(self, visitor: Visitor, standing: Standing, run_id: str) -> ports.Handled:
        session_id = standing.id
        end = self._hall.roster.run_end(run_id)
        try:
            await self._hall.ask(commands.CancelRun(session_id=session_id, actor=visitor.actor, run_id=run_id, reason="abort"))
        except errors.NoActiveRun:
            end.cancel()
            return ports.Handled()
        return ports.Handled(rest=_patiently(end))

    # Compaction and retry

    async def compact(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.Compact)
        session_id = standing.id
        self._wait_if_busy(session_id)
        run_id = self._hall.tower.mint("run")
        end = self._hall.roster.run_end(run_id)
        command = commands.CompactContext(
            session_id=session_id,
            actor=visitor.actor,
            instructions=request.body.customInstructions or "",
            run_id=run_id,
            receipts=self._hall.begun(request, visitor, run_id=run_id, at=session_id),
        )
        await self._start(command, session_id, end)
        return ports.Handled(rest=self.compaction_to_its_end(session_id, run_id, end), is_run=True)

    async def compaction_to_its_end(self, session_id: str, run_id: str, end: "asyncio.Future[Ended]") -> ports.Handled:
        handled = await self.run_to_its_end(session_id, run_id, end, cancelled="Compaction cancelled")
        transcript = await self._hall.transcript(session_id)
        return ports.Handled(data=transcript.compaction) if transcript.compaction else handled

    async def abort_compaction(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        if standing.purpose is events.Purpose.COMPACT and standing.run_id is not None:
            return await self._abort(visitor, standing, standing.run_id)
        return await self._stop_step(visitor, standing, "compaction")

    async def abort_retry(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        return await self._stop_step(visitor, standing, "retry")

    async def _stop_step(self, visitor: Visitor, standing: Standing, step: str) -> ports.Handled:
        await self._hall.ask(commands.StopStep(session_id=standing.id, actor=visitor.actor, step=step))
        return ports.Handled()

    # Bash: pi-server 21

    async def bash(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        assert isinstance(request.body, messages.Bash)
        session_id = standing.id
        if standing.policy == "read-only":
            raise ports.Refused("Bash is not allowed: the session's policy is read-only; hint: choose another policy")
        self._hall.bash_breaker.enter(session_id)
        shell_id = self._hall.tower.mint("sh")
        end = self._hall.roster.shell_end(shell_id)
        try:
            await self._hall.ask(
                commands.RunShell(
                    session_id=session_id,
                    actor=visitor.actor,
                    shell_id=shell_id,
                    command=request.body.command,
                    told=not request.body.excludeFromContext,
                    receipts=self._hall.begun(request, visitor, shell_id=shell_id, at=session_id),
                )
            )
        except BaseException:
            end.cancel()
            self._hall.bash_breaker.left(session_id)
            raise
        return ports.Handled(rest=self.shell_to_its_end(session_id, shell_id, end))

    async def shell_to_its_end(
        self, session_id: str, shell_id: str, end: "asyncio.Future[events.ShellFinished]"
    ) -> ports.Handled:
        try:
            finished = await end
        except asyncio.CancelledError:
            # The command's time is over: what it covers ends with it.
            if not self._hall.closing:
                self._hall.bash_breaker.timed_out(session_id)
                cancel = commands.CancelShell(session_id=session_id, actor=OURSELVES, shell_id=shell_id)
                self._hall.tower.submit(cancel, lambda _: None)
            raise
        self._hall.bash_breaker.succeeded(session_id)
        return ports.Handled(data=bash_result(finished))

    async def abort_bash(self, request: inbound.Request, visitor: Visitor, standing: Standing) -> ports.Handled:
        ends = [self._hall.roster.shell_end(shell_id) for shell_id in standing.shells]
        await self._hall.ask(commands.CancelShell(session_id=standing.id, actor=visitor.actor))
        return ports.Handled(rest=_all_patiently(ends)) if ends else ports.Handled()

    # Shared

    def _wait_if_busy(self, session_id: str) -> None:
        standing = self._hall.roster.by_id(session_id)
        if standing is not None and standing.run_id is not None:
            raise ports.SessionBusy(self._hall.roster.idle(session_id))

    async def _start(
        self, command: commands.SendMessage | commands.CompactContext, session_id: str, end: "asyncio.Future[Ended]"
    ) -> None:
        try:
            await self._hall.ask(command)
        except errors.RunInProgress:
            # Another client's message came first; this one waits for its turn.
            end.cancel()
            raise ports.SessionBusy(self._hall.roster.idle(session_id)) from None
        except BaseException:
            end.cancel()
            raise

    async def run_to_its_end(
        self, session_id: str, run_id: str, end: "asyncio.Future[Ended]", *, cancelled: str | None = None
    ) -> ports.Handled:
        try:
            ended = await end
            while ended.following is not None:
                run_id = ended.following
                ended = await self._hall.roster.run_end(run_id)
        except asyncio.CancelledError:
            if not self._hall.closing:  # then the next daemon takes it up
                cancel = commands.CancelRun(
                    session_id=session_id, actor=OURSELVES, run_id=run_id, reason="the command was given up"
                )
                self._hall.tower.submit(cancel, lambda _: None)
            raise
        return run_result(ended.last, cancelled=cancelled)

    def _check_breaker(self, provider: str) -> None:
        if any(breaker.provider == provider and breaker.state == "open" for breaker in self._hall.tower.workshop.breakers()):
            self._hall.prompts_refused[provider] += 1
            raise ports.Refused(strings.circuit_open(provider))


def run_result(last: LastRun, *, cancelled: str | None = None) -> ports.Handled:
    """A run that somebody stopped has done what was wanted of it; one that failed has not."""
    if last.outcome is events.Outcome.SUCCESS:
        return ports.Handled()
    if last.outcome is events.Outcome.CANCELLED and cancelled is None:
        return ports.Handled()
    raise ports.Refused(cancelled if last.outcome is events.Outcome.CANCELLED and cancelled else last.failure or last.summary)


def bash_result(finished: events.ShellFinished) -> dict[str, object]:
    ended = {} if finished.exit_code is None else {"exitCode": finished.exit_code}
    return {**ended, "output": finished.text, "cancelled": finished.cancelled, "truncated": False}


async def _patiently(end: "asyncio.Future[Ended]") -> ports.Handled:
    await asyncio.wait([end], timeout=ABORT_PATIENCE)
    end.cancel()
    return ports.Handled()


async def _all_patiently(ends: "list[asyncio.Future[events.ShellFinished]]") -> ports.Handled:
    await asyncio.wait(ends, timeout=ABORT_PATIENCE)
    for end in ends:
        end.cancel()
    return ports.Handled(data=UNSET)
