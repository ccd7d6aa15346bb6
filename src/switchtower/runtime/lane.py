"""Runs each session's work in order, one lane per session. Nothing else commits to the journal and nothing else publishes.

A turn takes everything that is queued, decides it against the session, commits the outcome as one append, and only then sends
the responses, publishes the events and starts their effects. While one turn commits, the next one collects. A run never
occupies its lane: its events are queued like every other input.

In a cluster, all of this happens on the node that owns the session. `cluster.remote_lane` has what a lane does on other nodes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from switchtower.cluster.remote_lane import RemoteFollower
from switchtower.core import codec, commands, errors, events, ids, redact
from switchtower.core.decide import decide
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold, fold_entries, make_card
from switchtower.core.ports import cluster as homes_port
from switchtower.core.ports import journal as ports_journal
from switchtower.core.ports import session_service
from switchtower.core.rules import Decision, EphemeralInput
from switchtower.core.session import Session
from switchtower.runtime.hub import Cursor, Feed
from switchtower.runtime.lane_items import (
    AttachRequest,
    Barrier,
    LaneItem,
    PendingResponse,
    QueuedCommand,
    RuntimeLimits,
    SessionRead,
)

log = logging.getLogger(__name__)

LOAD_PAGE = 1_000
CARD_EVERY_MS = 1_000
"""The interval at which the card of a session that only streams is updated, so that lists show it as active."""

T = TypeVar("T")
ReactToEvent = Callable[["Lane", str | None, events.AnyEvent, EphemeralInput], None]


class LaneServices(Struct):
    """The dependencies that all lanes share."""

    journal: ports_journal.Journal
    redactor: redact.Redactor
    now_ms: Callable[[], int]
    mint: ids.Mint
    receipt_ttl_ms: int
    limits: RuntimeLimits
    react: ReactToEvent
    """The lane calls it for each notable event once it is committed and published; effects start there."""
    on_run_lost: Callable[["Lane", str], None]
    """The lane calls it when an event of a run could not be stored, so that the run does not continue as if it had been."""
    on_idle: Callable[["Lane"], None]
    """The lane calls it when a lane has nothing left to do."""
    batch_watchers: list[session_service.BatchWatcher] = field(default_factory=list)
    ownership: homes_port.SessionOwnership | None = None
    """None: this daemon runs without a cluster and owns every session."""
    remote_watchers: list[session_service.Watcher] = field(default_factory=list)
    """Those of the watchers that also want the events of sessions that other nodes own."""
    remote_batch_watchers: list[session_service.BatchWatcher] = field(default_factory=list)
    on_resume: Callable[["Lane", str | None], None] = lambda lane, lost: None
    """The lane calls it when this node has become the session's owner and something is active in it that no engine works on."""
    stopping: Callable[[], bool] = lambda: False
    on_release: Callable[["Lane"], None] = lambda lane: None
    """The lane calls it when another node has become the owner: all work on the session must stop here without writing."""


class Lane:
    def __init__(self, session_id: str, services: LaneServices) -> None:
        self.session_id = session_id
        self.session: Session | None = None
        self.feed = Feed(session_id, services.journal, services.limits)
        self._services = services
        self.redactor = services.redactor.for_session(session_id)
        self._most_uncommitted = services.limits.uncommitted_events
        self._epoch = 1
        self._waiting: list[LaneItem] = []
        self._worker: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._receipts: dict[str, ports_journal.Receipt] = {}
        self._snapshot_seq = 0
        self._card_at_ms = 0
        self._held: list[QueuedCommand] | None = None
        """Commands of clients that wait while this node recovers what was active."""
        self.is_owner = services.ownership is None
        self.remote = None if services.ownership is None else RemoteFollower(self, services, services.ownership)

    def begin_new(self) -> None:
        """Prepares a lane for a session that is about to be started: there is nothing to load."""
        if self.session is None and not self.is_busy:
            self.session = Session(id=self.session_id)

    @property
    def is_busy(self) -> bool:
        return self._worker is not None or bool(self._waiting) or (self.remote is not None and self.remote.is_busy)

    def submit(
        self,
        command: commands.AnyCommand,
        done: session_service.OutcomeCallback,
        *,
        is_internal: bool = False,
        is_forwarded: bool = False,
    ) -> None:
        """`is_internal`: the command comes from this node's own timers. `is_forwarded`: it comes from another node, which
        believes that this node is the owner.
        """
        if (refusal := self._check_overload()) is not None:
            done(refusal)
            return
        ask = QueuedCommand(command, done, is_internal, is_forwarded)
        if self._can_forward_now(ask):
            return
        self._waiting.append(ask)
        self.wake()

    def _can_forward_now(self, ask: QueuedCommand) -> bool:
        """A command for a known owner needs no turn of this lane when nothing is queued before it."""
        if (
            self.is_owner
            or self.remote is None
            or self._waiting
            or self._worker is not None
            or ask.is_internal
            or ask.is_forwarded
        ):
            return False
        if not self.remote.forwarder.has_known_owner:
            return False
        self.remote.forwarder.send(ask)
        return True

    def _check_overload(self) -> errors.Overloaded | None:
        waiting = len(self._waiting) + (0 if self.remote is None else len(self.remote.forwarder) + len(self._held or ()))
        if waiting < self._services.limits.waiting_commands:
            return None
        return errors.Overloaded(f"{waiting} requests wait in {self.session_id}")

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        """For internal callers: like `submit`, but awaited, and never refused because of overload."""
        answer: asyncio.Future[session_service.SubmitOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(QueuedCommand(command, partial(session_service.resolve_future, answer), is_internal=True))
        self.wake()
        return await answer

    def attach(self, request: AttachRequest) -> None:
        if (refusal := self._check_overload()) is not None:
            request.done(refusal)
            return
        self._waiting.append(request)
        self.wake()

    def add_progress(self, run_id: str, event: events.AnyEvent) -> bool:
        """Queues one event of a run. True: too many are uncommitted, and the engine should call `wait_for_room`."""
        self._waiting.append((run_id, event))
        if self._worker is None:
            self.wake()
        return len(self._waiting) >= self._most_uncommitted

    async def flush(self) -> None:
        """Returns when everything queued so far is committed; raises when it could not be."""
        barrier = Barrier(asyncio.get_running_loop().create_future())
        self._waiting.append(barrier)
        self.wake()
        await barrier.reached

    async def read_session(self) -> Session:
        """Returns a copy: the session itself keeps changing, and contains uncommitted events while its next turn is being
        stored.
        """
        glance = SessionRead(asyncio.get_running_loop().create_future())
        self._waiting.append(glance)
        self.wake()
        return await glance.seen

    async def wait_for_room(self) -> None:
        """Returns when a turn has taken everything that is queued."""
        if self._waiting:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def hold_commands(self) -> None:
        """From now on, commands of clients wait until `release_commands`."""
        self._held = self._held or []

    def release_commands(self) -> None:
        asks, self._held = self._held, None
        self.requeue(asks or ())

    def requeue(self, asks: Sequence[QueuedCommand]) -> None:
        self._waiting[:0] = asks
        self.wake()

    def wake(self) -> None:
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting or (self.remote is not None and not self.is_owner and self.remote.has_work):
                items, self._waiting = self._waiting, []
                if self._room:
                    self._room.set_result(None)
                    self._room = None
                if self.remote is not None and not self.is_owner and not await self.remote.process(items):
                    continue
                if self._held is not None:
                    self._held += [item for item in items if isinstance(item, QueuedCommand) and not item.is_internal]
                    items = [item for item in items if not isinstance(item, QueuedCommand) or item.is_internal]
                try:
                    session = self.session or await self.load()
                    stage, answers = await self._commit(session, items)
                except Exception as failure:
                    self.fail_turn(items, failure)
                else:
                    await self._publish_turn(stage, answers, items)
                if not self._waiting:
                    # a client often sends its next command as soon as it has the response; this saves a new task for it
                    await asyncio.sleep(0)
        finally:
            self._worker = None
            self._services.on_idle(self)

    async def load(self) -> Session:
        stored = await self._services.journal.load(self.session_id)
        session = Session(id=self.session_id)
        if stored is not None:
            if self.remote is None:
                self._epoch = stored.epoch
            self._snapshot_seq = stored.snapshot_seq
            if stored.snapshot is not None:
                session = decode_snapshot(stored.snapshot)
            while entries := await self._services.journal.read(self.session_id, session.seq, LOAD_PAGE):
                fold_entries(session, entries)
        self.feed.reset_head(session.seq)
        self.session = session
        return session

    def become_owner(self, epoch: int) -> None:
        """This node owns the session, and everything that was stored before is folded."""
        self._epoch = epoch
        self.is_owner = True

    def discard_state(self) -> None:
        """The state in memory may contain more than what was stored, so the next turn reads the journal again."""
        self.session = None
        self._receipts.clear()

    async def _commit(self, session: Session, items: list[LaneItem]) -> tuple["_TurnBuilder", list[PendingResponse]]:
        """Decides the commands and stores everything that results. When this raises, nothing of the turn has happened."""
        stage = _TurnBuilder(session, self._services.now_ms())
        answers: list[PendingResponse] = []
        for item in items:
            if type(item) is tuple:
                run_id, event = item
                # An event that an engine emits after its run has ended is too late to belong to the run.
                if session.run is not None and session.run.id == run_id:
                    kind = type(event)
                    if kind is events.TextDelta or kind is events.ThinkingDelta or kind is events.ToolProgressed:
                        stage.add_delta(run_id, event)
                    else:
                        stage.append(run_id, await self._redact(event))
            elif isinstance(item, QueuedCommand):
                answers.append((item.done, await self._decide(stage, item.command)))
        if stage.entries or stage.receipts:
            await self._services.journal.append(self._make_append(stage))
            self._receipts.clear()
        return stage, answers

    async def _publish_turn(self, stage: "_TurnBuilder", answers: list[PendingResponse], items: list[LaneItem]) -> None:
        """The turn has happened and nothing undoes it. An error while notifying one receiver affects that receiver only."""
        for done, outcome in answers:
            self.respond(done, outcome)
        if stage.entries:
            batch = session_service.Batch(self.session_id, stage.entries)
            self.feed.publish(batch)
            for watcher in tuple(self._services.batch_watchers):
                self.notify_watcher(watcher, stage.session, batch)
            for run, event, said in stage.notable:
                if self.is_owner:
                    self._react(run, event, said)
            if self.remote is not None and not self.is_owner:
                self.remote.reclaim()  # ownership was lost while the turn was stored: the new owner recovers what was started
        await self.serve_readers(stage.session, items)

    async def serve_readers(self, session: Session, items: Sequence[LaneItem]) -> None:
        """Serves the items that only read the session or attach to it."""
        for item in items:
            if isinstance(item, AttachRequest):
                await self._attach(session, item)
            elif isinstance(item, Barrier) and not item.reached.done():
                item.reached.set_result(None)
            elif isinstance(item, SessionRead) and not item.seen.done():
                item.seen.set_result(decode_snapshot(encode_snapshot(session)))

    def serve_without_writes(self, items: Sequence[LaneItem]) -> list[LaneItem]:
        """Returns the items that can be served although this node cannot decide them. Events of engines are lost."""
        writes = [item for item in items if isinstance(item, tuple | Barrier)]
        if writes:
            self._refuse(writes, errors.Fenced())
        return [item for item in items if not isinstance(item, tuple | Barrier)]

    async def _decide(
        self, stage: "_TurnBuilder", command: commands.AnyCommand
    ) -> session_service.SubmitOutcome | errors.CoreError:
        session, services = stage.session, self._services
        try:
            key = command.idempotency_key
            if key is not None:
                receipt = self._receipts.get(key) or await services.journal.find_receipt(session.id, key, stage.now_ms)
                if receipt is not None:
                    return {**commands.replay_outcome(receipt, command), "replayed": True}
            decision = decide(session, command, now_ms=stage.now_ms, mint=services.mint)
            outcome = {**decision.outcome, "after_seq": session.seq}
            part: Decision | None = decision
            while part is not None:
                for event in part.events:
                    if isinstance(event, events.ToolProgressed) and part.run_id is not None:
                        # It comes from another host, which sends whole pieces.
                        safe = await self._redact_text(event.text)
                        told = event if safe is event.text else msgspec.structs.replace(event, text=safe)
                        stage.add_delta(part.run_id, self.redactor.redact_event(told))
                        stage.is_news = True
                    else:
                        stage.append(part.run_id, await self._redact(event), part.ephemeral_input)
                part = part.following
            if key is not None:
                receipt = commands.issue_receipt(command, outcome, stage.now_ms + services.receipt_ttl_ms)
                self._receipts[key] = receipt
                stage.receipts.append(receipt)
            stage.receipts += command.receipts
        except errors.CoreError as refusal:
            return refusal
        return outcome

    async def _redact(self, event: events.AnyEvent) -> events.AnyEvent:
        """A large text is redacted in a thread, so that other sessions do not wait for it."""
        if self.redactor.is_large(event):
            return await asyncio.to_thread(self.redactor.redact_event, event)
        return self.redactor.redact_event(event)

    async def _redact_text(self, text: str) -> str:
        return (
            self.redactor.redact_text(text)
            if len(text) <= redact.LARGE
            else await asyncio.to_thread(self.redactor.redact_text, text)
        )

    def _make_append(self, stage: "_TurnBuilder") -> ports_journal.Append:
        session = stage.session
        append = ports_journal.Append(self.session_id, self._epoch, stage.entries, stage.receipts)
        if stage.notable or stage.is_news or stage.now_ms - self._card_at_ms >= CARD_EVERY_MS:
            append.card = make_card(session)
            self._card_at_ms = stage.now_ms
        if stage.run_ended or session.seq - self._snapshot_seq >= self._services.limits.snapshot_every:
            append.snapshot = encode_snapshot(session)
            self._snapshot_seq = session.seq
        return append

    async def _attach(self, session: Session, item: AttachRequest) -> None:
        try:
            if session.seq == 0 or session.is_deleted:
                raise errors.SessionNotFound(session.id)
            item.admit(session)
            pruned_through = await self._services.journal.find_gap(session.id, item.after_seq)
            gap = pruned_through is not None or item.after_seq > session.seq
        except Exception as failure:
            self.respond(item.done, _make_refusal(failure))
            return
        cursor = Cursor(self.feed, session.seq if gap else item.after_seq, item.subscriber)
        if not self.respond(item.done, session_service.Attachment(session, cursor, gap, (pruned_through or 0) + 1)):
            cursor.close()

    def respond(self, done: Callable[[T], None], outcome: T) -> bool:
        """Returns whether the response was delivered. When one client's callback fails, the others in the turn still get
        theirs.
        """
        try:
            done(outcome)
        except Exception:
            log.exception("an answer could not be delivered")
            return False
        return True

    def notify_watcher(self, watcher: Callable[[Session, T], None], session: Session, what: T) -> None:
        try:
            watcher(session, what)
        except Exception:
            log.exception("a watcher of %s failed", self.session_id)

    def _react(self, run_id: str | None, event: events.AnyEvent, ephemeral_input: EphemeralInput) -> None:
        try:
            self._services.react(self, run_id, event, ephemeral_input)
        except Exception:
            log.exception("the effect of %s in %s failed", event.kind, self.session_id)
            if run_id is not None:
                self._services.on_run_lost(self, run_id)

    def fail_turn(self, items: Sequence[LaneItem], failure: Exception) -> None:
        """Nothing of this turn happened: discards the state in memory, so that the journal is read again, and refuses the
        commands.
        """
        self.discard_state()
        if self.remote is not None and isinstance(failure, errors.Fenced):
            log.warning("%s has its home at another node now", self.session_id)
            self.remote.lose_ownership()
            for item in items:
                if isinstance(item, QueuedCommand) and not item.is_internal:
                    self.remote.forwarder.send(item)
            items = [item for item in items if not isinstance(item, QueuedCommand) or item.is_internal]
        else:
            log.error("a turn of %s was lost before its commit", self.session_id, exc_info=failure)
        self._refuse(items, _make_refusal(failure))

    def _refuse(self, items: Sequence[LaneItem], refusal: errors.CoreError) -> None:
        unstored_runs = set()
        for item in items:
            if isinstance(item, tuple):
                unstored_runs.add(item[0])
            elif isinstance(item, Barrier):
                if not item.reached.done():
                    item.reached.set_exception(refusal)
            elif isinstance(item, SessionRead):
                if not item.seen.done():
                    item.seen.set_exception(refusal)
            else:
                done: Callable[[errors.CoreError], None] = item.done
                self.respond(done, refusal)
        for run_id in unstored_runs:
            self._services.on_run_lost(self, run_id)


def _make_refusal(failure: Exception) -> errors.CoreError:
    """Returns the error that the client gets for a failure, without details of our own bugs."""
    return failure if isinstance(failure, errors.CoreError) else errors.JournalUnavailable()


class _TurnBuilder:
    """The changes that one turn is about to commit. The session is folded step by step, so that each decision sees the ones
    before it.
    """

    __slots__ = ("entries", "is_news", "notable", "now_ms", "receipts", "run_ended", "session")

    def __init__(self, session: Session, now_ms: int) -> None:
        self.session = session
        self.now_ms = now_ms
        self.entries: list[ports_journal.Entry] = []
        self.receipts: list[ports_journal.Receipt] = []
        self.notable: list[tuple[str | None, events.AnyEvent, EphemeralInput]] = []
        self.run_ended = False
        self.is_news = False
        """The card must show new activity although only text was streamed."""

    def add_delta(self, run_id: str, event: events.AnyEvent) -> None:
        """Adds a piece of streamed text. It was already redacted as part of its stream, and it has no other effect."""
        seq = self.session.seq + 1
        fold(self.session, seq, self.now_ms, run_id, event)
        self.entries.append(ports_journal.Entry(seq, self.now_ms, run_id, event.kind, codec.encode(event)))

    def append(self, run_id: str | None, event: events.AnyEvent, ephemeral_input: EphemeralInput = None) -> None:
        seq = self.session.seq + 1
        fold(self.session, seq, self.now_ms, run_id, event)
        self.entries.append(ports_journal.Entry(seq, self.now_ms, run_id, event.kind, codec.encode(event)))
        self.notable.append((run_id, event, ephemeral_input))
        self.run_ended = self.run_ended or isinstance(event, events.RunCompleted)
