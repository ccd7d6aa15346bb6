"""The sessions at hand: those that pi calls loaded, and those in which an agent of anybody's is working right now. Each is
kept as the little that clients ask for all the time, and is brought up to date by every event that is committed."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from switchtower.core import commands, errors, events, journal, tower
from switchtower.core.session import LastRun, Session
from switchtower.protocols.pi import asking, strings
from switchtower.protocols.pi.models import Models
from switchtower.protocols.pi.order import ports
from switchtower.protocols.pi.view import shapes, stats

T = TypeVar("T")


class Standing(Struct, frozen=True):
    """One session, as of its last notable event."""

    info: shapes.SessionInfo
    seq: int
    version: int
    loaded: bool
    root: str
    provider: str
    model: str | None
    policy: str
    thinking: str | None
    run_id: str | None
    purpose: events.Purpose | None
    shells: tuple[str, ...]
    clearings: int
    questions: int
    """Approvals and dialogs that wait for an answer."""


class Ended(Struct, frozen=True):
    """How a run ended, and the follow-up that began with that."""

    last: LastRun
    following: str | None


class Roster:
    def __init__(
        self, tower_: tower.Tower, asked: asking.Asking, models: Models, *, max_sessions: int, path_of: Callable[[str], str]
    ) -> None:
        self._tower = tower_
        self._asking = asked
        self._models = models
        self._max_sessions = max_sessions
        self._path_of = path_of
        self._standings: dict[str, Standing] = {}
        self._closing: dict[str, list[asyncio.Future[Ended]]] = {}
        self._idle: dict[str, list[asyncio.Future[None]]] = {}
        self._shell_ends: dict[str, list[asyncio.Future[events.ShellFinished]]] = {}
        self._reserved = 0
        self._stop_watching: Callable[[], None] = lambda: None

    async def open(self) -> None:
        # Of all nodes: pi's sessions are the tower's, wherever they have their home.
        self._stop_watching = self._tower.watch(self._saw)
        for card in await self._tower.cards(self._max_sessions, loaded=True):
            if card.session_id not in self._standings:
                self._keep(await self._tower.session(card.session_id))

    def close(self) -> None:
        self._stop_watching()

    # What there is

    def get(self, session_id: str) -> Standing | None:
        return self._standings.get(session_id)

    def listed(self) -> list[shapes.SessionInfo]:
        return [standing.info for standing in self._standings.values()]

    def __len__(self) -> int:
        return len(self._standings)

    @property
    def loaded(self) -> int:
        return sum(standing.loaded for standing in self._standings.values())

    @property
    def questions(self) -> int:
        return sum(standing.questions for standing in self._standings.values())

    def reserve(self) -> None:
        """Room for one more session, or a refusal. To be released when it is there, or could not be had."""
        if self.loaded + self._reserved >= self._max_sessions:
            raise ports.SessionLimit(strings.session_limit(self._max_sessions))
        self._reserved += 1

    def release(self) -> None:
        self._reserved -= 1

    async def summon(self, session_id: str, actor: events.Actor) -> Standing:
        """A session that somebody names without having loaded it, such as one that another protocol began. One that was
        unloaded stays so until it is loaded by its path."""
        try:
            session = await self._tower.session(session_id)
        except errors.SessionNotFound:
            raise ports.Refused(strings.session_not_found(session_id)) from None
        if session.loaded is False:
            raise ports.Refused(strings.session_not_found(session_id))
        if not session.loaded:
            await self.load(session_id, actor)
        self._keep(await self._tower.session(session_id))
        return self._standings[session_id]

    async def load(self, session_id: str, actor: events.Actor, receipts: tuple[journal.Receipt, ...] = ()) -> None:
        self.reserve()
        try:
            await self._asking.ask(commands.LoadSession(session_id=session_id, actor=actor, receipts=receipts))
        finally:
            self.release()

    # What becomes of them

    def run_end(self, run_id: str) -> "asyncio.Future[Ended]":
        """To be asked before the run can have ended."""
        return _waiting(self._closing, run_id)

    def shell_end(self, shell_id: str) -> "asyncio.Future[events.ShellFinished]":
        return _waiting(self._shell_ends, shell_id)

    def idle(self, session_id: str) -> "asyncio.Future[None]":
        """Done when no run is active in the session, as far as has been seen; it may be done already."""
        waiting = _waiting(self._idle, session_id)
        standing = self._standings.get(session_id)
        if standing is None or standing.run_id is None:
            # It ended between the refusal and this question, and nothing more would come to say so.
            waiting.set_result(None)
        return waiting

    def _saw(self, session: Session, event: events.AnyEvent) -> None:
        match event:
            case events.RunCompleted():
                if session.last_run is not None:
                    # A follow-up begins in the commit that ended the run before it: then that one has not had the last word.
                    following = session.run.id if session.run is not None else None
                    _resolve(self._closing, session.last_run.id, Ended(session.last_run, following))
            case events.ShellFinished():
                _resolve(self._shell_ends, event.shell_id, event)
            case _:
                pass
        self._keep(session)
        if session.run is None:
            _resolve(self._idle, session.id, None)

    async def catch_up(self, session_id: str, version: int) -> None:
        """Somebody was told this version. Of a session with another home the answer may be here before its events are, and
        whoever asks for that version next must not be refused for it."""
        standing = self._standings.get(session_id)
        if standing is not None and standing.loaded and standing.version != version:
            with contextlib.suppress(errors.CoreError):  # what was told is stored all the same
                self._keep(await self._tower.session(session_id))

    def _keep(self, session: Session) -> None:
        known = self._standings.get(session.id)
        if known is not None and known.seq > session.seq:
            return  # looked up meanwhile, and further on already
        if not (session.loaded or (session.loaded is None and session.run is not None)):
            self._standings.pop(session.id, None)
            return
        model = self._models.of(session.provider, session.model)
        self._standings[session.id] = Standing(
            info=stats.session_info(session, model, self._path_of(session.id)),
            seq=session.seq,
            version=session.version,
            loaded=bool(session.loaded),
            root=session.workspace.root,
            provider=session.provider,
            model=session.model,
            policy=session.policy,
            thinking=session.thinking,
            run_id=session.run.id if session.run else None,
            purpose=session.run.purpose if session.run else None,
            shells=tuple(session.shells),
            clearings=session.clearings,
            questions=len(session.run.pending) + len(session.run.dialogs) if session.run else 0,
        )


def _waiting(waiters: "dict[str, list[asyncio.Future[T]]]", key: str) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    waiters.setdefault(key, []).append(future)
    future.add_done_callback(lambda done: _forget(waiters, key, done))
    return future


def _resolve(waiters: "dict[str, list[asyncio.Future[T]]]", key: str, result: T) -> None:
    for future in waiters.pop(key, ()):
        if not future.done():
            future.set_result(result)


def _forget(waiters: "dict[str, list[asyncio.Future[T]]]", key: str, future: "asyncio.Future[T]") -> None:
    """Whoever stops waiting leaves nothing behind."""
    if (left := waiters.get(key)) is not None and future in left:
        left.remove(future)
        if not left:
            del waiters[key]
