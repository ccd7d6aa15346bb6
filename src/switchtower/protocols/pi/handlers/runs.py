"""Handlers that start and stop an agent's work (prompt, steer, follow_up, abort, compaction, retry, bash), and the one that takes
a client's answer to a question of the agent or of an extension (pi-server 18.2): an approval, or a dialog.

The state changes while the command holds its lane; work that takes time is left as the `rest`, so that a client that wants to
stop a run, or to read its state, need not wait for its end.
"""

import asyncio
from collections.abc import Awaitable

from msgspec import UNSET

from switchtower.core import commands, errors, events
from switchtower.core.session import LastRun
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi import inbound, messages
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.errors import PiCommandError, SessionBusy
from switchtower.protocols.pi.handlers.context import Client, HandlerContext
from switchtower.protocols.pi.sessions.loaded import LoadedSession, RunEnd


def convert_images(sent: list[messages.Image] | None) -> tuple[events.Image, ...]:
    return tuple(events.Image(image.mimeType, image.data) for image in sent or ())


SERVER_ACTOR = events.Actor(name="switchtower", via="pi", counts=True)
ABORT_TIMEOUT = 10.0
"""Seconds that an abort waits for the end of its run before it answers anyway."""


class RunHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    # Interaction

    def prompt(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> Awaitable[ports.HandlerResult]:
        body = request.body
        assert isinstance(body, messages.Prompt)
        # A prompt to a program in a terminal is only typed: no run starts whose end could be awaited.
        is_typed = loaded.purpose is events.Purpose.PROGRAM
        if loaded.run_id is not None and (is_typed or body.streamingBehavior is not None):
            steers = body.streamingBehavior == "steer" and loaded.purpose is events.Purpose.WORK
            return self._queue(request, client, loaded, body, events.Delivery.STEER if steers else events.Delivery.FOLLOW_UP)
        return self._prompt(request, client, loaded, body)

    async def _prompt(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession, body: messages.Prompt
    ) -> ports.HandlerResult:
        session_id = loaded.id
        self._wait_if_busy(session_id)
        self._check_breaker(loaded.provider)
        run_id = self._context.service.mint("run")
        end = self._context.sessions.wait_for_run_end(run_id)
        command = commands.SendMessage(
            session_id=session_id,
            actor=client.actor,
            text=body.message,
            images=convert_images(body.images),
            run_id=run_id,
            receipts=self._context.make_start_receipts(request, client, run_id=run_id, at=session_id),
        )
        await self._start(command, session_id, end)
        return ports.HandlerResult(rest=self.wait_for_run(session_id, run_id, end), is_run=True)

    def steer(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> Awaitable[ports.HandlerResult]:
        assert isinstance(request.body, messages.Steer)
        return self._queue(request, client, loaded, request.body, events.Delivery.STEER)

    def follow_up(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> Awaitable[ports.HandlerResult]:
        assert isinstance(request.body, messages.FollowUp)
        return self._queue(request, client, loaded, request.body, events.Delivery.FOLLOW_UP)

    async def _queue(
        self,
        request: inbound.PiRequest,
        client: Client,
        loaded: LoadedSession,
        body: messages.Prompt | messages.Steer | messages.FollowUp,
        delivery: events.Delivery,
    ) -> ports.HandlerResult:
        await self._context.submit(
            commands.QueueMessage(
                session_id=loaded.id,
                actor=client.actor,
                text=body.message,
                images=convert_images(body.images),
                delivery=delivery,
                receipts=self._context.make_start_receipts(request, client, done=True),
            )
        )
        return ports.HandlerResult()

    def abort(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult | Awaitable[ports.HandlerResult]:
        if loaded.run_id is None:
            return ports.HandlerResult()  # it ended by itself
        return self._abort(client, loaded, loaded.run_id)

    async def _abort(self, client: Client, loaded: LoadedSession, run_id: str) -> ports.HandlerResult:
        session_id = loaded.id
        end = self._context.sessions.wait_for_run_end(run_id)
        try:
            await self._context.submit(
                commands.CancelRun(session_id=session_id, actor=client.actor, run_id=run_id, reason="abort")
            )
        except errors.NoActiveRun:
            end.cancel()
            return ports.HandlerResult()
        return ports.HandlerResult(rest=_wait_with_timeout(end))

    # Compaction and retry

    async def compact(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.Compact)
        session_id = loaded.id
        self._wait_if_busy(session_id)
        run_id = self._context.service.mint("run")
        end = self._context.sessions.wait_for_run_end(run_id)
        command = commands.CompactContext(
            session_id=session_id,
            actor=client.actor,
            instructions=request.body.customInstructions or "",
            run_id=run_id,
            receipts=self._context.make_start_receipts(request, client, run_id=run_id, at=session_id),
        )
        await self._start(command, session_id, end)
        return ports.HandlerResult(rest=self.wait_for_compaction(session_id, run_id, end), is_run=True)

    async def wait_for_compaction(self, session_id: str, run_id: str, end: "asyncio.Future[RunEnd]") -> ports.HandlerResult:
        handled = await self.wait_for_run(session_id, run_id, end, cancelled="Compaction cancelled")
        transcript = await self._context.load_transcript(session_id)
        return ports.HandlerResult(data=transcript.compaction) if transcript.compaction else handled

    async def abort_compaction(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        if loaded.purpose is events.Purpose.COMPACT and loaded.run_id is not None:
            return await self._abort(client, loaded, loaded.run_id)
        return await self._stop_step(client, loaded, "compaction")

    async def abort_retry(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        return await self._stop_step(client, loaded, "retry")

    async def _stop_step(self, client: Client, loaded: LoadedSession, step: str) -> ports.HandlerResult:
        await self._context.submit(commands.StopStep(session_id=loaded.id, actor=client.actor, step=step))
        return ports.HandlerResult()

    # Bash: pi-server 21

    async def bash(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        assert isinstance(request.body, messages.Bash)
        session_id = loaded.id
        if loaded.policy == "read-only":
            raise PiCommandError("Bash is not allowed: the session's policy is read-only; hint: choose another policy")
        self._context.bash_breaker.enter(session_id)
        shell_id = self._context.service.mint("sh")
        end = self._context.sessions.wait_for_shell_end(shell_id)
        try:
            await self._context.submit(
                commands.RunShell(
                    session_id=session_id,
                    actor=client.actor,
                    shell_id=shell_id,
                    command=request.body.command,
                    told=not request.body.excludeFromContext,
                    receipts=self._context.make_start_receipts(request, client, shell_id=shell_id, at=session_id),
                )
            )
        except BaseException:
            end.cancel()
            self._context.bash_breaker.release(session_id)
            raise
        return ports.HandlerResult(rest=self.wait_for_shell(session_id, shell_id, end))

    async def wait_for_shell(
        self, session_id: str, shell_id: str, end: "asyncio.Future[events.ShellFinished]"
    ) -> ports.HandlerResult:
        try:
            finished = await end
        except asyncio.CancelledError:
            # The command has timed out: the shell that it covers ends with it.
            if not self._context.closing:
                self._context.bash_breaker.record_timeout(session_id)
                cancel = commands.CancelShell(session_id=session_id, actor=SERVER_ACTOR, shell_id=shell_id)
                self._context.service.submit(cancel, lambda _: None)
            raise
        self._context.bash_breaker.record_success(session_id)
        return ports.HandlerResult(data=make_bash_result(finished))

    async def abort_bash(self, request: inbound.PiRequest, client: Client, loaded: LoadedSession) -> ports.HandlerResult:
        ends = [self._context.sessions.wait_for_shell_end(shell_id) for shell_id in loaded.shells]
        await self._context.submit(commands.CancelShell(session_id=loaded.id, actor=client.actor))
        return ports.HandlerResult(rest=_wait_for_all(ends)) if ends else ports.HandlerResult()

    # Shared

    def _wait_if_busy(self, session_id: str) -> None:
        standing = self._context.sessions.find_by_id(session_id)
        if standing is not None and standing.run_id is not None:
            raise SessionBusy(self._context.sessions.wait_until_idle(session_id))

    async def _start(
        self, command: commands.SendMessage | commands.CompactContext, session_id: str, end: "asyncio.Future[RunEnd]"
    ) -> None:
        try:
            await self._context.submit(command)
        except errors.RunInProgress:
            # Another client's message was first; this one waits for its turn.
            end.cancel()
            raise SessionBusy(self._context.sessions.wait_until_idle(session_id)) from None
        except BaseException:
            end.cancel()
            raise

    async def wait_for_run(
        self, session_id: str, run_id: str, end: "asyncio.Future[RunEnd]", *, cancelled: str | None = None
    ) -> ports.HandlerResult:
        try:
            ended = await end
            while ended.following is not None:
                run_id = ended.following
                ended = await self._context.sessions.wait_for_run_end(run_id)
        except asyncio.CancelledError:
            if not self._context.closing:  # then the next daemon resumes it
                cancel = commands.CancelRun(
                    session_id=session_id, actor=SERVER_ACTOR, run_id=run_id, reason="the command was given up"
                )
                self._context.service.submit(cancel, lambda _: None)
            raise
        return make_run_result(ended.last, cancelled=cancelled)

    def _check_breaker(self, provider: str) -> None:
        if any(
            breaker.provider == provider and breaker.state == "open"
            for breaker in self._context.service.host_services.list_breakers()
        ):
            self._context.prompts_refused[provider] += 1
            raise PiCommandError(pi_errors.format_circuit_open(provider))


def make_run_result(last: LastRun, *, cancelled: str | None = None) -> ports.HandlerResult:
    """A run that a user stopped is a success of its command; one that failed is not."""
    if last.outcome is events.Outcome.SUCCESS:
        return ports.HandlerResult()
    if last.outcome is events.Outcome.CANCELLED and cancelled is None:
        return ports.HandlerResult()
    raise PiCommandError(cancelled if last.outcome is events.Outcome.CANCELLED and cancelled else last.failure or last.summary)


def make_bash_result(finished: events.ShellFinished) -> dict[str, object]:
    ended = {} if finished.exit_code is None else {"exitCode": finished.exit_code}
    return {**ended, "output": finished.text, "cancelled": finished.cancelled, "truncated": False}


async def _wait_with_timeout(end: "asyncio.Future[RunEnd]") -> ports.HandlerResult:
    await asyncio.wait([end], timeout=ABORT_TIMEOUT)
    end.cancel()
    return ports.HandlerResult()


async def _wait_for_all(ends: "list[asyncio.Future[events.ShellFinished]]") -> ports.HandlerResult:
    await asyncio.wait(ends, timeout=ABORT_TIMEOUT)
    for end in ends:
        end.cancel()
    return ports.HandlerResult(data=UNSET)


class UiResponseHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    async def extension_ui_response(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult:
        body = request.body
        assert isinstance(body, messages.ExtensionUiResponse)
        session = await self._context.service.get_session(loaded.id)
        run = session.run
        if run is not None and body.requestId in run.pending:
            command: commands.AnyCommand = self._build_decision(body, client, loaded.id)
        elif run is not None and body.requestId in run.dialogs:
            command = self._build_dialog_answer(body, client, loaded.id, run.dialogs[body.requestId])
        else:
            raise PiCommandError(pi_errors.format_no_ui_request(body.requestId))
        try:
            await self._context.submit(command)
        except (errors.ApprovalClosed, errors.ApprovalNotFound, errors.DialogNotFound):
            # pi-server 18: the first answer wins, and there is nothing left to answer.
            raise PiCommandError(pi_errors.format_no_ui_request(body.requestId)) from None
        return ports.HandlerResult()

    def _build_decision(self, body: messages.ExtensionUiResponse, client: Client, session_id: str) -> commands.DecideApproval:
        answer = body.response
        if isinstance(answer, messages.Confirmed):
            approved, always = answer.confirmed, answer.always
        elif isinstance(answer, messages.Cancelled):
            approved, always = False, False
        else:
            raise PiCommandError(pi_errors.format_invalid_field("response.method", "must be confirm or cancelled"))
        return commands.DecideApproval(
            session_id=session_id,
            actor=client.actor,
            approval_id=body.requestId,
            verdict=events.Verdict.APPROVE if approved else events.Verdict.DENY_CONTINUE,
            always=always,
        )

    def _build_dialog_answer(
        self, body: messages.ExtensionUiResponse, client: Client, session_id: str, dialog: events.Dialog
    ) -> commands.AnswerDialog:
        response: dict[str, object] | None
        match body.response:
            case messages.Cancelled():
                response = None
            case messages.Selected(value=value) if dialog.method == "select":
                if value not in dialog.options:
                    raise PiCommandError(pi_errors.format_invalid_field("response.value", "must be one of the options"))
                response = {"value": value}
            case messages.Confirmed(confirmed=confirmed) if dialog.method == "confirm":
                response = {"confirmed": confirmed}
            case messages.Entered(value=value) if dialog.method == "input":
                response = {"value": value}
            case messages.Edited(value=value) if dialog.method == "editor":
                response = {"value": value}
            case messages.Interviewed(responses=responses) if dialog.method == "interview":
                response = {"responses": responses}
            case _:
                raise PiCommandError(pi_errors.format_invalid_field("response.method", f"must be {dialog.method} or cancelled"))
        return commands.AnswerDialog(session_id=session_id, actor=client.actor, dialog_id=body.requestId, response=response)
