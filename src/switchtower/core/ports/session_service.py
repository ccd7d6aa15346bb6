"""The session service port: what a protocol may ask of the runtime. Protocols know this port and not the runtime behind it.

Responses are callbacks on the event loop, after the commit that they report and before the events of that commit are
published: a client gets the response first. A subscription is a cursor with a subscriber; whatever the subscriber has not
taken stays in the journal, so a slow client costs the others nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from switchtower.core import commands, errors, events
from switchtower.core.ports import host_services as ports_host_services
from switchtower.core.ports import journal
from switchtower.core.session import Session

if TYPE_CHECKING:
    from switchtower.core.ports import cluster

if TYPE_CHECKING:
    pass

HEAD_CURSOR = 2**62
"""A cursor beyond every session's head: a subscriber that attaches there gets new events only."""

SubmitOutcome = dict[str, Any]
OutcomeCallback = Callable[[SubmitOutcome | errors.CoreError], None]
Watcher = Callable[[Session, events.AnyEvent], None]
BatchWatcher = Callable[[Session, "Batch"], None]


class FutureLike(Protocol):
    """The part of a future that is used here."""

    def done(self) -> bool: ...

    def set_result(self, result: SubmitOutcome, /) -> None: ...

    def set_exception(self, exception: errors.CoreError, /) -> None: ...


def resolve_future(answer: FutureLike, outcome: SubmitOutcome | errors.CoreError) -> None:
    """An `OutcomeCallback` for a caller that waits with a future, which may have been cancelled."""
    if answer.done():
        return
    if isinstance(outcome, errors.CoreError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class Batch:
    """Entries of one session that were committed together, with a cache for each protocol's encoding of them."""

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
    """The receiver of a subscription's batches, for one client."""

    @property
    def is_ready(self) -> bool:
        """False while the client cannot take more; the client's connection calls `Subscription.wake` when it can again."""
        ...

    def deliver(self, batch: Batch) -> None: ...

    def on_gap(self, session_id: str) -> None:
        """Retention removed entries that this client had not been sent yet; it must attach again."""
        ...


@runtime_checkable
class LagObserver(Protocol):
    """A subscriber that is notified when its client falls behind the live stream, and when it has caught up."""

    def on_lagging(self, session_id: str) -> None: ...

    def on_caught_up(self, session_id: str) -> None: ...


class Subscription(Protocol):
    cursor: int

    def start(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Attachment(Struct, frozen=True):
    """`gap`: the requested cursor cannot be served; the subscription then continues after the session's head."""

    session: Session
    subscription: Subscription
    gap: bool
    earliest_seq: int
    """The first seq from which the log has no gap."""


class HostForwarder(Protocol):
    """Forwards commands to sessions that live on other hosts."""

    def forward(self, host: str, command: commands.AnyCommand, done: OutcomeCallback) -> None:
        """Forwards a command to its session's host. `done` is called at once when the host cannot be reached."""
        ...


class SessionService(Protocol):
    def now_ms(self) -> int: ...

    def mint(self, prefix: str) -> str: ...

    def mint_secret(self, prefix: str) -> str:
        """Returns a token that cannot be guessed."""
        ...

    def submit(self, command: commands.AnyCommand, done: OutcomeCallback) -> None: ...

    async def ask(self, command: commands.AnyCommand) -> SubmitOutcome:
        """Like `submit`, awaited: raises the refusal. A submitted command is carried out even when the caller stops waiting."""
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
        """Subscribes a client that has just had a response about this session: continues from there without another check."""
        ...

    @property
    def host_services(self) -> ports_host_services.HostServices: ...

    async def get_session(self, session_id: str) -> Session:
        """Returns a copy of the session in its own order and as committed; the copy does not change."""
        ...

    def find_session_of_run(self, run_id: str) -> Session | None:
        """Returns the current session whose active run on this node has this id. The caller must not change or keep it."""
        ...

    async def list_cards(
        self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = (), any_id: bool = False
    ) -> list[journal.Card]:
        """Lists the most recently updated sessions first; or only those that a client has loaded, or in one of these states.

        `any_id`: also sessions that an older release stored under an id which a pi client chose. Only pi accepts those ids.
        """
        ...

    async def search(self, text: str, limit: int, *, session_id: str | None = None) -> list[journal.SearchHit]:
        """Searches messages, tool calls and their results; see the search port."""
        ...

    async def read_entries(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        """Returns a page of a session's entries."""
        ...

    async def read_entries_before(
        self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True
    ) -> list[journal.Entry]:
        """Returns the page before a seq, in order; without streamed pieces of text on request."""
        ...

    async def find_card(self, session_id: str) -> journal.Card | None: ...

    async def list_receipts(self, scope: str, limit: int) -> list[journal.Receipt]:
        """Returns the newest of a protocol's own receipts, newest first."""
        ...

    def watch(self, watcher: Watcher, *, owned_only: bool = False) -> Callable[[], None]:
        """Calls the watcher for every session's events once they are committed and published, except for the pieces of
        streamed text. The session is the current one, and the watcher must not change or keep it. Returns a function that
        stops it.

        `owned_only`: only sessions that this node owns. While a watcher also wants the others, this node reads everything that
        any node stores: watch no longer than necessary.
        """
        ...

    def watch_batches(self, watcher: BatchWatcher, *, owned_only: bool = False) -> Callable[[], None]:
        """Like `watch`, but for each whole batch of any session, once its subscribers have it."""
        ...

    @property
    def nodes(self) -> "cluster.ClusterNodes | None":
        """The nodes of the cluster. None: this daemon runs without a cluster."""
        ...
