"""The pi protocol's house: what all its clients share. Here the rooms are joined: handlers, the conductor of commands, the
roster of sessions, the bulletin to everybody."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from switchtower.core import codec, commands, errors, events, tower
from switchtower.core.access import Access
from switchtower.core.session import LastRun, Session
from switchtower.protocols.pi import announcing, asking, strings
from switchtower.protocols.pi.bash_breaker import BashBreaker
from switchtower.protocols.pi.bulletin import Bulletin
from switchtower.protocols.pi.handlers.hall import Hall
from switchtower.protocols.pi.handlers.sessions import SessionHandlers
from switchtower.protocols.pi.handlers.table import handlers
from switchtower.protocols.pi.handlers.work import OURSELVES, WorkHandlers, bash_result, run_result
from switchtower.protocols.pi.models import Models
from switchtower.protocols.pi.order import ports, receipts
from switchtower.protocols.pi.order.conductor import Conductor
from switchtower.protocols.pi.order.limits import Limits
from switchtower.protocols.pi.peer import PiPeer, Turned
from switchtower.protocols.pi.reels import Reels
from switchtower.protocols.pi.roster import Roster
from switchtower.protocols.pi.settings import PiSettings
from switchtower.protocols.pi.stored.files import SessionFiles
from switchtower.transports.outbox import TRY_AGAIN_LATER
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Receiver

log = logging.getLogger(__name__)


class House:
    def __init__(
        self,
        tower_: tower.Tower,
        settings: PiSettings,
        *,
        version: str,
        now_ms: Callable[[], int],
        holds: Callable[[], bool] | None = None,
    ) -> None:
        """`holds`: of several nodes, whether this one may still serve; asked before anything is done. A process that was
        stopped for a while may be told later than it reads what has come meanwhile."""
        self._holds = holds
        asked = asking.Asking(tower_, holds)
        asked.resolve = self._resolve
        self._tower = tower_
        self._settings = settings
        self._ready_frame = Packet([announcing.server_ready(version)])
        self._connections = 0
        self._bulletin = Bulletin()
        models = Models(tower_.workshop)
        files = SessionFiles(settings.sessions_dir)
        self._models = models
        clock = asyncio.get_running_loop().time
        self._roster = Roster(
            tower_, asked, models, max_sessions=settings.max_sessions, path_of=files.path_of, gone=self._session_gone, clock=clock
        )
        self._hall = Hall(
            tower=tower_,
            asking=asked,
            settings=settings,
            models=models,
            roster=self._roster,
            files=files,
            bash_breaker=BashBreaker(clock),
            connections=lambda: len(self._bulletin.peers),
        )
        self._sessions = SessionHandlers(self._hall)
        self._work = WorkHandlers(self._hall)
        limits = _limits(settings)
        self._conductor = Conductor(
            handlers(self._hall, self._sessions, self._work),
            _TowerLedger(asked, self._roster),
            self._bulletin,
            limits=limits,
            now_ms=now_ms,
        )
        self._hall.conductor = self._conductor
        self._reels = Reels(tower_, self._roster)
        self._outcomes_kept = limits.outcomes
        self._opening: asyncio.Task[None] | None = None

    def _open_rooms(self) -> "asyncio.Task[None]":
        """What takes time is done when the first client comes."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._furnish(), name="pi opens")
        return self._opening

    async def _furnish(self) -> None:
        try:
            await self._models.refresh()
            await self._roster.open()
            self._conductor.restore(await self._tower.receipts(receipts.SCOPE, self._outcomes_kept), self._resolve)
        except Exception:
            # Clients are served all the same: sessions are fetched when they are named, only replays may be missing.
            log.exception("what pi's clients had left behind could not be read")

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> Receiver:
        """A connection; beyond the limit one that is closed at once."""
        if len(self._bulletin.peers) >= self._settings.max_connections:
            self._conductor.rejected.connectionLimit += 1
            return self.refuse(TRY_AGAIN_LATER, "Connection limit reached")
        self._connections += 1
        return PiPeer(
            self._conductor,
            self._bulletin,
            self._reels,
            access,
            key=f"connection-{self._connections}",
            namespace=namespace,
            lifecycle=lifecycle,
            cwd=cwd,
            greeting=self._ready_frame,
            opening=self._open_rooms(),
            holds=self._holds,
        )

    def refuse(self, code: int, reason: str) -> Receiver:
        """Lets somebody in only to say why not, with a code that a client can read."""
        return Turned(code, reason)

    async def shut_down(self, timeout_s: float) -> None:
        """Everybody hears of it first; then what is under way has its time."""
        self._bulletin.announce(announcing.server_shutdown(round(timeout_s * 1_000)))
        if self._opening is not None and not self._opening.done():
            # Whoever came a moment ago has said things that nobody has heard yet.
            await asyncio.wait([self._opening], timeout=timeout_s)
            await asyncio.sleep(0)
        self._conductor.shut_down()
        await self._conductor.drained(timeout_s)
        self._hall.closing = True
        await self._conductor.close()
        if self._opening is not None:
            self._opening.cancel()
        self._bulletin.flush()

    @property
    def is_idle(self) -> bool:
        """Nobody is here, and nothing is under way."""
        return not self._bulletin.peers and self._conductor.is_idle

    def let_go(self, code: int, reason: str) -> None:
        """Everybody who is here, at once; and whoever was let in and is not here yet."""
        self._bulletin.dismiss(code, reason)

    async def close(self) -> None:
        """It serves nobody any more: another node does. What is under way is given up, and that is stored nowhere; whoever
        asks there for its outcome is told how it ended."""
        self._conductor.shut_down()
        self._hall.closing = True
        self._roster.close()
        if self._opening is not None:
            self._opening.cancel()
        await self._conductor.close(answer=False)

    def _session_gone(self, session_id: str, name: str, deleted: bool) -> None:
        for peer in tuple(self._bulletin.peers):
            peer.unfollow(session_id)
        if deleted:  # by a client of another protocol; pi's own `delete_session` announces itself
            self._bulletin.announce(announcing.session_deleted(name))

    # After a restart

    async def _resolve(self, command: str, session_id: str | None, facts: dict[str, Any]) -> ports.Handled:
        """How a command ended that had begun when the last daemon did."""
        if (shell_id := facts.get("shell_id")) is not None and session_id is not None:
            return await self._resolve_shell(self._place(session_id, facts), shell_id)
        if (run_id := facts.get("run_id")) is not None and session_id is not None:
            return await self._resolve_run(command, self._place(session_id, facts), run_id)
        if (made := facts.get("session_id")) is not None:
            standing = self._roster.get(made)
            if standing is None:
                raise ports.Refused(strings.session_not_found(made))
            return self._sessions.begun_session(standing)
        if command == "delete_session":
            return ports.Handled(data={"deleted": True}, settled=True)
        return ports.Handled(data=facts["data"]) if "data" in facts else ports.Handled()

    def _place(self, name: str, facts: dict[str, Any]) -> str:
        """The core's id of the session that a command was about: its name may mean another one by now."""
        if (known := facts.get("at")) is not None:
            return str(known)
        standing = self._roster.get(name)
        return name if standing is None else standing.id

    async def _resolve_run(self, command: str, session_id: str, run_id: str) -> ports.Handled:
        end = self._roster.run_end(run_id)
        session = await self._session(session_id)
        if session.run is not None and session.run.id == run_id:
            if command == "compact":
                return await self._work.compaction_to_its_end(session_id, run_id, end)
            return await self._work.run_to_its_end(session_id, run_id, end)
        end.cancel()
        if session.last_run is not None and session.last_run.id == run_id:
            handled = run_result(session.last_run)
            if command != "compact":
                return handled
            transcript = await self._hall.transcript(session_id)
            return ports.Handled(data=transcript.compaction) if transcript.compaction else handled
        async for entry in self._hall.entries(session_id):
            if entry.run_id == run_id and entry.kind == events.RunCompleted.kind:
                completed = codec.decode(entry.kind, entry.data)
                assert isinstance(completed, events.RunCompleted)
                return run_result(LastRun(run_id, completed.outcome, completed.summary))
        raise ports.Refused(strings.INTERRUPTED)

    async def _resolve_shell(self, session_id: str, shell_id: str) -> ports.Handled:
        end = self._roster.shell_end(shell_id)
        session = await self._session(session_id)
        if shell_id in session.shells:
            return await self._work.shell_to_its_end(session_id, shell_id, end)
        end.cancel()
        async for entry in self._hall.entries(session_id):
            if entry.kind == events.ShellFinished.kind:
                finished = codec.decode(entry.kind, entry.data)
                assert isinstance(finished, events.ShellFinished)
                if finished.shell_id == shell_id:
                    return ports.Handled(data=bash_result(finished))
        raise ports.Refused(strings.INTERRUPTED)

    async def _session(self, session_id: str) -> Session:
        try:
            return await self._tower.session(session_id)
        except errors.SessionNotFound:
            raise ports.Refused(strings.session_not_found(session_id)) from None


class _TowerLedger:
    """Implements `ports.Ledger`: what pi's clients rely on is kept in the sessions themselves."""

    def __init__(self, asked: asking.Asking, roster: Roster) -> None:
        self._asking = asked
        self._roster = roster

    def version(self, session_id: str) -> int | None:
        standing = self._roster.get(session_id)
        return standing.version if standing is not None and standing.loaded else None

    def waited_for_people(self, session_id: str) -> float:
        return self._roster.waited_for_people(session_id)

    def outlives_us(self, session_id: str) -> bool:
        standing = self._roster.get(session_id)
        return standing is not None and standing.outlives_daemon

    async def settle(self, settlement: ports.Settlement) -> int | None:
        standing = self._roster.get(settlement.session_id)
        if standing is None:
            return None  # deleted since the command did its work, and its receipts with it
        command = commands.RecordOutcome(
            session_id=standing.id,
            actor=OURSELVES,
            name=settlement.command,
            advances=settlement.advances,
            receipts=settlement.receipts,
        )
        try:
            version = int((await self._asking.ask(command))["version"])
        except errors.SessionNotFound:
            return None
        await self._roster.catch_up(standing.id, version)
        return version


def _limits(settings: PiSettings) -> Limits:
    return Limits(
        session_rate=settings.session_rate,
        client_rate=settings.client_rate,
        read_timeout_s=settings.read_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        dependency_timeout_s=settings.dependency_timeout_s,
        idempotency_ttl_s=settings.idempotency_minutes * 60,
    )
