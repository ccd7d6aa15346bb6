"""The asyncio shell around the core: finds or creates a session's lane and drops idle ones. It implements the session service
port and knows no protocol and no transport.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchtower.core import commands, errors, events, ids, redact, states
from switchtower.core.ports import cluster, engine, journal, session_service
from switchtower.core.ports import host_services as workshop_port
from switchtower.core.rules import EphemeralInput, admission
from switchtower.core.session import Session
from switchtower.runtime.hub import Cursor
from switchtower.runtime.lane import Lane, LaneServices
from switchtower.runtime.lane_items import AttachRequest, RuntimeLimits
from switchtower.runtime.runs import RunManager, recover
from switchtower.runtime.shells import ShellRunner

log = logging.getLogger(__name__)

MOST_RECOVERED = 1_000_000
TYPING = (commands.TypeInput, commands.TypeKeys, commands.SendMessage, commands.QueueMessage)
"""The commands that may reach a program's terminal: a message to a program is typed too."""
W = TypeVar("W")

_ID_BYTES = 10
_SECRET_BYTES = 20
DEFAULT_LIMITS = RuntimeLimits()


class Runtime:
    def __init__(
        self,
        journal_: journal.Journal,
        engines: Mapping[str, engine.Engine],
        host_services: workshop_port.HostServices,
        *,
        redactor: redact.Redactor,
        approval_timeout_ms: int,
        receipt_ttl_ms: int,
        retention: journal.Retention,
        limits: RuntimeLimits = DEFAULT_LIMITS,
        search_: journal.Search | None = None,
        ownership: cluster.SessionOwnership | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.now_ms = clock
        self._randomness = b""
        """Read in large blocks: one system call per id would cost more than everything else in making an id."""
        self._journal = journal_
        self._search = search_ or journal.NoSearch()
        self._removing: set[asyncio.Task[None]] = set()
        self._taking_up: dict[str, asyncio.Task[None]] = {}
        self.host_services = host_services
        self._retention = retention
        self._lanes: dict[str, Lane] = {}
        self._idle: OrderedDict[str, Lane] = OrderedDict()
        self._watchers: list[session_service.Watcher] = []
        self.nodes: cluster.ClusterNodes | None = None
        """The other nodes of the cluster. None: this daemon runs without a cluster."""
        self.elsewhere: session_service.HostForwarder | None = None
        """Forwards commands to the hosts of sessions that are not on this host."""
        self.undelivered: Callable[[], Mapping[str, int] | None] = dict
        """Returns the first seq of each session that a hub has not acknowledged, or None while that is unknown. Nothing from
        that seq on is pruned; while it is unknown, nothing at all.
        """
        self._stopping = False
        self._retention_task: asyncio.Task[None] | None = None
        self._ended: asyncio.Queue[str] = asyncio.Queue(maxsize=10_000)  # when it is full, the hourly round prunes the rest
        services = LaneServices(
            journal=journal_,
            redactor=redactor,
            now_ms=clock,
            mint=self.mint,
            receipt_ttl_ms=receipt_ttl_ms,
            limits=limits,
            react=self._react,
            on_run_lost=lambda lane, run_id: self.runs.fail_unstored(lane, run_id),
            on_idle=self._on_lane_idle,
            ownership=ownership,
            on_release=self._release_lane,
            on_resume=self._resume_lane,
            stopping=lambda: self._stopping,
        )
        self._services = services
        self.runs = RunManager(services, engines, host_services, approval_timeout_ms)
        self.shells = ShellRunner(services, host_services)

    async def start(self) -> None:
        """Recovers what was active when the last daemon ended, before a client can connect. In a cluster, `NodeMembership`
        does that.
        """
        if self._services.ownership is None:
            await self._recover_all()
        for card in await self._journal.list_cards(limit=MOST_RECOVERED, states=[events.SessionState.DELETED]):
            self._remove(card.session_id)
        self._retention_task = asyncio.get_running_loop().create_task(self._run_retention())

    async def _recover_all(self) -> None:
        active = await self._journal.list_cards(limit=MOST_RECOVERED, states=states.ACTIVE)
        at_hand = await self._journal.list_cards(limit=MOST_RECOVERED, loaded=True)
        with_shells = [card for card in at_hand if card.shells and card.active_run_id is None]
        for card in [*active, *with_shells]:
            try:
                if card.host is None:  # a session of another host continues there
                    await recover(self._get_lane(card.session_id), self.runs, self.host_services.kill_processes)
            except Exception:
                # One session that cannot be read must not keep the others from being served.
                log.exception("%s could not be recovered", card.session_id)

    async def stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._retention_task:
            self._retention_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._retention_task
        if self._taking_up:
            await asyncio.wait(list(self._taking_up.values()))
        await self.shells.stop()
        await self.runs.stop()
        if self._services.ownership is not None:
            for removing in self._removing:
                removing.cancel()  # it may be waiting for other nodes; the next start removes what is left
        if self._removing:
            await asyncio.wait(self._removing)
        for lane in list(self._lanes.values()):
            with contextlib.suppress(errors.CoreError):
                await lane.flush()

    # The session service port

    def mint(self, prefix: str) -> str:
        randomness = int.from_bytes(self._make_random(_ID_BYTES), "big")
        if prefix in ids.UUID_KINDS:
            randomness = ids.mark_version_7(randomness)
        return ids.format_id(prefix, self.now_ms(), randomness)

    def mint_secret(self, prefix: str) -> str:
        return f"{prefix}_{self._make_random(_SECRET_BYTES).hex()}"

    def _make_random(self, count: int) -> bytes:
        if len(self._randomness) < count:
            self._randomness = os.urandom(4_096)
        taken, self._randomness = self._randomness[:count], self._randomness[count:]
        return taken

    def submit(self, command: commands.AnyCommand, done: session_service.OutcomeCallback, *, is_forwarded: bool = False) -> None:
        """`is_forwarded`: another node sends the command, because it believes that this node owns the session."""
        if self._stopping:
            done(errors.ShuttingDown())
            return
        if isinstance(command, commands.StartSession) and command.actor.run_id is not None and not is_forwarded:
            try:
                command = self._bind_child(command, command.actor.run_id)
            except errors.CoreError as refusal:
                done(refusal)
                return
        lane = self._get_lane(command.session_id)
        if isinstance(command, commands.StartSession) and command.id_is_fresh:
            lane.begin_new()
        if isinstance(command, TYPING) and not self.runs.can_take_input(lane):
            done(errors.Overloaded("the program does not read what is typed"))
            return
        lane.submit(
            command, partial(self._answer, command, done) if self.elsewhere is not None else done, is_forwarded=is_forwarded
        )

    def _bind_child(self, command: commands.StartSession, run_id: str) -> commands.StartSession:
        """Binds a session that a process of a run starts to that run, as its child. Sessions of every protocol pass through
        here.
        """
        parent = self.runs.find_session(run_id)
        root = self.host_services.resolve_folder(command.workspace.root)
        inside = parent is not None and PurePath(root).is_relative_to(self.host_services.resolve_folder(parent.workspace.root))
        command = replace(command, workspace=replace(command.workspace, root=root))
        bound = admission.bind_to_parent(command, parent, self.runs.get_lent_usage(run_id), self.now_ms(), is_inside=inside)
        self.runs.count_child(run_id)
        return bound

    def find_session_of_run(self, run_id: str) -> Session | None:
        return self.runs.find_session(run_id)

    def _answer(
        self,
        command: commands.AnyCommand,
        done: session_service.OutcomeCallback,
        outcome: session_service.SubmitOutcome | errors.CoreError,
    ) -> None:
        """A command that the session's host must decide is forwarded to it, and the client gets the response of that host."""
        if isinstance(outcome, errors.SessionOnOtherHost) and self.elsewhere is not None:
            self.elsewhere.forward(outcome.detail or "", command, done)
        else:
            done(outcome)

    async def ask(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        answer: asyncio.Future[session_service.SubmitOutcome] = asyncio.get_running_loop().create_future()
        self.submit(command, partial(session_service.resolve_future, answer))
        return await answer

    def attach(
        self,
        session_id: str,
        after_seq: int,
        subscriber: session_service.Subscriber,
        *,
        admit: Callable[[Session], None],
        done: Callable[[session_service.Attachment | errors.CoreError], None],
    ) -> None:
        self._get_lane(session_id).attach(AttachRequest(after_seq, subscriber, admit, done))

    def subscribe(self, session_id: str, after_seq: int, subscriber: session_service.Subscriber) -> session_service.Subscription:
        lane = self._get_lane(session_id)
        cursor = Cursor(lane.feed, after_seq, subscriber)
        if lane.remote is not None:
            lane.remote.on_remote_append()  # the session may not have been followed so far
        return cursor

    async def get_session(self, session_id: str) -> Session:
        session = await self._get_lane(session_id).read_session()
        if session.seq == 0 or session.is_deleted:
            raise errors.SessionNotFound(session_id)
        return session

    async def list_cards(
        self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = (), any_id: bool = False
    ) -> list[journal.Card]:
        found = await self._journal.list_cards(limit=limit, loaded=loaded, states=states)
        return found if any_id else [card for card in found if ids.is_session_id(card.session_id)]

    async def search(self, text: str, limit: int, *, session_id: str | None = None) -> list[journal.SearchHit]:
        hits = await self._search.find(text, limit, session_id=session_id)
        return [hit for hit in hits if ids.is_session_id(hit.session_id)]

    async def read_entries(self, session_id: str, after_seq: int, limit: int) -> list[journal.Entry]:
        return await self._journal.read(session_id, after_seq, limit)

    async def read_entries_before(
        self, session_id: str, before_seq: int, limit: int, *, streamed: bool = True
    ) -> list[journal.Entry]:
        return await self._journal.read_back(session_id, before_seq, limit, streamed=streamed)

    async def find_card(self, session_id: str) -> journal.Card | None:
        return next(iter(await self._journal.list_cards(limit=1, session_id=session_id)), None)

    async def list_receipts(self, scope: str, limit: int) -> list[journal.Receipt]:
        return await self._journal.list_receipts(scope, limit, self.now_ms())

    def watch(self, watcher: session_service.Watcher, *, owned_only: bool = False) -> Callable[[], None]:
        return _make_unsubscribe(watcher, self._watchers, None if owned_only else self._services.remote_watchers)

    def watch_batches(self, watcher: session_service.BatchWatcher, *, owned_only: bool = False) -> Callable[[], None]:
        return _make_unsubscribe(
            watcher, self._services.batch_watchers, None if owned_only else self._services.remote_batch_watchers
        )

    # Cluster

    async def take_ownership(self, session_id: str, epoch: int, *, lost: str | None = None) -> None:
        """This node has become the session's owner: returns when what was active there is recovered or closed. `lost` is the
        machine where it was active, when that is not this one.
        """
        lane = self._get_lane(session_id)
        assert lane.remote is not None, "alone, there is nothing to adopt"
        lane.remote.become_owner(epoch, lost=lost)
        with contextlib.suppress(errors.Fenced):  # another node became the owner again in the meantime
            await lane.flush()
            if (taking_up := self._taking_up.get(session_id)) is not None:
                await asyncio.wait([taking_up])

    def _resume_lane(self, lane: Lane, lost: str | None) -> None:
        lane.hold_commands()
        task = asyncio.get_running_loop().create_task(self._recover(lane, lost), name=f"takes {lane.session_id} up")
        self._taking_up[lane.session_id] = task

    async def _recover(self, lane: Lane, lost: str | None) -> None:
        this = asyncio.current_task()

        def is_the_latest() -> bool:
            """Ownership may have been lost and regained since. Then a newer task recovers the session, and two would resume a
            run twice.
            """
            return self._taking_up.get(lane.session_id) is this

        try:
            while lane.is_owner and is_the_latest() and not self._stopping:
                await self.runs.wait_until_idle(lane.session_id)  # work that was abandoned here may still be cleaning up
                try:
                    await recover(lane, self.runs, self.host_services.kill_processes, lost=lost)
                except (errors.JournalUnavailable, errors.NoActiveRun) as problem:
                    # NoActiveRun: another node owned the session for a moment and closed the run. There may be a new one to
                    # recover.
                    log.warning("%s cannot be taken up yet: %s", lane.session_id, problem)
                    await asyncio.sleep(self._services.limits.journal_retry)
                else:
                    break
        except errors.Fenced:
            log.warning("%s was another node's again before it could be taken up", lane.session_id)
        except Exception:
            log.exception("%s could not be taken up", lane.session_id)
        finally:
            if is_the_latest():
                del self._taking_up[lane.session_id]
                lane.release_commands()

    def owned_lanes(self) -> list[Lane]:
        """The lanes in memory whose sessions this node owns."""
        return [lane for lane in self._lanes.values() if lane.is_owner]

    def apply_remote_heads(self, heads: Mapping[str, tuple[int, int]]) -> None:
        """Other nodes have appended to the journal. `heads` has, by session, the seq before and after."""
        watched = bool(self._services.remote_watchers or self._services.remote_batch_watchers)
        for session_id, (before, _) in heads.items():
            lane = self._get_lane(session_id) if watched else self._lanes.get(session_id)
            if lane is not None and lane.remote is not None:
                lane.remote.on_remote_append(before)

    def followed_heads(self) -> dict[str, int]:
        """The sessions of other nodes that have subscribers here, with the last seq known here."""
        return {
            lane.session_id: lane.feed.head
            for lane in self._lanes.values()
            if not lane.is_owner and lane.remote is not None and lane.remote.has_followers
        }

    def _release_lane(self, lane: Lane) -> None:
        self.runs.abandon(lane)
        self.shells.abandon(lane)

    # Lanes

    def _get_lane(self, session_id: str) -> Lane:
        lane = self._lanes.get(session_id)
        if lane is None:
            lane = self._lanes[session_id] = Lane(session_id, self._services)
        return lane

    def _react(self, lane: Lane, run_id: str | None, event: events.AnyEvent, ephemeral_input: EphemeralInput) -> None:
        self.runs.apply(lane, run_id, event, ephemeral_input)
        self.shells.apply(lane, event)
        if self._watchers and lane.session is not None:
            for watcher in tuple(self._watchers):
                watcher(lane.session, event)
        if isinstance(event, events.SessionDeleted):
            self._remove(lane.session_id)
        if isinstance(event, events.RunCompleted) and not self._ended.full():
            self._ended.put_nowait(lane.session_id)

    def _remove(self, session_id: str) -> None:
        removing = asyncio.get_running_loop().create_task(self._delete_session(session_id))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    async def _delete_session(self, session_id: str) -> None:
        """If the daemon stops before this is complete, the next start removes the rest."""
        try:
            if self._services.ownership is not None:
                # Followers on other nodes need time to read the session's end before it is removed.
                await asyncio.sleep(self._services.limits.follow_interval)
            await self._journal.delete(session_id)
            await self._search.forget(session_id)
        except Exception:
            log.exception("%s was deleted, but not all of it could be removed; the next start tries again", session_id)
        self._lanes.pop(session_id, None)
        self._idle.pop(session_id, None)

    def _on_lane_idle(self, lane: Lane) -> None:
        """Keeps the lanes that were used last; the others are read from the journal again when a client needs them."""
        if lane.feed.head == 0 and not (lane.remote is not None and lane.remote.forwarder.has_known_owner):
            # A forged id must not leave anything behind.
            if not lane.is_busy:
                self._lanes.pop(lane.session_id, None)
            return
        self._idle[lane.session_id] = lane
        self._idle.move_to_end(lane.session_id)
        # Each call checks two lanes: even when half of them turn out to be in use, idle lanes are dropped as fast as new ones
        # arrive.
        for _ in range(2):
            if len(self._idle) > self._services.limits.idle_lanes:
                session_id, oldest = self._idle.popitem(last=False)
                if _is_in_use(oldest):
                    self._idle[session_id] = oldest  # moved to the end of the queue
                else:
                    self._lanes.pop(session_id, None)

    async def _is_retention_node(self) -> bool:
        """In a cluster, one node applies retention to the sessions of all nodes."""
        if self._services.ownership is None:
            return True
        try:
            return isinstance(await self._services.ownership.claim("seat:house", begins=True), cluster.OwnedHere)
        except errors.CoreError:
            return False

    async def _run_retention(self) -> None:
        """Prunes a session when one of its runs has ended, and all sessions at a fixed interval, however many runs end
        meanwhile.
        """
        loop = asyncio.get_running_loop()
        next_round = loop.time() + self._services.limits.retention_interval
        while True:
            session_id: str | None = None
            if loop.time() < next_round:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(next_round):
                        session_id = await self._ended.get()
            if session_id is None:
                next_round = loop.time() + self._services.limits.retention_interval
                if not await self._is_retention_node():
                    continue
            if (undelivered := self.undelivered()) is None:
                continue
            try:
                await self._journal.prune(self._retention, self.now_ms(), session_id, keep_from=undelivered)
            except Exception:
                log.exception("housekeeping failed; it goes on with the next round")


def _make_unsubscribe(watcher: W, *lists: "list[W] | None") -> Callable[[], None]:
    """Adds the watcher to the lists; returns the function that removes it."""
    joined = [watchers for watchers in lists if watchers is not None]
    for watchers in joined:
        watchers.append(watcher)

    def leave() -> None:
        for watchers in joined:
            watchers.remove(watcher)

    return leave


def _is_in_use(lane: Lane) -> bool:
    """A session that is not loaded, because its last turn was lost, may have a run."""
    session = lane.session
    if not lane.is_owner:
        return lane.is_busy or lane.feed.cursors > 0
    return lane.is_busy or lane.feed.cursors > 0 or session is None or session.run is not None or bool(session.shells)


class RuntimeStats(Struct, frozen=True):
    lanes: int
    """Sessions in memory."""
    waiting: int
    """Commands and events that no turn has taken yet, over all lanes."""
    longest: int
    """The length of the longest queue of one lane."""
    runs: int
    """Runs that an engine works on."""
    subscribers: int
    lagging: int
    """Subscribers that read pages from the journal."""


def collect_stats(runtime: Runtime) -> RuntimeStats:
    lanes = tuple(runtime._lanes.values())
    waiting = [len(lane._waiting) for lane in lanes]
    subscribers = sum(lane.feed.cursors for lane in lanes)
    live = sum(len(lane.feed.live) for lane in lanes)
    return RuntimeStats(len(lanes), sum(waiting), max(waiting, default=0), len(runtime.runs), subscribers, subscribers - live)
