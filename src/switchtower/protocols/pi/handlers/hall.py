"""What handlers have in common: the house they work in, who asks, and the session that is meant."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, cast

from msgspec import Struct, field

from switchtower.core import commands, events, journal
from switchtower.core import tower as tower_port
from switchtower.protocols.pi.asking import Asking
from switchtower.protocols.pi.bash_breaker import BashBreaker
from switchtower.protocols.pi.models import Models, cast_of
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.order.conductor import Conductor
from switchtower.protocols.pi.roster import Roster, Standing
from switchtower.protocols.pi.settings import PiSettings
from switchtower.protocols.pi.stored.files import SessionFiles
from switchtower.protocols.pi.view.transcript import Transcript, assistant_text

PAGE = 1_000
LAST_PAGE = 100


class Visitor(ports.Client, Protocol):
    """A client, as handlers need to know it."""

    @property
    def actor(self) -> events.Actor: ...

    @property
    def cwd(self) -> str | None:
        """Where it stands, if it is a program on this machine that says so."""
        ...

    async def follow(self, standing: Standing) -> None:
        """Subscribes it to the session's events."""
        ...


class Hall(Struct):
    tower: tower_port.Tower
    asking: Asking
    settings: PiSettings
    models: Models
    roster: Roster
    files: SessionFiles
    bash_breaker: BashBreaker
    connections: Callable[[], int]
    conductor: Conductor | None = None
    """Comes last: it is made from the handlers."""
    prompts_refused: Counter[str] = field(default_factory=Counter)
    """By provider: those that an open breaker kept from starting."""
    closing: bool = False
    """The daemon stops: what is given up now is taken up by the next one."""

    async def ask(self, command: commands.AnyCommand) -> tower_port.Outcome:
        return await self.asking.ask(command)

    def begun(self, request: inbound.Request, client: ports.Client, **facts: object) -> tuple[journal.Receipt, ...]:
        assert self.conductor is not None, "the house is open"
        return self.conductor.begun(request, client, **facts)

    async def transcript(self, session_id: str, *, until_clearing: int | None = None) -> Transcript:
        """The conversation as it stands, read a page at a time; or as it was before the session's n-th new beginning."""
        session = await self.tower.session(session_id)
        transcript = Transcript(cast_of(self.models.of(session.provider, session.model)))
        clearings = 0
        # What was said before the last new beginning is no part of the conversation, unless it is asked for.
        after = max(0, session.conversation_from - 1) if until_clearing is None else 0
        async for entry in self.entries(session_id, after):
            if entry.kind == events.ConversationCleared.kind:
                clearings += 1
                if clearings == until_clearing:
                    break
            transcript.add(entry)
        return transcript

    async def last_assistant_text(self, session_id: str) -> str | None:
        """Read from the session's end on, without the pieces of streamed text, so that it does not cost what was said before."""
        session = await self.tower.session(session_id)
        before = session.seq + 1
        while before > session.conversation_from:
            page = await self.tower.entries_before(session_id, before, LAST_PAGE, streamed=False)
            if not page:
                return None
            for entry in reversed(page):
                if entry.seq <= session.conversation_from:
                    return None
                if entry.kind == events.ContextCompacted.kind:
                    # What it stands for is no message any more; how much that is, the whole conversation says.
                    return (await self.transcript(session_id)).last_assistant_text
                if text := assistant_text(entry):
                    return text
            before = page[0].seq
        return None

    async def entries(self, session_id: str, after: int = 0) -> AsyncIterator[journal.Entry]:
        """All that the journal has of a session up to now, a page at a time."""
        head = (await self.tower.session(session_id)).seq
        while after < head and (page := await self.tower.entries(session_id, after, PAGE)):
            for entry in page:
                yield entry
            after = page[-1].seq


SessionHandler = Callable[[inbound.Request, Visitor, Standing], ports.Handled | Awaitable[ports.Handled]]


def for_session(hall: Hall, handle: SessionHandler) -> ports.Handler:
    """A handler of a session command: it is given the session as it stands, fetched first if it is not at hand."""

    def handler(request: inbound.Request, client: ports.Client) -> ports.Handled | Awaitable[ports.Handled]:
        assert request.session_id is not None, "a session command names its session"
        visitor = cast(Visitor, client)
        standing = hall.roster.get(request.session_id)
        if standing is not None and standing.loaded:
            return handle(request, visitor, standing)
        return fetched(request, visitor)

    async def fetched(request: inbound.Request, visitor: Visitor) -> ports.Handled:
        assert request.session_id is not None
        standing = await hall.roster.summon(request.session_id, visitor.actor)
        handled = handle(request, visitor, standing)
        return handled if isinstance(handled, ports.Handled) else await handled

    return handler
