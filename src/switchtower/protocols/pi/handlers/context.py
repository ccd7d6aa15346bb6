"""The context that handlers share: the server's parts, the client that asks, and the session that is meant.

The circuit breaker of bash commands (pi-server 21): when they time out repeatedly, they are refused for a while.

It counts for each session, and for all together; it does not know what the commands do."""

import enum
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, cast

from msgspec import Struct, field

from switchtower.core import commands, events
from switchtower.core.ports import journal
from switchtower.core.ports import session_service as tower_port
from switchtower.protocols.pi import errors, inbound
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.dispatch.dispatcher import CommandDispatcher
from switchtower.protocols.pi.dispatch.receipts import CommandSubmitter
from switchtower.protocols.pi.errors import PiCommandError
from switchtower.protocols.pi.sessions.files import SessionFiles
from switchtower.protocols.pi.sessions.info import PiModelCatalog, make_assistant_info
from switchtower.protocols.pi.sessions.loaded import LoadedSession, LoadedSessions
from switchtower.protocols.pi.sessions.transcript import PiTranscript, extract_assistant_text
from switchtower.protocols.pi.settings import PiSettings

SESSION_TIMEOUTS = 5
"""Consecutive timeouts after which a session's commands are refused."""
GLOBAL_TIMEOUTS = 20
REST_S = 60.0


class BashCircuitState(enum.StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class _Circuit(Struct):
    limit: int
    timeouts: int = 0
    """Consecutive timeouts."""
    open_until: float = 0.0
    probing: bool = False

    def get_state(self, now: float) -> BashCircuitState:
        if self.timeouts < self.limit:
            return BashCircuitState.CLOSED
        return BashCircuitState.OPEN if now < self.open_until else BashCircuitState.HALF_OPEN

    def can_enter(self, now: float) -> bool:
        state = self.get_state(now)
        return state is BashCircuitState.CLOSED or (state is BashCircuitState.HALF_OPEN and not self.probing)

    def enter(self, now: float) -> None:
        self.probing = self.probing or self.get_state(now) is BashCircuitState.HALF_OPEN

    def record_timeout(self, now: float) -> None:
        self.timeouts += 1
        self.probing = False
        if self.timeouts >= self.limit:
            self.open_until = now + REST_S

    def close(self) -> None:
        self.timeouts, self.probing = 0, False


class BashBreakerMetrics(Struct, frozen=True):
    """Field names are the wire's."""

    enabled: bool
    globalState: str
    globalFailureCount: int
    sessionCount: int
    openSessionCount: int
    totalCalls: int
    totalTimeouts: int
    totalRejected: int


class BashBreaker:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Circuit(GLOBAL_TIMEOUTS)
        self._sessions: dict[str, _Circuit] = {}
        """Holds only sessions with timeouts: a success removes a session."""
        self._calls = self._timeouts = self._rejected = 0

    @property
    def is_open(self) -> bool:
        now = self._clock()
        return self._all.get_state(now) is BashCircuitState.OPEN or any(
            each.get_state(now) is BashCircuitState.OPEN for each in self._sessions.values()
        )

    def enter(self, session_id: str) -> None:
        now = self._clock()
        session = self._sessions.get(session_id)
        if not self._all.can_enter(now) or (session is not None and not session.can_enter(now)):
            self._rejected += 1
            raise PiCommandError(errors.BASH_CIRCUIT_OPEN)
        self._calls += 1
        self._all.enter(now)
        if session is not None:
            session.enter(now)

    def release(self, session_id: str) -> None:
        """The command was admitted and never ran: it counts neither as a success nor as a timeout."""
        self._all.probing = False
        if (session := self._sessions.get(session_id)) is not None:
            session.probing = False

    def record_success(self, session_id: str) -> None:
        self._all.close()
        self._sessions.pop(session_id, None)

    def record_timeout(self, session_id: str) -> None:
        now = self._clock()
        self._timeouts += 1
        self._all.record_timeout(now)
        self._sessions.setdefault(session_id, _Circuit(SESSION_TIMEOUTS)).record_timeout(now)

    def forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def collect_metrics(self) -> BashBreakerMetrics:
        now = self._clock()
        return BashBreakerMetrics(
            enabled=True,
            globalState=self._all.get_state(now).value,
            globalFailureCount=self._all.timeouts,
            sessionCount=len(self._sessions),
            openSessionCount=sum(circuit.get_state(now) is BashCircuitState.OPEN for circuit in self._sessions.values()),
            totalCalls=self._calls,
            totalTimeouts=self._timeouts,
            totalRejected=self._rejected,
        )


PAGE = 1_000
LAST_PAGE = 100


class Client(ports.DispatchClient, Protocol):
    """A client as handlers see it."""

    @property
    def actor(self) -> events.Actor: ...

    @property
    def cwd(self) -> str | None:
        """The client's working directory, if it is a program on this machine that reports it."""
        ...

    async def follow(self, loaded: LoadedSession) -> None:
        """Subscribes the client to the session's events."""
        ...


class HandlerContext(Struct):
    service: tower_port.SessionService
    submitter: CommandSubmitter
    settings: PiSettings
    models: PiModelCatalog
    sessions: LoadedSessions
    files: SessionFiles
    bash_breaker: BashBreaker
    connections: Callable[[], int]
    dispatcher: CommandDispatcher | None = None
    """It is set last: the dispatcher is made from the handlers."""
    prompts_refused: Counter[str] = field(default_factory=Counter)
    """Per provider: the prompts that an open breaker refused."""
    closing: bool = False
    """The daemon stops: the next one resumes commands that are given up now."""

    async def submit(self, command: commands.AnyCommand) -> tower_port.SubmitOutcome:
        return await self.submitter.submit(command)

    def make_start_receipts(
        self, request: inbound.PiRequest, client: ports.DispatchClient, **facts: object
    ) -> tuple[journal.Receipt, ...]:
        assert self.dispatcher is not None, "the house is open"
        return self.dispatcher.make_start_receipts(request, client, **facts)

    async def load_transcript(self, session_id: str, *, until_clearing: int | None = None) -> PiTranscript:
        """Reads the conversation a page at a time, as it is now, or as it was before the session's n-th clearing."""
        session = await self.service.get_session(session_id)
        transcript = PiTranscript(make_assistant_info(self.models.get_model(session.provider, session.model)))
        clearings = 0
        # Messages before the last clearing are not part of the conversation, unless they are requested.
        after = max(0, session.conversation_from - 1) if until_clearing is None else 0
        async for entry in self.read_entries(session_id, after):
            if entry.kind == events.ConversationCleared.kind:
                clearings += 1
                if clearings == until_clearing:
                    break
            transcript.add(entry)
        return transcript

    async def load_last_assistant_text(self, session_id: str) -> str | None:
        """Reads backwards from the session's end, without the pieces of streamed text, so that a long history costs nothing."""
        session = await self.service.get_session(session_id)
        before = session.seq + 1
        while before > session.conversation_from:
            page = await self.service.read_entries_before(session_id, before, LAST_PAGE, streamed=False)
            if not page:
                return None
            for entry in reversed(page):
                if entry.seq <= session.conversation_from:
                    return None
                if entry.kind == events.ContextCompacted.kind:
                    # The messages that were compacted are no longer in the conversation; only the whole transcript shows which
                    # ones.
                    return (await self.load_transcript(session_id)).last_assistant_text
                if text := extract_assistant_text(entry):
                    return text
            before = page[0].seq
        return None

    async def read_entries(self, session_id: str, after: int = 0) -> AsyncIterator[journal.Entry]:
        """Reads all of a session's entries up to now, a page at a time."""
        head = (await self.service.get_session(session_id)).seq
        while after < head and (page := await self.service.read_entries(session_id, after, PAGE)):
            for entry in page:
                yield entry
            after = page[-1].seq


SessionHandler = Callable[[inbound.PiRequest, Client, LoadedSession], ports.HandlerResult | Awaitable[ports.HandlerResult]]


def bind_session(context: HandlerContext, handle: SessionHandler) -> ports.Handler:
    """Makes the handler of a session command: it gets the session's current state, which is loaded first if necessary."""

    def handler(request: inbound.PiRequest, client: ports.DispatchClient) -> ports.HandlerResult | Awaitable[ports.HandlerResult]:
        assert request.session_id is not None, "a session command names its session"
        visitor = cast(Client, client)
        standing = context.sessions.find_by_name(request.session_id)
        if standing is not None and standing.loaded:
            return handle(request, visitor, standing)
        return fetched(request, visitor)

    async def fetched(request: inbound.PiRequest, visitor: Client) -> ports.HandlerResult:
        assert request.session_id is not None
        standing = await context.sessions.load_if_needed(request.session_id, visitor.actor)
        handled = handle(request, visitor, standing)
        return handled if isinstance(handled, ports.HandlerResult) else await handled

    return handler
