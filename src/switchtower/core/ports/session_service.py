"""The tower port: what a protocol may ask of the runtime. Protocols know this and not the runtime behind it.

Answers come by callback, on the event loop, after the commit that they speak of and before the events of that commit are
published: an asker hears the answer first. A subscriber is a cursor with an outlet; whatever it has not taken stays in the
journal, so a slow one costs nobody anything.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import host_services, journal
from switchtower.core.session import Session

if TYPE_CHECKING:
    from switchtower.core.ports import cluster

if TYPE_CHECKING:
    pass

HEAD_CURSOR = 2**62
"""A cursor that no session has reached: who attaches there is given what comes next, and nothing of before."""

SubmitOutcome = dict[str, Any]
OutcomeCallback = Callable[[SubmitOutcome | errors.CoreError], None]
Watcher = Callable[[Session, events.AnyEvent], None]
BatchWatcher = Callable[[Session, "Batch"], None]


class FutureLike(Protocol):
    """What of a future matters here."""

    def done(self) -> bool: ...

    def set_result(self, result: SubmitOutcome, /) -> None: ...

    def set_exception(self, exception: errors.CoreError, /) -> None: ...


def resolve_future(answer: FutureLike, outcome: SubmitOutcome | errors.CoreError) -> None:
    """A `Done` for who waits with a future, and perhaps no longer."""
    if answer.done():
        return
    if isinstance(outcome, errors.CoreError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class Batch:
    """Entries of one session that were committed together, with room for each protocol to keep its encoding of them."""

    __slots__ = ("encodings", "entries", "session_id")

    def __init__(self, session_id: str, entries: Sequence[journal.Entry]) -> None:
        self.session_id = session_id
        self.entries = entries
        self.encodings: dict[str, Any] = {}

    @property
    def first_seq(self) -> int:
        return self.entries[0].seq

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq


class Subscriber(Protocol):
    """Where a subscription puts what it has for one client."""

    @property
    def is_ready(self) -> bool:
        """False while the client does not take more; `Subscription.wake` says that it does again."""
        ...

    def deliver(self, batch: Batch) -> None: ...

    def on_gap(self, session_id: str) -> None:
        """Retention removed what this client had not been sent yet; it must be attached anew."""
        ...


@runtime_checkable
class LagObserver(Protocol):
    """An outlet that wants to know when its client falls behind the live stream, and when it has caught up."""

    def on_lagging(self, session_id: str) -> None: ...

    def on_caught_up(self, session_id: str) -> None: ...


class Subscription(Protocol):
    cursor: int

    def start(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Attachment(Struct, frozen=True):
    """`gap` says that the wished-for cursor cannot be served; the subscription then goes on after the session's head."""

    session: Session
    subscription: Subscription
    gap: bool
    earliest_seq: int
    """The first seq from which the log has no hole."""


class HostForwarder(Protocol):
    """The way to sessions that live on other hosts."""

    def forward(self, host: str, command: commands.AnyCommand, done: OutcomeCallback) -> None:
        """Hands a command to its session's host. `done` is told at once when the host cannot be reached."""
        ...


class SessionService(Protocol):
    def now_ms(self) -> int: ...

    def mint(self, prefix: str) -> str: ...

    def mint_secret(self, prefix: str) -> str:
        """A token that nobody can guess."""
        ...

    def submit(self, command: commands.AnyCommand, done: OutcomeCallback) -> None: ...

    async def ask(self, command: commands.AnyCommand) -> SubmitOutcome:
        """Like `submit`, awaited: raises the refusal. Once asked it happens, whether or not anybody still waits."""
        ...

    def attach(
        self,
        session_id: str,
        after_seq: int,
        subscriber: Subscriber,
        *,
        admit: Callable[[Session], None],
        done: Callable[[Attachment | errors.CoreError], None],
    ) -> None:
        """Subscribes in the session's own order. `admit` may refuse by raising; the subscription sends nothing until started."""
        ...

    def subscribe(self, session_id: str, after_seq: int, subscriber: Subscriber) -> Subscription:
        """For who has just been answered about this session: goes on from there without asking again."""
        ...

    @property
    def host_services(self) -> host_services.HostServices: ...

    async def get_session(self, session_id: str) -> Session:
        """The session as it stands, in its own order and as committed: a copy, which does not move on."""
        ...

    def find_session_of_run(self, run_id: str) -> Session | None:
        """The session as it stands whose active run this is, at this node. Not to be changed or kept."""
        ...

    async def list_cards(
        self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = (), any_id: bool = False
    ) -> list[journal.Card]:
        """Sessions, most recently updated first; or only those that a client wants at hand, or in one of these states.

        `any_id`: also sessions that an older release stored under an id which a pi client chose. Only pi accepts those ids."""
        ...

    async def search(self, text: str, limit: int, *, session_id: str | None = None) -> list[journal.SearchHit]:
        """Words in what was said and done; see the search port."""
        ...

    async def read_entries(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        """A page of what the journal has of a session."""
        ...

    async def read_entries_before(
        self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True
    ) -> list[journal.Entry]:
        """The page before a seq, in order; without streamed pieces of text on request."""
        ...

    async def find_card(self, session_id: str) -> journal.Card | None: ...

    async def list_receipts(self, scope: str, limit: int) -> list[journal.Receipt]:
        """The newest of a protocol's own receipts, newest first."""
        ...

    def watch(self, watcher: Watcher, *, owned_only: bool = False) -> Callable[[], None]:
        """Tells of every session's events once they are committed and published, but for the pieces of streamed text. The
        session is as it stands then, and not to be changed or kept. Returns what ends it.

        `at_home`: only of sessions whose home is this node. While anybody watches the others too, this node reads all that
        any node stores: watch no longer than need be."""
        ...

    def watch_batches(self, watcher: BatchWatcher, *, owned_only: bool = False) -> Callable[[], None]:
        """As `watch`, for each batch of any session with all that is in it, once its subscribers have it."""
        ...

    @property
    def nodes(self) -> "cluster.ClusterNodes | None":
        """The other nodes of this tower. None: it is alone."""
        ...
