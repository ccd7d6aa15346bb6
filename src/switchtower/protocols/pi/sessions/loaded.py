"""The sessions in memory: those that pi calls loaded, and those in which any agent is working now. Each is kept as the few values
that clients often ask for, and is updated by every committed event.

A pi client may choose a session's id. The core gives every session an id of the core's form, which all protocols accept, and
keeps the client's choice as its alias. Here and on pi's wire a session is found by its **name**: the alias, or the core's id if
it has no alias. A name belongs to one loaded session at a time; an unloaded session gives its name back.

The stream states of each session's followers. Clients that have seen the same share one state, and so the frames."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.core.session import LastRun, Session
from switchtower.protocols.pi import encoder, event_messages
from switchtower.protocols.pi import errors as pi_errors
from switchtower.protocols.pi.dispatch import receipts
from switchtower.protocols.pi.errors import PiCommandError, SessionLimitReached
from switchtower.protocols.pi.sessions import info as sessions_info
from switchtower.protocols.pi.sessions.info import PiModelCatalog, make_assistant_info
from switchtower.protocols.pi.stream_state import UNKNOWN_ASSISTANT, AssistantInfo, PiStreamState
from switchtower.transports.stream import Packet

T = TypeVar("T")

MAX_LOADED = 10_000
"""Sessions that are looked up at the start."""


class LoadedSession(Struct, frozen=True):
    """One session, as of its last notable event."""

    id: str
    """The core's id; `name` is the one that pi's clients use."""
    info: event_messages.SessionInfo
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
    outlives_daemon: bool
    """Its run continues after a restart."""

    @property
    def name(self) -> str:
        return self.info.sessionId


class RunEnd(Struct, frozen=True):
    """The end of a run, and the follow-up that started with it."""

    last: LastRun
    following: str | None


class LoadedSessions:
    def __init__(
        self,
        service: session_service.SessionService,
        asked: receipts.CommandSubmitter,
        models: PiModelCatalog,
        *,
        max_sessions: int,
        path_of: Callable[[str, str], str],
        clock: Callable[[], float],
        gone: Callable[[str, str, bool], None] = lambda session_id, name, deleted: None,
    ) -> None:
        """`gone` is called with the id and the name of a session that was unloaded, or deleted for good."""
        self._service = service
        self._asking = asked
        self._models = models
        self._max_sessions = max_sessions
        self._path_of = path_of
        self._gone = gone
        self._clock = clock
        self._asked_since: dict[str, float] = {}
        self._asked_for: dict[str, float] = {}
        """Seconds that sessions waited for users, up to the last answer."""
        self._by_name: dict[str, LoadedSession] = {}
        """Sessions by the core's id."""
        self._ids: dict[str, str] = {}
        """Names to the core's ids."""
        self._closing: dict[str, list[asyncio.Future[RunEnd]]] = {}
        self._idle: dict[str, list[asyncio.Future[None]]] = {}
        self._shell_ends: dict[str, list[asyncio.Future[events.ShellFinished]]] = {}
        self._reserved: list[str | None] = []
        """The names of sessions that are being created; None is one that has no name yet."""
        self._stop_watching: Callable[[], None] = lambda: None

    async def open(self) -> None:
        # The watch covers all nodes: pi's sessions are those of the session service, whichever node owns them.
        self._stop_watching = self._service.watch(self._on_event)
        # All of them are loaded, even if the limit was lowered since: each holds a name.
        for card in await self._service.list_cards(max(self._max_sessions, MAX_LOADED), loaded=True, any_id=True):
            if card.session_id not in self._by_name:
                self._store(await self._service.get_session(card.session_id))

    def close(self) -> None:
        self._stop_watching()

    # Lookups

    def find_by_name(self, name: str) -> LoadedSession | None:
        return self._by_name.get(self._ids.get(name, ""))

    def find_by_id(self, session_id: str) -> LoadedSession | None:
        """Finds a session by the core's id."""
        return self._by_name.get(session_id)

    def list_infos(self) -> list[event_messages.SessionInfo]:
        return [standing.info for standing in self._by_name.values()]

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def loaded_count(self) -> int:
        return sum(standing.loaded for standing in self._by_name.values())

    @property
    def pending_count(self) -> int:
        return sum(standing.questions for standing in self._by_name.values())

    @contextlib.contextmanager
    def reserve(self, name: str | None = None, *, is_new: bool = True) -> Iterator[None]:
        """Reserves a place and the name for a session while it is created, or refuses. Without `is_new` it has the name
        already."""
        if is_new and name is not None and (name in self._reserved or name in self._ids):
            raise PiCommandError(pi_errors.format_session_exists(name))
        if self.loaded_count + len(self._reserved) >= self._max_sessions:
            raise SessionLimitReached(pi_errors.format_session_limit(self._max_sessions))
        self._reserved.append(name)
        try:
            yield
        finally:
            self._reserved.remove(name)

    async def load_if_needed(self, name: str, actor: events.Actor) -> LoadedSession:
        """Loads a session that a client names without having loaded it, such as one that another protocol started. One that was
        unloaded stays so until it is loaded by its path."""
        session_id = self._ids.get(name, name)
        try:
            session = await self._service.get_session(session_id)
        except errors.SessionNotFound:
            raise PiCommandError(pi_errors.format_session_not_found(name)) from None
        # The core's id of a session that has an alias is not its name.
        if session.loaded is False or get_session_name(session) != name:
            raise PiCommandError(pi_errors.format_session_not_found(name))
        if not session.loaded:
            with self.reserve(is_new=False):
                await self._asking.submit(commands.LoadSession(session_id=session_id, actor=actor))
        return await self.refresh(session_id)

    async def refresh(self, session_id: str) -> LoadedSession:
        """Returns a loaded session with its current state."""
        self._store(await self._service.get_session(session_id))
        return self._by_name[session_id]

    async def load(self, session_id: str, name: str, actor: events.Actor, receipts: tuple[journal.Receipt, ...]) -> None:
        with self.reserve(name, is_new=self._ids.get(name) != session_id):
            await self._asking.submit(commands.LoadSession(session_id=session_id, actor=actor, receipts=receipts))

    # Ends of runs and shells

    def wait_for_run_end(self, run_id: str) -> "asyncio.Future[RunEnd]":
        """The caller must call this before the run can have ended."""
        return _create_waiter(self._closing, run_id)

    def wait_for_shell_end(self, shell_id: str) -> "asyncio.Future[events.ShellFinished]":
        return _create_waiter(self._shell_ends, shell_id)

    def wait_until_idle(self, session_id: str) -> "asyncio.Future[None]":
        """Returns a future that is done when no run is active in the session, as far as is known; it may be done already."""
        waiting = _create_waiter(self._idle, session_id)
        standing = self._by_name.get(session_id)
        if standing is None or standing.run_id is None:
            # The run ended between the refusal and this call, and no further event would resolve the future.
            waiting.set_result(None)
        return waiting

    def _on_event(self, session: Session, event: events.AnyEvent) -> None:
        match event:
            case events.RunCompleted():
                if session.last_run is not None:
                    # A follow-up starts in the commit that ended the run before it: then the first run was not the last.
                    following = session.run.id if session.run is not None else None
                    _resolve_waiters(self._closing, session.last_run.id, RunEnd(session.last_run, following))
            case events.ShellFinished():
                _resolve_waiters(self._shell_ends, event.shell_id, event)
            case _:
                pass
        self._store(session)
        if session.run is None:
            _resolve_waiters(self._idle, session.id, None)

    async def wait_for_version(self, session_id: str, version: int) -> None:
        """A client was sent this version. If another node owns the session, the answer may arrive here before its events, and a
        client that asks for that version next must not be refused."""
        standing = self._by_name.get(session_id)
        if standing is not None and standing.loaded and standing.version != version:
            with contextlib.suppress(errors.CoreError):  # the reported version is stored in any case
                self._store(await self._service.get_session(session_id))

    def _store(self, session: Session) -> None:
        known = self._by_name.get(session.id)
        if known is not None and known.seq > session.seq:
            return  # it was read meanwhile, and is further already
        if not (session.loaded or (session.loaded is None and session.run is not None)):
            self._unload(session)
            return
        model = self._models.get_model(session.provider, session.model)
        name = get_session_name(session)
        parent = self._by_name.get(session.parent_session or "")
        self._ids[name] = session.id
        self._by_name[session.id] = LoadedSession(
            id=session.id,
            info=sessions_info.make_session_info(
                session,
                model,
                self._path_of(session.id, name),
                name=name,
                child_of=parent.name if parent is not None else session.parent_session,
            ),
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
            outlives_daemon=session.can_resume_after_restart,
        )
        self._record_questions(session.id, self._by_name[session.id].questions)

    def _record_questions(self, session_id: str, questions: int) -> None:
        if questions:
            self._asked_since.setdefault(session_id, self._clock())
        elif (since := self._asked_since.pop(session_id, None)) is not None:
            self._asked_for[session_id] = self._asked_for.get(session_id, 0.0) + self._clock() - since

    def measure_user_wait(self, name: str) -> float:
        """Returns the seconds for which a question has been open in a session since this server started."""
        session_id = self._ids.get(name, "")
        since = self._asked_since.get(session_id)
        return self._asked_for.get(session_id, 0.0) + (0.0 if since is None else self._clock() - since)

    def _unload(self, session: Session) -> None:
        if self._by_name.pop(session.id, None) is None:
            return
        self._asked_since.pop(session.id, None)
        self._asked_for.pop(session.id, None)
        name = get_session_name(session)
        if self._ids.get(name) == session.id:
            del self._ids[name]
        if session.loaded is False:
            self._gone(session.id, name, session.is_deleted)


def get_session_name(session: Session | journal.Card) -> str:
    """Returns the name that pi's clients use for a session."""
    return session.alias or (session.id if isinstance(session, Session) else session.session_id)


def _create_waiter(waiters: "dict[str, list[asyncio.Future[T]]]", key: str) -> "asyncio.Future[T]":
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    waiters.setdefault(key, []).append(future)
    future.add_done_callback(lambda done: _remove_waiter(waiters, key, done))
    return future


def _resolve_waiters(waiters: "dict[str, list[asyncio.Future[T]]]", key: str, result: T) -> None:
    for future in waiters.pop(key, ()):
        if not future.done():
            future.set_result(result)


def _remove_waiter(waiters: "dict[str, list[asyncio.Future[T]]]", key: str, future: "asyncio.Future[T]") -> None:
    """A cancelled waiter is removed too."""
    if (left := waiters.get(key)) is not None and future in left:
        left.remove(future)
        if not left:
            del waiters[key]


PAGE = 500
MAX_KEPT = 1_000


class SessionStreams:
    def __init__(self, service: session_service.SessionService, sessions: LoadedSessions) -> None:
        self.service = service
        self._sessions = sessions
        self._latest: dict[str, tuple[int, PiStreamState]] = {}
        """Per session: the state after the last batch that a client was sent."""

    def encode_batch(self, state: PiStreamState, batch: session_service.Batch, name: str) -> tuple[Packet | None, PiStreamState]:
        """Encodes a batch for a client in this state, once for all clients with the very same state."""
        made = batch.encodings.get("pi")
        if made is not None and made[0] is state:
            return made[1], made[2]
        frames, after = encoder.encode_batch(state, name, batch.entries, self._get_assistant_info(batch.session_id))
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings["pi"] = (state, packet, after)
        self._latest.pop(batch.session_id, None)
        self._latest[batch.session_id] = (batch.last_seq, after)
        if len(self._latest) > MAX_KEPT:
            del self._latest[next(iter(self._latest))]
        return packet, after

    async def subscribe(
        self, session_id: str, name: str, outlet: session_service.Subscriber
    ) -> tuple[session_service.Subscription, PiStreamState]:
        """Returns a subscription from the session's head on, not started yet, and the state of a client that has seen all
        before."""
        joined: asyncio.Future[tuple[session_service.Subscription, int | None]] = asyncio.get_running_loop().create_future()

        def attached(attachment: session_service.Attachment | errors.CoreError) -> None:
            if joined.done():
                if not isinstance(attachment, errors.CoreError):
                    attachment.subscription.close()  # the caller was cancelled
            elif isinstance(attachment, errors.CoreError):
                joined.set_exception(attachment)
            else:
                # This is read now, in the session's own order: a moment later the session may hold events that are not committed
                # yet.
                run = attachment.session.run
                joined.set_result((attachment.subscription, run.started_at_seq if run else None))

        self.service.attach(session_id, session_service.HEAD_CURSOR, outlet, admit=lambda _: None, done=attached)
        subscription, run_began_at = await joined
        if run_began_at is None:
            return subscription, PiStreamState.empty()
        head = subscription.cursor
        latest = self._latest.get(session_id)
        if latest is not None and latest[0] == head:
            return subscription, latest[1]
        # No client has followed it here: the run so far is encoded to get its state, and the frames are dropped.
        state, cast = PiStreamState.empty(), self._get_assistant_info(session_id)
        try:
            async for entries in self.read_pages(session_id, run_began_at - 1, head):
                _, state = encoder.encode_batch(state, name, entries, cast)
        except BaseException:
            subscription.close()
            raise
        return subscription, state

    async def read_pages(self, session_id: str, after: int, head: int) -> AsyncIterator[list[journal.Entry]]:
        """Reads the entries that the journal still has between these two."""
        while after < head and (entries := await self.service.read_entries(session_id, after, PAGE)):
            if kept := [entry for entry in entries if entry.seq <= head]:
                yield kept
            after = entries[-1].seq

    def encode_entries(
        self, state: PiStreamState, session_id: str, name: str, entries: list[journal.Entry]
    ) -> tuple[list[bytes], PiStreamState]:
        """Encodes frames for one client alone."""
        return encoder.encode_batch(state, name, entries, self._get_assistant_info(session_id))

    def find_session(self, name: str) -> LoadedSession | None:
        return self._sessions.find_by_name(name)

    def _get_assistant_info(self, session_id: str) -> AssistantInfo:
        standing = self._sessions.find_by_id(session_id)
        return UNKNOWN_ASSISTANT if standing is None else make_assistant_info(standing.info.model)
