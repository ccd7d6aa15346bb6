"""One MiniCodex client: says hello or comes back, is told where the session stands, and then everything that happens.

Its commands become commands of the tower. A client that does not read is not read from: it is told that it has fallen behind,
pages from the journal, and is told when it has caught up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

from switchtower.core import commands, events, tower
from switchtower.core import errors as core_errors
from switchtower.core.access import Access
from switchtower.core.session import Session
from switchtower.protocols.minicodex import errors, inbound, messages, outbound, permissions, stamps, story
from switchtower.protocols.minicodex.library import Library
from switchtower.protocols.minicodex.plot import Story
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

OpenSession = Callable[[events.Actor], Awaitable[str]]

MOST_HELD = 64
"""Packets."""
POLICY_VIOLATION, PROTOCOL_ERROR, SERVICE_RESTART = 1008, 1002, 1012
MAJOR = messages.VERSION.partition(".")[0]
CAPABILITIES = ("reasoning", "approvals", "replay", "deny_abort")
"""What we can do; `deny_abort` only counts for a client that says it too."""
_OF_A_RUN = (messages.Send, messages.Approve, messages.Deny, messages.Abort)
"""Commands that change something, and whose `run_id` counts."""


class MiniCodexPeer:
    """Implements `stream.Receiver`, `tower.Outlet` and `tower.Paced`."""

    protocol: ClassVar[str] = "minicodex"

    def __init__(
        self,
        library: Library,
        peers: "set[MiniCodexPeer]",
        access: Access,
        open_session: OpenSession,
        *,
        replay_entries: int,
        session_id: str | None = None,
    ) -> None:
        """`session_id` is the session that the client has chosen in the URL."""
        self._chosen_id = session_id
        self._library = library
        self._tower = library.tower
        self._peers = peers
        self._access = access
        self._actor = access.actor("minicodex")
        self._open_session = open_session
        self._replay_entries = replay_entries
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._session_id: str | None = None
        self._capabilities: frozenset[str] = frozenset()
        self._greeted = False
        self._subscription: tower.Subscription | None = None
        self._is_behind = False
        """It was told to drain, and not yet that all is well again."""
        self._coming: tower.Subscription | None = None
        """What it will follow, as soon as it was told where the session stands."""
        self._held: list[Packet] | None = None
        """What comes behind a snapshot that is being made."""
        self._story = Story.empty()
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    # The receiver's side

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._peers.add(self)
        self._worker = asyncio.get_running_loop().create_task(self._work())

    def received(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._incoming.put_nowait(frame)
        # One at a time and in order: whoever sends faster than we answer is not read from meanwhile.
        if self._stream is not None:
            self._stream.pause_reading()

    def refused(self, problem: str) -> None:
        self._say(outbound.error("INVALID_COMMAND", problem))

    def writable_again(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            self._read_on()
            if self._subscription is not None:
                self._subscription.wake()

    def disconnected(self) -> None:
        self._stream = self._outbox = None
        self._peers.discard(self)
        self._stop_following()
        if self._worker is not None:
            self._worker.cancel()

    # The outlet's side

    @property
    def ready(self) -> bool:
        return self._outbox is not None and self._outbox.ready and (self._held is None or len(self._held) < MOST_HELD)

    def deliver(self, batch: tower.Batch) -> None:
        packet, self._story = self._library.told(self._story, batch)
        if packet is not None and self._held is not None:
            self._held.append(packet)
        elif packet is not None and self._outbox is not None:
            self._outbox.send(packet)
        if batch.entries[-1].kind == events.SessionDeleted.kind:
            self._say(outbound.error("UNKNOWN_SESSION", f"the session `{batch.session_id}` was deleted"))
            self._part(POLICY_VIOLATION, "no such session")

    def fell_behind(self, session_id: str) -> None:
        """Too slow for the retention: what it misses cannot be told any more."""
        assert self._subscription is not None, "it was subscribed"
        last_seen = stamps.event_id(self._subscription.cursor, stamps.LAST_PLACE)
        self._subscription = None
        self._say(outbound.replay_gap(last_seen, None))

    def behind(self, session_id: str) -> None:
        self._is_behind = True
        self._say(outbound.backpressure("drain"))

    def caught_up(self, session_id: str) -> None:
        self._is_behind = False
        self._say(outbound.backpressure("ok"))

    def beat(self, packet: Packet) -> None:
        if self._greeted and self.ready and self._outbox is not None:
            self._outbox.send(packet)

    def let_go(self) -> None:
        self._part(SERVICE_RESTART, "service restart, reconnect")

    def _say(self, *frames: bytes) -> None:
        if self._outbox is not None:
            self._outbox.send(Packet(frames))

    # Commands, one after the other

    async def _work(self) -> None:
        while True:
            await self._handle(await self._incoming.get())
            self._read_on()

    def _read_on(self) -> None:
        """Once it has its answers, and takes them."""
        if self._incoming.empty() and self._stream is not None and self._outbox is not None and self._outbox.ready:
            self._stream.resume_reading()

    async def _handle(self, frame: bytes) -> None:
        req_id: str | None = None
        try:
            message = inbound.parse(frame, self._capabilities)
            req_id = message.req_id
            await self._do(message)
        except inbound.Refused as refused:
            self._say(outbound.error(refused.code, refused.message, refused.req_id, refused.details))
        except core_errors.CoreError as refusal:
            self._say(outbound.error(*errors.of(refusal), req_id))
        except Exception:
            log.exception("a minicodex command failed")
            self._say(outbound.error("INTERNAL_ERROR", "The daemon failed at this; its log says why", req_id))

    async def _do(self, message: messages.ClientMessage) -> None:
        self._access.check(permissions.action_of(message))
        if isinstance(message, messages.Hello):
            await self._hello(message)
        elif isinstance(message, messages.Resume):
            await self._resume(message)
        elif not self._greeted or self._session_id is None:
            raise inbound.Refused("INVALID_COMMAND", "say `hello` or `resume` first", message.req_id)
        else:
            self._check_session(message, self._session_id)
            await self._check_run(message, self._session_id)
            await self._command(message, self._session_id)

    def _check_session(self, message: messages.ClientMessage, session_id: str) -> None:
        """minicodex, Envelope: a command for another session does nothing in this one."""
        if message.session_id not in (None, session_id):
            about = f"`session_id`: this connection has the session `{session_id}`"
            raise inbound.Refused("BAD_ARGUMENT", about, message.req_id, {"field": "session_id"})

    async def _check_run(self, message: messages.ClientMessage, session_id: str) -> None:
        """minicodex, Errors: what is meant for another run than the active one does nothing in this one."""
        if message.run_id is None or not isinstance(message, _OF_A_RUN):
            return
        session = await self._tower.session(session_id)
        if session.run is None and isinstance(message, messages.Abort):
            raise inbound.Refused("NOT_RUNNING", "no run is active", message.req_id)
        if session.run is None or message.run_id.lower() != stamps.run_uuid(session.run.id).decode():
            raise inbound.Refused("STALE_RUN_ID", f"`{message.run_id}` is not the active run", message.req_id)

    # Coming and coming back

    async def _hello(self, message: messages.Hello) -> None:
        if message.v.partition(".")[0] != MAJOR:
            about = f"this server speaks {messages.VERSION}, not {message.v}"
            self._say(outbound.error("UNSUPPORTED_VERSION", about, message.req_id, {"supported": [messages.VERSION]}))
            self._part(PROTOCOL_ERROR, "unsupported version")
            return
        self._capabilities = frozenset(message.client_capabilities) & frozenset(CAPABILITIES)
        session_id = await self._opened(message)
        if session_id is not None:
            await self._tell_all(session_id, welcome=True, req_id=message.req_id)

    async def _resume(self, message: messages.Resume) -> None:
        session_id = await self._opened(message)
        if session_id is None:
            return
        if message.last_seen_event_id is None:
            await self._tell_all(session_id, welcome=True, req_id=message.req_id)
            return
        seq, _ = stamps.after(message.last_seen_event_id)
        attachment = await self._attached(session_id, seq)
        head = attachment.session.seq
        book = await self._library.book(session_id, attachment.subscription.cursor if attachment.gap else head)
        self._say(outbound.welcome(book.snapshot, CAPABILITIES, message.req_id))
        self._greeted = True
        if attachment.gap or head - seq > self._replay_entries:
            self._stop_following()
            earliest = max(attachment.earliest_seq, head - self._replay_entries + 1)
            self._say(outbound.replay_gap(message.last_seen_event_id, stamps.event_id(earliest, 0), message.req_id))
            return
        await self._replay(session_id, message.last_seen_event_id, attachment.subscription)

    async def _replay(self, session_id: str, last_seen_event_id: int, subscription: tower.Subscription) -> None:
        """Exactly what is missing: the rest of the entry that was seen in part, then everything behind it."""
        seq, _ = stamps.after(last_seen_event_id)
        before, entry = await self._library.story_at(session_id, max(seq - 1, 0)), None
        async for entries in self._library.pages(session_id, seq - 1, seq):
            entry = entries[-1]
        frames, state = story.resume(before, session_id, entry, last_seen_event_id)
        if frames:
            self._say(*frames)
        self._follow(subscription, state)

    async def _tell_all(
        self, session_id: str, *, welcome: bool = False, with_transcript: bool = True, req_id: str | None = None
    ) -> None:
        """Where the session stands, and everything that happens from there on."""
        attachment = await self._attached(session_id, tower.FROM_THE_HEAD)
        book = await self._library.book(session_id, attachment.subscription.cursor)
        if welcome:
            self._say(outbound.welcome(book.snapshot, CAPABILITIES, req_id))
            self._greeted, req_id = True, None
        self._say(book.snapshot.frame(CAPABILITIES, with_transcript=with_transcript, req_id=req_id))
        self._follow(attachment.subscription, book.story)

    def _follow(self, subscription: tower.Subscription, state: Story) -> None:
        self._subscription, self._coming, self._story = subscription, None, state
        if self._is_behind:  # what it was behind of is not coming any more: it begins again
            self._is_behind = False
            self._say(outbound.backpressure("ok"))
        if self._stream is None:
            subscription.close()
        else:
            subscription.start()

    def _stop_following(self) -> None:
        for subscription in (self._subscription, self._coming):
            if subscription is not None:
                subscription.close()
        self._subscription = self._coming = None

    async def _opened(self, message: messages.Hello | messages.Resume) -> str | None:
        if message.session_id is not None and (chosen := self._session_id or self._chosen_id) is None:
            about = "`session_id`: a session is chosen in the URL; hint: connect with `?session_id=`"
            raise inbound.Refused("BAD_ARGUMENT", about, message.req_id, {"field": "session_id"})
        if message.session_id is not None and chosen is not None:
            self._check_session(message, chosen)
        if self._session_id is None:
            try:
                self._session_id = await self._open_session(self._actor)
            except core_errors.SessionNotFound as refusal:
                self._say(outbound.error("UNKNOWN_SESSION", refusal.message, message.req_id))
                self._part(POLICY_VIOLATION, "no such session")
        return self._session_id

    def _part(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    async def _attached(self, session_id: str, after_seq: int) -> tower.Attachment:
        # It is told nothing more until it is told where it stands: otherwise it might hear the same twice.
        self._stop_following()
        attached: asyncio.Future[tower.Attachment] = asyncio.get_running_loop().create_future()

        def done(attachment: tower.Attachment | core_errors.CoreError) -> None:
            if isinstance(attachment, core_errors.CoreError):
                if not attached.done():
                    attached.set_exception(attachment)
            elif attached.done():
                attachment.subscription.close()  # the client is gone
            else:
                self._coming = attachment.subscription
                attached.set_result(attachment)

        self._tower.attach(session_id, after_seq, self, admit=lambda _: None, done=done)
        return await attached

    # What is asked of the session

    async def _command(self, message: messages.ClientMessage, session_id: str) -> None:
        match message:
            case messages.Ping():
                self._say(outbound.accepted(message.req_id or message.nonce))
            case messages.GetSnapshot():
                await self._snapshot(session_id, message)
            case messages.Send():
                await self._ask(
                    commands.SendMessage(
                        session_id=session_id,
                        actor=self._actor,
                        text=message.text,
                        client_message_id=message.client_msg_id,
                    ),
                    message.req_id,
                )
            case messages.Approve():
                await self._decide(session_id, message.call_id, events.Verdict.APPROVE, message.req_id)
            case messages.Deny():
                verdict = events.Verdict.DENY_STOP if message.abort else events.Verdict.DENY_CONTINUE
                await self._decide(session_id, message.call_id, verdict, message.req_id)
            case messages.Abort():
                await self._abort(session_id, message)
            case _:
                raise inbound.Refused("INVALID_COMMAND", "this is not expected here", message.req_id)

    async def _snapshot(self, session_id: str, message: messages.GetSnapshot) -> None:
        """As of what this client has been told; for one that is told nothing, because of a gap, it goes on from here."""
        with_transcript = message.include_transcript_window
        if self._subscription is None:
            await self._tell_all(session_id, with_transcript=with_transcript, req_id=message.req_id)
            return
        # minicodex, interop: the stream goes on behind the snapshot, so what happens meanwhile must not overtake it.
        held: list[Packet] = []
        self._held = held
        try:
            book = await self._library.book(session_id, self._subscription.cursor)
            self._say(book.snapshot.frame(CAPABILITIES, with_transcript=with_transcript, req_id=message.req_id))
        finally:
            self._held = None
            for packet in held:
                self._say(*packet.frames)
            if self.ready and self._subscription is not None:
                self._subscription.wake()

    async def _decide(self, session_id: str, call_id: str, verdict: events.Verdict, req_id: str | None) -> None:
        session = await self._tower.session(session_id)
        pending = {approval.call_id: approval.id for approval in session.run.pending.values()} if session.run else {}
        if call_id not in pending:
            book = await self._library.book(session_id, session.seq)
            if call_id in book.closed:
                raise inbound.Refused("APPROVAL_CONFLICT", f"the question about `{call_id}` {book.closed[call_id]}", req_id)
            raise inbound.Refused("UNKNOWN_CALL_ID", f"nothing is asked about `{call_id}`", req_id)
        command = commands.DecideApproval(session_id=session_id, actor=self._actor, approval_id=pending[call_id], verdict=verdict)
        await self._ask(command, req_id)

    async def _abort(self, session_id: str, message: messages.Abort) -> None:
        session: Session = await self._tower.session(session_id)
        if session.run is None:
            raise inbound.Refused("NOT_RUNNING", "no run is active", message.req_id)
        command = commands.CancelRun(session_id=session_id, actor=self._actor, run_id=session.run.id, reason="abort")
        await self._ask(command, message.req_id)

    async def _ask(self, command: commands.AnyCommand, req_id: str | None) -> None:
        """The answer is given in the session's own order: before the events of what was asked."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(outcome: tower.Outcome | core_errors.CoreError) -> None:
            if isinstance(outcome, core_errors.CoreError):
                self._say(outbound.error(*errors.of(outcome), req_id))
            else:
                self._say(outbound.accepted(req_id))
            if not asked.done():
                asked.set_result(None)

        self._tower.submit(command, done)
        await asked
