"""One push client: its requests become commands of the session service, its subscriptions become frames on its stream.

It knows the session service only by its port and the stream only by its two sides. While a client does not read, the daemon does
not read from it.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

from msgspec import Struct

from switchtower.core import commands, roles
from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.core.rules import admission
from switchtower.core.session import Session
from switchtower.protocols.push import encoder, errors, extension_messages, inbound, list_handlers, messages, session_handlers
from switchtower.transports.stream import Packet, Stream

log = logging.getLogger(__name__)

CAPABILITIES = ["stream_tokens", "approvals", "replay_attach", "headless", *extension_messages.CAPABILITIES]
CLIENT_NAME_LIMIT = 100
TRY_AGAIN_LATER = 1013
SERVICE_RESTART = 1012
MAX_PENDING_REQUESTS = 1_000
"""A client with this many pending requests is not read from until half of them are answered."""


class PushConnection:
    """Implements `stream.Receiver` and `session_service.Subscriber`."""

    protocol: ClassVar[str] = "push"

    def __init__(
        self,
        tower_: session_service.SessionService,
        access: Access,
        runtime_version: str,
        *,
        connections: "set[PushConnection] | None" = None,
    ) -> None:
        """`connections` holds this connection while the client is connected."""
        self._connections = connections
        self.tower = tower_
        self._access = access
        self.actor = access.make_actor()
        self._runtime_version = runtime_version
        self._stream: Stream | None = None
        self._subscriptions: dict[str, session_service.Subscription] = {}
        self._seq_offsets: dict[str, int] = {}
        """Per session: the offset by which this client's numbers differ from the journal's; see `inbound.py`."""
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        """Per session: the snapshot that follows the event with this seq."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_count = 0
        self._is_closing = False
        """The client is no longer read from, and its connection closes after the last answer."""
        self._handlers: dict[str, Callable[[inbound.PushRequest], bytes | None]] = {
            "hello": self._handle_hello,
            "start_session": self._start_session,
            "list_sessions": self._list_sessions,
            "attach_session": self._attach_session,
            "resume_session": self._resume_session,
            "send_user_message": self._send_user_message,
            "submit_approval": self._submit_approval,
            "cancel_run": self._cancel_run,
            "ping": self._handle_ping,
            **session_handlers.make_session_handlers(self),
            **list_handlers.make_list_handlers(self),
            **list_handlers.make_node_handlers(self),
            **list_handlers.make_trust_handlers(self),
        }

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        if self._connections is not None:
            self._connections.add(self)

    def on_frames(self, frames: list[bytes]) -> None:
        answers = [answer for frame in frames if (answer := self._handle(frame)) is not None]
        if answers:
            self._send(Packet(answers))

    def on_oversized_frame(self, problem: str) -> None:
        error = errors.make_error("INVALID_REQUEST", problem)
        self._send(Packet([encoder.encode_error_response(inbound.UNKNOWN_REQUEST, "unknown", None, error)]))

    def on_writable(self) -> None:
        if self._stream is not None and self._pending_count < MAX_PENDING_REQUESTS and not self._is_closing:
            self._stream.resume_reading()
        for subscription in list(self._subscriptions.values()):
            subscription.wake()

    def on_disconnected(self) -> None:
        self._stream = None
        if self._connections is not None:
            self._connections.discard(self)
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()
        self._seq_offsets.clear()
        self._snapshots.clear()
        for task in self._tasks:
            task.cancel()

    def close_for_restart(self, grace_s: float) -> None:
        """Closes the connection because the daemon stops, after the pending requests are answered or `grace_s` has passed.

        push has no frame that announces a restart: an event's `seq` belongs to its session, and this event would have none.
        Clients reconnect with `lastSeenSeq` after any loss of a connection.
        """
        if self._stream is None or self._is_closing:
            return
        self._is_closing = True
        self._stream.pause_reading()
        if self._pending_count == 0:
            self._close_stream_for_restart()
        else:
            asyncio.get_running_loop().call_later(grace_s, self._close_stream_for_restart)

    def _close_stream_for_restart(self) -> None:
        if self._stream is not None:
            self._stream.close(SERVICE_RESTART, "service restart, reconnect")

    # The subscriber's side

    @property
    def is_ready(self) -> bool:
        return self._stream is not None and self._stream.writable

    def deliver(self, batch: session_service.Batch) -> None:
        session_id = batch.session_id
        numbering = self._seq_offsets.get(session_id, 0)
        if (summary := self._snapshots.get(session_id)) and summary[0] <= batch.last_seq:
            del self._snapshots[session_id]
            replayed = [entry for entry in batch.entries if entry.seq <= summary[0]]
            frames = encoder.encode_batch(session_id, replayed, numbering)
            frames += [summary[1], *encoder.encode_batch(session_id, batch.entries[len(replayed) :], numbering)]
            self._send(Packet(frames))
            return
        encoding = f"push+{numbering}" if numbering else "push"
        packet = batch.encodings.get(encoding)
        if packet is None:
            packet = batch.encodings[encoding] = Packet(encoder.encode_batch(session_id, batch.entries, numbering))
        self._send(packet)

    def on_gap(self, session_id: str) -> None:
        """The client was too slow for the retention: it gets the answer to a gap without having asked for it."""
        behind = self._subscriptions.pop(session_id)

        def attached(attachment: session_service.Attachment | core_errors.CoreError) -> None:
            if isinstance(attachment, core_errors.CoreError):
                # The gap cannot be reported now. A client that is disconnected reconnects with its cursor; one that gets no
                # frames would not.
                self._close_overloaded("try again later")
            elif self._stream is None:
                attachment.subscription.close()
            else:
                self._follow(attachment, self._seq_offsets.get(session_id, 0) + behind.cursor, [])

        self.tower.attach(session_id, behind.cursor, self, admit=lambda _: None, done=attached)

    # Requests

    def _handle(self, frame: bytes) -> bytes | None:
        try:
            request = inbound.parse(frame)
        except inbound.PushRequestError as refused:
            return encoder.encode_error_response(refused.request_id, refused.type, None, refused.error)
        try:
            self._access.check_action(inbound.get_action(request.type, request.payload))
            return self._handlers[request.type](request)
        except core_errors.CoreError as refusal:
            return encoder.encode_error_response(
                request.request_id, request.type, request.session_id, errors.convert_core_error(refusal)
            )
        except Exception:
            log.exception("a %s request failed", request.type)
            return encoder.encode_error_response(request.request_id, request.type, request.session_id, errors.INTERNAL)

    def _handle_ping(self, request: inbound.PushRequest) -> bytes:
        if request.session_id is None:
            return encoder.encode_pong(request.request_id, self.tower.now_ms())
        return encoder.encode_response(request.request_id, "ping", request.session_id, messages.Pong(True, self.tower.now_ms()))

    def _handle_hello(self, request: inbound.PushRequest) -> bytes:
        assert isinstance(request.payload, messages.Hello)
        client = f"{request.payload.clientName} {request.payload.clientVersion}".strip()
        self.actor = self._access.make_actor(client[:CLIENT_NAME_LIMIT] or None)
        greeting = messages.HelloAnswer("pushd", self._runtime_version, messages.VERSION, CAPABILITIES)
        return encoder.encode_response(request.request_id, "hello", request.session_id, greeting)

    def _start_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, messages.StartSession)
        session_id = self.tower.mint("sess")
        token = self.tower.mint_secret("att")
        command = inbound.build_start_session(
            request.payload, session_id, self.actor, _hash_token(token), is_owner=self._is_owner_process
        )
        begins_at_once = command.program is not None or command.flow is not None
        self.check_policy(command.policy)
        if self._access.run_id is not None:
            command = self._inherit_from_run(command, self._access.run_id, wants_worktree=request.payload.worktree)
        prepared = self.tower.host_services.prepare_session

        def started(outcome: session_service.SubmitOutcome) -> bytes:
            self._subscribe(session_id, after_seq=0)
            state: messages.SessionState = "running" if begins_at_once else "idle"
            return self.encode_answer(request, session_id, messages.StartSessionAnswer(session_id, state, token))

        wants_worktree = request.payload.worktree
        if not wants_worktree and command.flow is None and self.tower.host_services.is_model_known(command):
            self.submit(prepared(command), request, started)
            return

        async def begin() -> None:
            await self.tower.host_services.look_up_model(command)
            # A flow may have thousands of steps to check; the thread keeps the event loop free for other clients.
            ready = await asyncio.to_thread(prepared, command) if command.flow is not None else prepared(command)
            if wants_worktree:
                ready = await self.tower.host_services.add_worktree(ready)
            self.submit(ready, request, started)

        self.run_request(request, begin)

    def _inherit_from_run(self, command: commands.StartSession, run_id: str, *, wants_worktree: bool) -> commands.StartSession:
        """Options that a process of a run leaves open are copied from the run's session; the session service refuses wider
        ones."""
        parent = self.tower.find_session_of_run(run_id)
        if parent is None or wants_worktree or command.program is not None or command.flow is not None:
            raise core_errors.AttachForbidden(
                hint="a process of a run can start a session with an agent in the run's workspace, and nothing else"
            )
        return admission.inherit_from_parent(command, parent)

    def _list_sessions(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, messages.ListSessions)
        limit = request.payload.limit

        async def listing() -> Struct:
            return messages.ListSessionsAnswer([encoder.make_listed_session(card) for card in await self.tower.list_cards(limit)])

        self.respond_later(request, listing)

    def _attach_session(self, request: inbound.PushRequest) -> None:
        self._attach(request)

    def _resume_session(self, request: inbound.PushRequest) -> None:
        self._attach(request, with_summary=True)

    def _attach(self, request: inbound.PushRequest, *, with_summary: bool = False) -> None:
        assert isinstance(request.payload, messages.AttachSession) and request.session_id
        session_id, last_seen_seq, token = request.session_id, request.payload.lastSeenSeq, request.payload.attachToken
        cursor = inbound.get_journal_seq(last_seen_seq)

        def attached(attachment: session_service.Attachment | core_errors.CoreError) -> None:
            self._count_responded()
            if isinstance(attachment, core_errors.CoreError):
                self._send(Packet([self._encode_refusal(request, attachment)]))
            elif self._stream is None:
                attachment.subscription.close()
            else:
                answer = self._encode_attach_answer(request, attachment, inbound.get_seq_offset(last_seen_seq))
                self._follow(attachment, last_seen_seq, [answer], with_summary=with_summary)

        self._count_pending()
        self.tower.attach(session_id, cursor, self, admit=lambda session: self._admit(session, token), done=attached)

    def _encode_attach_answer(
        self, request: inbound.PushRequest, attachment: session_service.Attachment, seq_offset: int
    ) -> bytes:
        session, subscription = attachment.session, attachment.subscription
        # After a gap nothing is replayed, and the answer has the journal's numbers: a cursor to attach with at another time.
        base = 0 if attachment.gap else seq_offset
        replay = messages.Replay(base + subscription.cursor + 1, base + session.seq, completed=True, gap=attachment.gap)
        return self.encode_answer(
            request, session.id, messages.AttachAnswer(session.id, encoder.convert_state(session.state), replay)
        )

    def _follow(
        self, attachment: session_service.Attachment, last_seen_seq: int, frames: list[bytes], *, with_summary: bool = False
    ) -> None:
        session, now_ms = attachment.session, self.tower.now_ms()
        session_id, numbering = session.id, inbound.get_seq_offset(last_seen_seq)
        self._snapshots.pop(session_id, None)
        if attachment.gap:
            numbering = inbound.get_next_seq_offset(max(last_seen_seq, self._seq_offsets.get(session_id, 0)))
            frames += encoder.encode_gap(session, last_seen_seq, attachment.earliest_seq, now_ms, numbering)
        elif with_summary:
            # push, resume_session: the snapshot follows the replay and has the last replayed number. A client that drops it as a
            # duplicate of that event already has everything that it summarises.
            summary = encoder.encode_snapshot(session, now_ms, numbering)
            if attachment.subscription.cursor >= session.seq:
                frames.append(summary)
            else:
                self._snapshots[session_id] = (session.seq, summary)
        self._set_seq_offset(session_id, numbering)
        if frames:
            self._send(Packet(frames))
        if earlier := self._subscriptions.pop(session_id, None):
            earlier.close()
        self._subscriptions[session_id] = attachment.subscription
        attachment.subscription.start()

    def _set_seq_offset(self, session_id: str, seq_offset: int) -> None:
        if seq_offset:
            self._seq_offsets[session_id] = seq_offset
        else:
            self._seq_offsets.pop(session_id, None)

    def _send_user_message(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, messages.SendUserMessage) and request.session_id
        session_id = request.session_id
        self.check_can_command(session_id)
        if request.payload.rules and self._access.is_from_run:
            raise core_errors.AttachForbidden(session_id, hint="what a run has started cannot add rules to the policy")

        def accepted(outcome: session_service.SubmitOutcome) -> bytes:
            self.subscribe_to_started_run(session_id, outcome)
            return self.encode_answer(request, session_id, messages.SendAnswer(outcome["run_id"], accepted=True))

        self.submit(inbound.build_send_message(request.payload, session_id, self.actor), request, accepted)

    def _submit_approval(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, messages.SubmitApproval) and request.session_id
        self.check_can_command(request.session_id)
        command = inbound.build_decide_approval(request.payload, request.session_id, self.actor)
        self.submit(command, request, lambda _: self.encode_answer(request, command.session_id, messages.Accepted(True)))

    def _cancel_run(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, messages.CancelRun) and request.session_id
        self.check_can_command(request.session_id)
        command = inbound.build_cancel_run(request.payload, request.session_id, self.actor)
        self.submit(command, request, lambda _: self.encode_answer(request, command.session_id, messages.Accepted(True)))

    # Helpers that the handlers share

    def respond_later(self, request: inbound.PushRequest, make_payload: Callable[[], Awaitable[Struct]]) -> None:
        """Answers a request that takes time, while other requests are handled."""

        async def answer() -> None:
            payload = await make_payload()
            self._send(Packet([encoder.encode_response(request.request_id, request.type, request.session_id, payload)]))

        self.run_request(request, answer)

    def run_request(self, request: inbound.PushRequest, work: Callable[[], Awaitable[None]]) -> None:
        """Runs the work of a request that takes time; a failure becomes the request's answer."""

        async def attempt() -> None:
            try:
                await work()
            except core_errors.CoreError as refusal:
                self._send(Packet([self._encode_refusal(request, refusal)]))
            except Exception:
                log.exception("a %s request failed", request.type)
                failed = encoder.encode_error_response(request.request_id, request.type, request.session_id, errors.INTERNAL)
                self._send(Packet([failed]))
            finally:
                self._count_responded()

        self._count_pending()
        task = asyncio.get_running_loop().create_task(attempt())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def submit(
        self,
        command: commands.AnyCommand,
        request: inbound.PushRequest,
        succeeded: Callable[[session_service.SubmitOutcome], bytes],
    ) -> None:
        def done(outcome: session_service.SubmitOutcome | core_errors.CoreError) -> None:
            self._count_responded()
            if self._stream is None:
                return  # the client disconnected meanwhile; its command has been carried out
            if isinstance(outcome, core_errors.CoreError):
                self._send(Packet([self._encode_refusal(request, outcome)]))
            else:
                self._send(Packet([succeeded(outcome)]))

        self._count_pending()
        self.tower.submit(command, done)

    def _count_pending(self) -> None:
        self._pending_count += 1
        if self._pending_count == MAX_PENDING_REQUESTS and self._stream is not None:
            self._stream.pause_reading()

    def _count_responded(self) -> None:
        self._pending_count -= 1
        if self._is_closing:
            if self._pending_count == 0:
                asyncio.get_running_loop().call_soon(
                    self._close_stream_for_restart
                )  # after the answer, which is sent in this turn of the event loop
        elif self._pending_count == MAX_PENDING_REQUESTS // 2 and self.is_ready and self._stream is not None:
            self._stream.resume_reading()

    def subscribe_to_started_run(self, session_id: str, outcome: session_service.SubmitOutcome) -> None:
        """Existing clients expect the events of a run that they started, attached or not."""
        if session_id not in self._subscriptions:
            # Another connection of the same client may have passed a gap: the client would drop numbers below those it has seen
            # there.
            self._set_seq_offset(
                session_id, max((peer._seq_offsets.get(session_id, 0) for peer in self._connections or ()), default=0)
            )
            self._subscribe(session_id, after_seq=outcome["after_seq"])

    def _subscribe(self, session_id: str, after_seq: int) -> None:
        subscription = self._subscriptions[session_id] = self.tower.subscribe(session_id, after_seq, self)
        subscription.start()

    def _admit(self, session: Session, token: str | None) -> None:
        """push, Security Requirements 2: a wrong token never attaches, an absent one only if the client is trusted."""
        if token is None and self._can_command(session.id):
            return
        if token is None or not hmac.compare_digest(_hash_token(token), session.attach_token_sha256):
            raise core_errors.AttachForbidden(
                session.id, hint="pass the `attachToken` that `start_session` answered" if token is None else None
            )

    def _can_command(self, session_id: str) -> bool:
        return self._access.trusted or session_id in self._subscriptions

    @property
    def is_run_process(self) -> bool:
        return self._access.is_from_run

    def check_full_access(self) -> None:
        """Guards requests about sessions other than the one that a token gives access to, and requests that cannot be undone."""
        if not self._access.trusted:
            raise core_errors.AttachForbidden(hint="only the owner may do this, and nothing that a run has started")

    def check_is_operator(self) -> None:
        """Guards requests about the daemon itself and all its users: they need the owner, on the daemon's own machine."""
        if not self._access.trusted or self._access.via != "cli":
            raise core_errors.AttachForbidden(hint="only the owner may do this, on the daemon's own socket")

    def check_is_owner_process(self) -> None:
        """Guards requests that only the owner's own processes may make, whether or not attach tokens are required."""
        if not self._is_owner_process:
            raise core_errors.AttachForbidden(
                hint="only the owner may do this, on the daemon's own socket, and no process of a run"
            )

    @property
    def _is_owner_process(self) -> bool:
        """The client is the owner's process on the daemon's own socket: it has no user's token and is not a process of a run."""
        return self._access.via == "cli" and not self._access.is_from_run

    def check_policy(self, policy: str | None) -> None:
        if policy is not None:
            roles.check_policy(self._access.role, policy, self.tower.host_services.usual_policy)

    def check_can_command(self, session_id: str) -> None:
        if not self._can_command(session_id):
            raise core_errors.AttachForbidden(session_id, hint="attach to the session with its `attachToken` first")

    def encode_answer(self, request: inbound.PushRequest, session_id: str, payload: Struct) -> bytes:
        return encoder.encode_response(request.request_id, request.type, session_id, payload)

    def _encode_refusal(self, request: inbound.PushRequest, refusal: core_errors.CoreError) -> bytes:
        return encoder.encode_error_response(
            request.request_id, request.type, request.session_id, errors.convert_core_error(refusal)
        )

    def _close_overloaded(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(TRY_AGAIN_LATER, reason)

    def _send(self, packet: Packet) -> None:
        stream = self._stream
        if stream is None:
            return
        stream.send(packet)
        if not stream.writable:
            stream.pause_reading()


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
