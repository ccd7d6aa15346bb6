"""One MiniCodex client: it greets or resumes, gets a snapshot of the session, and then every event after it.

Its commands become commands of the session service. While a client does not read, the daemon does not read from it: the client
gets a backpressure frame, pages from the journal, and gets another frame when it has caught up. The frames that belong to no
event of the session are encoded here: greetings, answers, errors, heartbeats and backpressure.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal

from msgspec import json

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.core.session import Session
from switchtower.protocols.minicodex import encoder, errors, frame_writer, inbound, messages
from switchtower.protocols.minicodex.encoder import MiniCodexStreamState
from switchtower.protocols.minicodex.session_views import SessionViewCache, TranscriptSnapshot
from switchtower.transports.stream import Outbox, Packet, Stream

_encode = json.Encoder().encode


def encode_welcome(snapshot: TranscriptSnapshot, capabilities: Sequence[str], req_id: str | None) -> bytes:
    state = snapshot.make_session_state(capabilities)
    return _encode(_drop_nulls({"type": "welcome", "v": messages.VERSION, "session_state": state, "req_id": req_id}))


def encode_accepted(req_id: str | None) -> bytes:
    return _encode(_drop_nulls({"type": "accepted", "req_id": req_id}))


def encode_error(code: str, message: str, req_id: str | None = None, details: dict[str, Any] | None = None) -> bytes:
    return _encode(_drop_nulls({"type": "error", "code": code, "message": message, "req_id": req_id, "details": details}))


def encode_replay_gap(last_seen_event_id: int, earliest_event_id: int | None, req_id: str | None = None) -> bytes:
    details = {"last_seen_event_id": last_seen_event_id, "earliest_event_id": earliest_event_id}
    return encode_error("REPLAY_GAP", "what was missed cannot be replayed; send `get_snapshot`", req_id, details)


def encode_heartbeat(interval_ms: int) -> bytes:
    return _encode({"type": "heartbeat", "interval_ms": interval_ms})


def encode_backpressure(state: Literal["drain", "ok"]) -> bytes:
    return _encode({"type": "backpressure", "state": state})


def _drop_nulls(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if value is not None}


log = logging.getLogger(__name__)

OpenSession = Callable[[events.Actor], Awaitable[str]]

MAX_HELD_PACKETS = 64
"""The number of packets held back while a snapshot is made."""
POLICY_VIOLATION, PROTOCOL_ERROR, SERVICE_RESTART = 1008, 1002, 1012
MAJOR = messages.VERSION.partition(".")[0]
CAPABILITIES = ("reasoning", "approvals", "replay", "deny_abort")
"""Our capabilities; `deny_abort` only counts for a client that declares it too."""
_RUN_MESSAGES = (messages.Send, messages.Approve, messages.Deny, messages.Abort)
"""Commands that change something, and whose `run_id` is checked."""


class MiniCodexConnection:
    """Implements `stream.Receiver`, `session_service.Subscriber` and `session_service.LagObserver`."""

    protocol: ClassVar[str] = "minicodex"

    def __init__(
        self,
        views: SessionViewCache,
        connections: "set[MiniCodexConnection]",
        access: Access,
        open_session: OpenSession,
        *,
        replay_entries: int,
        session_id: str | None = None,
    ) -> None:
        """`session_id` is the session that the client has chosen in the URL."""
        self._requested_session_id = session_id
        self._views = views
        self._tower = views.tower
        self._connections = connections
        self._access = access
        self._actor = access.make_actor("minicodex")
        self._open_session = open_session
        self._replay_entries = replay_entries
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._session_id: str | None = None
        self._capabilities: frozenset[str] = frozenset()
        self._is_greeted = False
        self._subscription: session_service.Subscription | None = None
        self._is_behind = False
        """The client has been sent `drain`, and not yet `ok`."""
        self._next_subscription: session_service.Subscription | None = None
        """The subscription that starts as soon as the client has its snapshot."""
        self._held: list[Packet] | None = None
        """Packets that follow a snapshot which is being made."""
        self._state = MiniCodexStreamState.make_empty()
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._connections.add(self)
        self._worker = asyncio.get_running_loop().create_task(self._process_frames())

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._incoming.put_nowait(frame)
        # Frames are handled one at a time and in order: a client that sends faster than we answer is not read from meanwhile.
        if self._stream is not None:
            self._stream.pause_reading()

    def on_oversized_frame(self, problem: str) -> None:
        self._send(encode_error("INVALID_COMMAND", problem))

    def on_writable(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            self._resume_reading()
            if self._subscription is not None:
                self._subscription.wake()

    def on_disconnected(self) -> None:
        self._stream = self._outbox = None
        self._connections.discard(self)
        self._stop_following()
        if self._worker is not None:
            self._worker.cancel()

    # The subscriber's side

    @property
    def is_ready(self) -> bool:
        return self._outbox is not None and self._outbox.is_ready and (self._held is None or len(self._held) < MAX_HELD_PACKETS)

    def deliver(self, batch: session_service.Batch) -> None:
        packet, self._state = self._views.encode_batch(self._state, batch)
        if packet is not None and self._held is not None:
            self._held.append(packet)
        elif packet is not None and self._outbox is not None:
            self._outbox.send(packet)
        if batch.entries[-1].kind == events.SessionDeleted.kind:
            self._send(encode_error("UNKNOWN_SESSION", f"the session `{batch.session_id}` was deleted"))
            self._close(POLICY_VIOLATION, "no such session")

    def on_gap(self, session_id: str) -> None:
        """The client was too slow for the retention: the events that it misses cannot be sent any more."""
        assert self._subscription is not None, "it was subscribed"
        last_seen = frame_writer.make_event_id(self._subscription.cursor, frame_writer.LAST_FRAME_INDEX)
        self._subscription = None
        self._send(encode_replay_gap(last_seen, None))

    def on_lagging(self, session_id: str) -> None:
        self._is_behind = True
        self._send(encode_backpressure("drain"))

    def on_caught_up(self, session_id: str) -> None:
        self._is_behind = False
        self._send(encode_backpressure("ok"))

    def send_heartbeat(self, packet: Packet) -> None:
        if self._is_greeted and self.is_ready and self._outbox is not None:
            self._outbox.send(packet)

    def close_for_restart(self) -> None:
        self._close(SERVICE_RESTART, "service restart, reconnect")

    def _send(self, *frames: bytes) -> None:
        if self._outbox is not None:
            self._outbox.send(Packet(frames))

    # Commands, one after the other

    async def _process_frames(self) -> None:
        while True:
            await self._handle(await self._incoming.get())
            self._resume_reading()

    def _resume_reading(self) -> None:
        """Reading resumes once the client has its answers and takes them."""
        if self._incoming.empty() and self._stream is not None and self._outbox is not None and self._outbox.is_ready:
            self._stream.resume_reading()

    async def _handle(self, frame: bytes) -> None:
        req_id: str | None = None
        try:
            message = inbound.parse(frame, self._capabilities)
            req_id = message.req_id
            await self._execute(message)
        except inbound.MiniCodexRequestError as refused:
            self._send(encode_error(refused.code, refused.message, refused.req_id, refused.details))
        except core_errors.CoreError as refusal:
            self._send(encode_error(*errors.convert_core_error(refusal), req_id))
        except Exception:
            log.exception("a minicodex command failed")
            self._send(encode_error("INTERNAL_ERROR", "The daemon failed at this; its log says why", req_id))

    async def _execute(self, message: messages.ClientMessage) -> None:
        self._access.check_action(inbound.get_action(message))
        if isinstance(message, messages.Hello):
            await self._handle_hello(message)
        elif isinstance(message, messages.Resume):
            await self._resume(message)
        elif not self._is_greeted or self._session_id is None:
            raise inbound.MiniCodexRequestError("INVALID_COMMAND", "say `hello` or `resume` first", message.req_id)
        else:
            self._check_session(message, self._session_id)
            await self._check_run(message, self._session_id)
            await self._execute_command(message, self._session_id)

    def _check_session(self, message: messages.ClientMessage, session_id: str) -> None:
        """minicodex, Envelope: a command for another session does nothing in this one."""
        if message.session_id not in (None, session_id):
            about = f"`session_id`: this connection has the session `{session_id}`"
            raise inbound.MiniCodexRequestError("BAD_ARGUMENT", about, message.req_id, {"field": "session_id"})

    async def _check_run(self, message: messages.ClientMessage, session_id: str) -> None:
        """minicodex, Errors: a command for another run than the active one does nothing in this one."""
        if message.run_id is None or not isinstance(message, _RUN_MESSAGES):
            return
        session = await self._tower.get_session(session_id)
        if session.run is None and isinstance(message, messages.Abort):
            raise inbound.MiniCodexRequestError("NOT_RUNNING", "no run is active", message.req_id)
        if session.run is None or message.run_id.lower() != frame_writer.make_run_uuid(session.run.id).decode():
            raise inbound.MiniCodexRequestError("STALE_RUN_ID", f"`{message.run_id}` is not the active run", message.req_id)

    # Hello and resume

    async def _handle_hello(self, message: messages.Hello) -> None:
        if message.v.partition(".")[0] != MAJOR:
            about = f"this server speaks {messages.VERSION}, not {message.v}"
            self._send(encode_error("UNSUPPORTED_VERSION", about, message.req_id, {"supported": [messages.VERSION]}))
            self._close(PROTOCOL_ERROR, "unsupported version")
            return
        self._capabilities = frozenset(message.client_capabilities) & frozenset(CAPABILITIES)
        session_id = await self._ensure_session(message)
        if session_id is not None:
            await self._send_full_state(session_id, welcome=True, req_id=message.req_id)

    async def _resume(self, message: messages.Resume) -> None:
        session_id = await self._ensure_session(message)
        if session_id is None:
            return
        if message.last_seen_event_id is None:
            await self._send_full_state(session_id, welcome=True, req_id=message.req_id)
            return
        seq, _ = frame_writer.parse_event_id(message.last_seen_event_id)
        attachment = await self._attach(session_id, seq)
        head = attachment.session.seq
        book = await self._views.get_view(session_id, attachment.subscription.cursor if attachment.gap else head)
        self._send(encode_welcome(book.snapshot, CAPABILITIES, message.req_id))
        self._is_greeted = True
        if attachment.gap or head - seq > self._replay_entries:
            self._stop_following()
            earliest = max(attachment.earliest_seq, head - self._replay_entries + 1)
            self._send(encode_replay_gap(message.last_seen_event_id, frame_writer.make_event_id(earliest, 0), message.req_id))
            return
        await self._replay(session_id, message.last_seen_event_id, attachment.subscription)

    async def _replay(self, session_id: str, last_seen_event_id: int, subscription: session_service.Subscription) -> None:
        """Sends exactly the missing frames: the rest of the entry that the client saw in part, then every entry after it."""
        seq, _ = frame_writer.parse_event_id(last_seen_event_id)
        before, entry = await self._views.get_stream_state(session_id, max(seq - 1, 0)), None
        async for entries in self._views.read_pages(session_id, seq - 1, seq):
            entry = entries[-1]
        frames, state = encoder.encode_rest_of_entry(before, session_id, entry, last_seen_event_id)
        if frames:
            self._send(*frames)
        self._follow(subscription, state)

    async def _send_full_state(
        self, session_id: str, *, welcome: bool = False, with_transcript: bool = True, req_id: str | None = None
    ) -> None:
        """Sends a snapshot of the session, and every event after it."""
        attachment = await self._attach(session_id, session_service.HEAD_CURSOR)
        book = await self._views.get_view(session_id, attachment.subscription.cursor)
        if welcome:
            self._send(encode_welcome(book.snapshot, CAPABILITIES, req_id))
            self._is_greeted, req_id = True, None
        self._send(book.snapshot.encode_frame(CAPABILITIES, with_transcript=with_transcript, req_id=req_id))
        self._follow(attachment.subscription, book.stream_state)

    def _follow(self, subscription: session_service.Subscription, state: MiniCodexStreamState) -> None:
        self._subscription, self._next_subscription, self._state = subscription, None, state
        if self._is_behind:  # the events that it lagged behind will not be sent: it starts again
            self._is_behind = False
            self._send(encode_backpressure("ok"))
        if self._stream is None:
            subscription.close()
        else:
            subscription.start()

    def _stop_following(self) -> None:
        for subscription in (self._subscription, self._next_subscription):
            if subscription is not None:
                subscription.close()
        self._subscription = self._next_subscription = None

    async def _ensure_session(self, message: messages.Hello | messages.Resume) -> str | None:
        if message.session_id is not None and (chosen := self._session_id or self._requested_session_id) is None:
            about = "`session_id`: a session is chosen in the URL; hint: connect with `?session_id=`"
            raise inbound.MiniCodexRequestError("BAD_ARGUMENT", about, message.req_id, {"field": "session_id"})
        if message.session_id is not None and chosen is not None:
            self._check_session(message, chosen)
        if self._session_id is None:
            try:
                self._session_id = await self._open_session(self._actor)
            except core_errors.SessionNotFound as refusal:
                self._send(encode_error("UNKNOWN_SESSION", refusal.message, message.req_id))
                self._close(POLICY_VIOLATION, "no such session")
        return self._session_id

    def _close(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    async def _attach(self, session_id: str, after_seq: int) -> session_service.Attachment:
        # The client gets no more frames until its snapshot: otherwise it might get the same event twice.
        self._stop_following()
        attached: asyncio.Future[session_service.Attachment] = asyncio.get_running_loop().create_future()

        def done(attachment: session_service.Attachment | core_errors.CoreError) -> None:
            if isinstance(attachment, core_errors.CoreError):
                if not attached.done():
                    attached.set_exception(attachment)
            elif attached.done():
                attachment.subscription.close()  # the client has disconnected
            else:
                self._next_subscription = attachment.subscription
                attached.set_result(attachment)

        self._tower.attach(session_id, after_seq, self, admit=lambda _: None, done=done)
        return await attached

    # Commands for the session

    async def _execute_command(self, message: messages.ClientMessage, session_id: str) -> None:
        match message:
            case messages.Ping():
                self._send(encode_accepted(message.req_id or message.nonce))
            case messages.GetSnapshot():
                await self._send_snapshot(session_id, message)
            case messages.Send():
                await self._submit(
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
                raise inbound.MiniCodexRequestError("INVALID_COMMAND", "this is not expected here", message.req_id)

    async def _send_snapshot(self, session_id: str, message: messages.GetSnapshot) -> None:
        """Sends a snapshot as of the last event that this client was sent; a client that follows nothing, because of a gap,
        resumes from it."""
        with_transcript = message.include_transcript_window
        if self._subscription is None:
            await self._send_full_state(session_id, with_transcript=with_transcript, req_id=message.req_id)
            return
        # minicodex, interop: the stream continues after the snapshot, so events that happen meanwhile must not overtake it.
        held: list[Packet] = []
        self._held = held
        try:
            book = await self._views.get_view(session_id, self._subscription.cursor)
            self._send(book.snapshot.encode_frame(CAPABILITIES, with_transcript=with_transcript, req_id=message.req_id))
        finally:
            self._held = None
            for packet in held:
                self._send(*packet.frames)
            if self.is_ready and self._subscription is not None:
                self._subscription.wake()

    async def _decide(self, session_id: str, call_id: str, verdict: events.Verdict, req_id: str | None) -> None:
        session = await self._tower.get_session(session_id)
        pending = {approval.call_id: approval.id for approval in session.run.pending.values()} if session.run else {}
        if call_id not in pending:
            book = await self._views.get_view(session_id, session.seq)
            if call_id in book.closed:
                raise inbound.MiniCodexRequestError(
                    "APPROVAL_CONFLICT", f"the question about `{call_id}` {book.closed[call_id]}", req_id
                )
            raise inbound.MiniCodexRequestError("UNKNOWN_CALL_ID", f"nothing is asked about `{call_id}`", req_id)
        command = commands.DecideApproval(session_id=session_id, actor=self._actor, approval_id=pending[call_id], verdict=verdict)
        await self._submit(command, req_id)

    async def _abort(self, session_id: str, message: messages.Abort) -> None:
        session: Session = await self._tower.get_session(session_id)
        if session.run is None:
            raise inbound.MiniCodexRequestError("NOT_RUNNING", "no run is active", message.req_id)
        command = commands.CancelRun(session_id=session_id, actor=self._actor, run_id=session.run.id, reason="abort")
        await self._submit(command, message.req_id)

    async def _submit(self, command: commands.AnyCommand, req_id: str | None) -> None:
        """Submits a command. It is answered in the session's own order: before the events that it causes."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(outcome: session_service.SubmitOutcome | core_errors.CoreError) -> None:
            if isinstance(outcome, core_errors.CoreError):
                self._send(encode_error(*errors.convert_core_error(outcome), req_id))
            else:
                self._send(encode_accepted(req_id))
            if not asked.done():
                asked.set_result(None)

        self._tower.submit(command, done)
        await asked
