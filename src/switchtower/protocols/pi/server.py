"""The pi protocol's server: what all its clients share. It joins the handlers, the dispatcher of commands, the loaded sessions
and the broadcaster, and has the table of commands and their handlers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from switchtower.core import codec, commands, errors, events
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.core.session import LastRun, Session
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi import inbound, responses
from switchtower.protocols.pi.connection import Broadcaster, PiConnection, RejectedConnection
from switchtower.protocols.pi.dispatch import ports, receipts
from switchtower.protocols.pi.dispatch.dispatcher import CommandDispatcher
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.errors import PiCommandError
from switchtower.protocols.pi.handlers.context import BashBreaker, Client, HandlerContext, SessionHandler, bind_session
from switchtower.protocols.pi.handlers.queries import ConfigurationHandlers, QueryHandlers, ServerHandlers
from switchtower.protocols.pi.handlers.runs import (
    SERVER_ACTOR,
    RunHandlers,
    UiResponseHandlers,
    make_bash_result,
    make_run_result,
)
from switchtower.protocols.pi.handlers.sessions import SessionHandlers
from switchtower.protocols.pi.sessions.files import SessionFiles
from switchtower.protocols.pi.sessions.info import PiModelCatalog
from switchtower.protocols.pi.sessions.loaded import LoadedSessions, SessionStreams
from switchtower.protocols.pi.settings import PiSettings
from switchtower.transports.stream import TRY_AGAIN_LATER, Packet, Receiver

ServerHandler = Callable[[inbound.PiRequest, Client], ports.HandlerResult | Awaitable[ports.HandlerResult]]


def make_handlers(context: HandlerContext, sessions: SessionHandlers, work: RunHandlers) -> dict[str, ports.Handler]:
    looks, configuring, answers, server = (
        QueryHandlers(context),
        ConfigurationHandlers(context),
        UiResponseHandlers(context),
        ServerHandlers(context),
    )
    of_server: list[ServerHandler] = [
        sessions.list_sessions,
        sessions.create_session,
        sessions.delete_session,
        sessions.list_stored_sessions,
        sessions.load_session,
        server.get_metrics,
        server.health_check,
    ]
    of_session: list[SessionHandler] = [
        sessions.switch_session,
        sessions.new_session,
        sessions.switch_session_file,
        sessions.fork,
        sessions.get_fork_messages,
        sessions.list_session_files,
        work.prompt,
        work.steer,
        work.follow_up,
        work.abort,
        work.compact,
        work.abort_compaction,
        work.abort_retry,
        work.bash,
        work.abort_bash,
        looks.get_state,
        looks.get_messages,
        looks.get_last_assistant_text,
        looks.get_session_stats,
        looks.get_context_usage,
        looks.get_available_models,
        looks.get_commands,
        looks.get_skills,
        looks.get_tools,
        looks.export_html,
        looks.export_jsonl,
        configuring.set_model,
        configuring.cycle_model,
        configuring.set_thinking_level,
        configuring.cycle_thinking_level,
        configuring.set_session_name,
        configuring.set_auto_compaction,
        configuring.set_auto_retry,
        answers.extension_ui_response,
    ]
    return {
        **{_get_command_name(handle): cast(ports.Handler, handle) for handle in of_server},
        **{_get_command_name(handle): bind_session(context, handle) for handle in of_session},
    }


def _get_command_name(handle: ServerHandler | SessionHandler) -> str:
    """A handler has the name of its command."""
    return handle.__name__


log = logging.getLogger(__name__)


class PiServer:
    def __init__(
        self,
        service: session_service.SessionService,
        settings: PiSettings,
        *,
        version: str,
        now_ms: Callable[[], int],
        holds_lease: Callable[[], bool] | None = None,
    ) -> None:
        """`holds_lease` returns whether this node of a cluster may still serve; it is called before anything is done. A process
        that was suspended may learn of its lost lease only after it reads the frames that arrived meanwhile."""
        self._holds_lease = holds_lease
        asked = receipts.CommandSubmitter(service, holds_lease)
        asked.resolve = self._resolve
        self._service = service
        self._settings = settings
        self._ready_frame = Packet([responses.encode_server_ready(version)])
        self._connections = 0
        self._broadcaster = Broadcaster()
        models = PiModelCatalog(service.host_services)
        files = SessionFiles(settings.sessions_dir)
        self._models = models
        clock = asyncio.get_running_loop().time
        self._loaded_sessions = LoadedSessions(
            service,
            asked,
            models,
            max_sessions=settings.max_sessions,
            path_of=files.make_path,
            gone=self._on_session_gone,
            clock=clock,
        )
        self._context = HandlerContext(
            service=service,
            submitter=asked,
            settings=settings,
            models=models,
            sessions=self._loaded_sessions,
            files=files,
            bash_breaker=BashBreaker(clock),
            connections=lambda: len(self._broadcaster.peers),
        )
        self._sessions = SessionHandlers(self._context)
        self._work = RunHandlers(self._context)
        limits = _make_limits(settings)
        self._dispatcher = CommandDispatcher(
            make_handlers(self._context, self._sessions, self._work),
            _SessionOutcomeLedger(asked, self._loaded_sessions),
            self._broadcaster,
            limits=limits,
            now_ms=now_ms,
        )
        self._context.dispatcher = self._dispatcher
        self._streams = SessionStreams(service, self._loaded_sessions)
        self._outcomes_kept = limits.outcomes
        self._opening: asyncio.Task[None] | None = None

    def _start_restoring(self) -> "asyncio.Task[None]":
        """Restoring takes time, so it is done when the first client connects."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._restore(), name="pi opens")
        return self._opening

    async def _restore(self) -> None:
        try:
            await self._models.refresh()
            await self._loaded_sessions.open()
            self._dispatcher.restore(await self._service.list_receipts(receipts.SCOPE, self._outcomes_kept), self._resolve)
        except Exception:
            # Clients are still served: sessions are loaded when they are named, only replays may be missing.
            log.exception("what pi's clients had left behind could not be read")

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> Receiver:
        """Returns a connection; beyond the limit, one that closes at once."""
        if len(self._broadcaster.peers) >= self._settings.max_connections:
            self._dispatcher.rejected.connectionLimit += 1
            return self.refuse(TRY_AGAIN_LATER, "Connection limit reached")
        self._connections += 1
        return PiConnection(
            self._dispatcher,
            self._broadcaster,
            self._streams,
            access,
            key=f"connection-{self._connections}",
            namespace=namespace,
            lifecycle=lifecycle,
            cwd=cwd,
            greeting=self._ready_frame,
            opening=self._start_restoring(),
            holds_lease=self._holds_lease,
        )

    def refuse(self, code: int, reason: str) -> Receiver:
        """Accepts a client only to close its connection with a code and a reason that it can read."""
        return RejectedConnection(code, reason)

    async def shut_down(self, timeout_s: float) -> None:
        """Announces the shutdown to all clients, then gives the running commands their time."""
        self._broadcaster.broadcast(responses.encode_server_shutdown(round(timeout_s * 1_000)))
        if self._opening is not None and not self._opening.done():
            # A client that has just connected may have sent frames that are not handled yet.
            await asyncio.wait([self._opening], timeout=timeout_s)
            await asyncio.sleep(0)
        self._dispatcher.shut_down()
        await self._dispatcher.wait_until_drained(timeout_s)
        self._context.closing = True
        await self._dispatcher.close()
        if self._opening is not None:
            self._opening.cancel()
        self._broadcaster.flush()

    @property
    def is_idle(self) -> bool:
        """No client is connected, and no command is running."""
        return not self._broadcaster.peers and self._dispatcher.is_idle

    def close_for_restart(self, code: int, reason: str) -> None:
        """Disconnects all clients at once, including those that were admitted and are not connected yet."""
        self._broadcaster.close_all(code, reason)

    async def close(self) -> None:
        """Stops serving because another node does. Running commands are given up and no outcome is stored; a client that asks the
        other node for an outcome gets the real one."""
        self._dispatcher.shut_down()
        self._context.closing = True
        self._loaded_sessions.close()
        if self._opening is not None:
            self._opening.cancel()
        await self._dispatcher.close(answer=False)

    def _on_session_gone(self, session_id: str, name: str, deleted: bool) -> None:
        for peer in tuple(self._broadcaster.peers):
            peer.unfollow(session_id)
        if deleted:  # by a client of another protocol; pi's own `delete_session` announces itself
            self._broadcaster.broadcast(responses.encode_session_deleted(name))

    # Commands of the previous daemon

    async def _resolve(self, command: str, session_id: str | None, facts: dict[str, Any]) -> ports.HandlerResult:
        """Returns the outcome of a command that was running when the previous daemon ended."""
        if (shell_id := facts.get("shell_id")) is not None and session_id is not None:
            return await self._resolve_shell(self._resolve_session_id(session_id, facts), shell_id)
        if (run_id := facts.get("run_id")) is not None and session_id is not None:
            return await self._resolve_run(command, self._resolve_session_id(session_id, facts), run_id)
        if (made := facts.get("session_id")) is not None:
            standing = self._loaded_sessions.find_by_name(made)
            if standing is None:
                raise PiCommandError(pi_errors.format_session_not_found(made))
            return self._sessions.make_started_result(standing)
        if command == "delete_session":
            return ports.HandlerResult(data={"deleted": True}, settled=True)
        return ports.HandlerResult(data=facts["data"]) if "data" in facts else ports.HandlerResult()

    def _resolve_session_id(self, name: str, facts: dict[str, Any]) -> str:
        """Returns the core's id of the session that a command was about: its name may mean another one by now."""
        if (known := facts.get("at")) is not None:
            return str(known)
        standing = self._loaded_sessions.find_by_name(name)
        return name if standing is None else standing.id

    async def _resolve_run(self, command: str, session_id: str, run_id: str) -> ports.HandlerResult:
        end = self._loaded_sessions.wait_for_run_end(run_id)
        session = await self._get_session(session_id)
        if session.run is not None and session.run.id == run_id:
            if command == "compact":
                return await self._work.wait_for_compaction(session_id, run_id, end)
            return await self._work.wait_for_run(session_id, run_id, end)
        end.cancel()
        if session.last_run is not None and session.last_run.id == run_id:
            handled = make_run_result(session.last_run)
            if command != "compact":
                return handled
            transcript = await self._context.load_transcript(session_id)
            return ports.HandlerResult(data=transcript.compaction) if transcript.compaction else handled
        async for entry in self._context.read_entries(session_id):
            if entry.run_id == run_id and entry.kind == events.RunCompleted.kind:
                completed = codec.decode(entry.kind, entry.data)
                assert isinstance(completed, events.RunCompleted)
                return make_run_result(LastRun(run_id, completed.outcome, completed.summary))
        raise PiCommandError(pi_errors.INTERRUPTED)

    async def _resolve_shell(self, session_id: str, shell_id: str) -> ports.HandlerResult:
        end = self._loaded_sessions.wait_for_shell_end(shell_id)
        session = await self._get_session(session_id)
        if shell_id in session.shells:
            return await self._work.wait_for_shell(session_id, shell_id, end)
        end.cancel()
        async for entry in self._context.read_entries(session_id):
            if entry.kind == events.ShellFinished.kind:
                finished = codec.decode(entry.kind, entry.data)
                assert isinstance(finished, events.ShellFinished)
                if finished.shell_id == shell_id:
                    return ports.HandlerResult(data=make_bash_result(finished))
        raise PiCommandError(pi_errors.INTERRUPTED)

    async def _get_session(self, session_id: str) -> Session:
        try:
            return await self._service.get_session(session_id)
        except errors.SessionNotFound:
            raise PiCommandError(pi_errors.format_session_not_found(session_id)) from None


class _SessionOutcomeLedger:
    """Implements `ports.OutcomeLedger`: everything that pi's clients rely on is stored in the sessions themselves."""

    def __init__(self, asked: receipts.CommandSubmitter, sessions: LoadedSessions) -> None:
        self._asking = asked
        self._sessions = sessions

    def get_version(self, session_id: str) -> int | None:
        standing = self._sessions.find_by_name(session_id)
        return standing.version if standing is not None and standing.loaded else None

    def measure_user_wait(self, session_id: str) -> float:
        return self._sessions.measure_user_wait(session_id)

    def is_run_durable(self, session_id: str) -> bool:
        standing = self._sessions.find_by_name(session_id)
        return standing is not None and standing.outlives_daemon

    async def settle(self, settlement: ports.Settlement) -> int | None:
        standing = self._sessions.find_by_name(settlement.session_id)
        if standing is None:
            return None  # the session, and its receipts with it, was deleted after the command did its work
        command = commands.RecordOutcome(
            session_id=standing.id,
            actor=SERVER_ACTOR,
            name=settlement.command,
            advances=settlement.advances,
            receipts=settlement.receipts,
        )
        try:
            version = int((await self._asking.submit(command))["version"])
        except errors.SessionNotFound:
            return None
        await self._sessions.wait_for_version(standing.id, version)
        return version


def _make_limits(settings: PiSettings) -> DispatchLimits:
    return DispatchLimits(
        session_rate=settings.session_rate,
        client_rate=settings.client_rate,
        read_timeout_s=settings.read_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        dependency_timeout_s=settings.dependency_timeout_s,
        idempotency_ttl_s=settings.idempotency_minutes * 60,
    )
