"""One push client: its requests become commands of the tower, its subscriptions become frames on its stream.

Knows the tower only by its port and the stream only by its two sides. A client that does not read is not read from.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

from msgspec import Struct

from switchtower.core import admission, commands, roles, tower
from switchtower.core import errors as core_errors
from switchtower.core.access import Access
from switchtower.core.session import Session
from switchtower.protocols.push import (
    errors,
    extensions,
    extra_requests,
    inbound,
    listing_requests,
    messages,
    node_requests,
    numbers,
    outbound,
    permissions,
    trust_requests,
)
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

CAPABILITIES = ["stream_tokens", "approvals", "replay_attach", "headless", *extensions.CAPABILITIES]
CLIENT_NAME_LIMIT = 100
TRY_AGAIN_LATER = 1013
SERVICE_RESTART = 1012
UNANSWERED_LIMIT = 1_000
"""With so many requests under way a client is not read from until half of them are answered."""


class PushPeer:
    """Implements `stream.Receiver` and `tower.Outlet`."""

    protocol: ClassVar[str] = "push"

    def __init__(
        self, tower_: tower.Tower, access: Access, runtime_version: str, *, peers: "set[PushPeer] | None" = None
    ) -> None:
        """`peers` has it while it is connected."""
        self._peers = peers
        self.tower = tower_
        self._access = access
        self.actor = access.actor()
        self._runtime_version = runtime_version
        self._stream: Stream | None = None
        self._subscriptions: dict[str, tower.Subscription] = {}
        self._numberings: dict[str, int] = {}
        """By session, where this client's numbers are not the journal's; see `numbers.py`."""
        self._summaries: dict[str, tuple[int, bytes]] = {}
        """By session, the snapshot that follows the event with this seq."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._leaving = False
        """It is not read from any more, and closed with its last answer."""
        self._handlers: dict[str, Callable[[inbound.Request], bytes | None]] = {
            "hello": self._hello,
            "start_session": self._start_session,
            "list_sessions": self._list_sessions,
            "attach_session": self._attach_session,
            "resume_session": self._resume_session,
            "send_user_message": self._send_user_message,
            "submit_approval": self._submit_approval,
            "cancel_run": self._cancel_run,
            "ping": self._ping,
            **extra_requests.handlers(self),
            **listing_requests.handlers(self),
            **node_requests.handlers(self),
            **trust_requests.handlers(self),
        }

    # The receiver's side

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        if self._peers is not None:
            self._peers.add(self)

    def received(self, frames: list[bytes]) -> None:
        answers = [answer for frame in frames if (answer := self._handle(frame)) is not None]
        if answers:
            self._send(Packet(answers))

    def refused(self, problem: str) -> None:
        error = errors.make("INVALID_REQUEST", problem)
        self._send(Packet([outbound.refusal(inbound.UNKNOWN_REQUEST, "unknown", None, error)]))

    def writable_again(self) -> None:
        if self._stream is not None and self._unanswered < UNANSWERED_LIMIT and not self._leaving:
            self._stream.resume_reading()
        for subscription in list(self._subscriptions.values()):
            subscription.wake()

    def disconnected(self) -> None:
        self._stream = None
        if self._peers is not None:
            self._peers.discard(self)
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()
        self._numberings.clear()
        self._summaries.clear()
        for task in self._tasks:
            task.cancel()

    def let_go(self, grace_s: float) -> None:
        """The daemon goes: what was asked is answered, as far as that takes no longer, and then the client is closed.

        push has no frame that says so: an event's `seq` is its session's, and there is none to be had for this. Clients come
        back with `lastSeenSeq` after any loss of a connection."""
        if self._stream is None or self._leaving:
            return
        self._leaving = True
        self._stream.pause_reading()
        if self._unanswered == 0:
            self._part()
        else:
            asyncio.get_running_loop().call_later(grace_s, self._part)

    def _part(self) -> None:
        if self._stream is not None:
            self._stream.close(SERVICE_RESTART, "service restart, reconnect")

    # The outlet's side

    @property
    def ready(self) -> bool:
        return self._stream is not None and self._stream.writable

    def deliver(self, batch: tower.Batch) -> None:
        session_id = batch.session_id
        numbering = self._numberings.get(session_id, 0)
        if (summary := self._summaries.get(session_id)) and summary[0] <= batch.last_seq:
            del self._summaries[session_id]
            replayed = [entry for entry in batch.entries if entry.seq <= summary[0]]
            frames = outbound.frames(session_id, replayed, numbering)
            frames += [summary[1], *outbound.frames(session_id, batch.entries[len(replayed) :], numbering)]
            self._send(Packet(frames))
            return
        encoding = f"push+{numbering}" if numbering else "push"
        packet = batch.encodings.get(encoding)
        if packet is None:
            packet = batch.encodings[encoding] = Packet(outbound.frames(session_id, batch.entries, numbering))
        self._send(packet)

    def fell_behind(self, session_id: str) -> None:
        """Too slow for the retention: the client gets the gap's answer without having asked."""
        behind = self._subscriptions.pop(session_id)

        def attached(attachment: tower.Attachment | core_errors.CoreError) -> None:
            if isinstance(attachment, core_errors.CoreError):
                # It cannot be told now. Cut off, it comes back with its cursor, which no silence would make it do.
                self._cut_off("try again later")
            elif self._stream is None:
                attachment.subscription.close()
            else:
                self._follow(attachment, self._numberings.get(session_id, 0) + behind.cursor, [])

        self.tower.attach(session_id, behind.cursor, self, admit=lambda _: None, done=attached)

    # Requests

    def _handle(self, frame: bytes) -> bytes | None:
        try:
            request = inbound.parse(frame)
        except inbound.Refused as refused:
            return outbound.refusal(refused.request_id, refused.type, None, refused.error)
        try:
            self._access.check(permissions.action_of(request.type, request.payload))
            return self._handlers[request.type](request)
        except core_errors.CoreError as refusal:
            return outbound.refusal(request.request_id, request.type, request.session_id, errors.of(refusal))
        except Exception:
            log.exception("a %s request failed", request.type)
            return outbound.refusal(request.request_id, request.type, request.session_id, errors.INTERNAL)

    def _ping(self, request: inbound.Request) -> bytes:
        if request.session_id is None:
            return outbound.pong(request.request_id, self.tower.now_ms())
        return outbound.answer(request.request_id, "ping", request.session_id, messages.Pong(True, self.tower.now_ms()))

    def _hello(self, request: inbound.Request) -> bytes:
        assert isinstance(request.payload, messages.Hello)
        client = f"{request.payload.clientName} {request.payload.clientVersion}".strip()
        self.actor = self._access.actor(client[:CLIENT_NAME_LIMIT] or None)
        greeting = messages.HelloAnswer("pushd", self._runtime_version, messages.VERSION, CAPABILITIES)
        return outbound.answer(request.request_id, "hello", request.session_id, greeting)

    def _start_session(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, messages.StartSession)
        session_id = self.tower.mint("sess")
        token = self.tower.mint_secret("att")
        command = inbound.start_session(request.payload, session_id, self.actor, _sha256(token), is_owner=self._is_owners_own)
        begins_at_once = command.program is not None or command.flow is not None
        self.check_policy(command.policy)
        if self._access.run_id is not None:
            command = self._as_child(command, self._access.run_id, wants_worktree=request.payload.worktree)
        prepared = self.tower.workshop.prepared

        def started(outcome: tower.Outcome) -> bytes:
            self._subscribe(session_id, after_seq=0)
            state: messages.SessionState = "running" if begins_at_once else "idle"
            return self.answer(request, session_id, messages.StartSessionAnswer(session_id, state, token))

        wants_worktree = request.payload.worktree
        if not wants_worktree and command.flow is None and self.tower.workshop.is_model_looked_up(command):
            self.submit(prepared(command), request, started)
            return

        async def begin() -> None:
            await self.tower.workshop.look_up_model(command)
            # A flow may have thousands of steps to be checked; others go on meanwhile.
            ready = await asyncio.to_thread(prepared, command) if command.flow is not None else prepared(command)
            if wants_worktree:
                ready = await self.tower.workshop.with_worktree(ready)
            self.submit(ready, request, started)

        self.attempt(request, begin)

    def _as_child(self, command: commands.StartSession, run_id: str, *, wants_worktree: bool) -> commands.StartSession:
        """What a process of a run leaves open is as in the run's own session; the tower refuses what is more than that."""
        parent = self.tower.session_of_run(run_id)
        if parent is None or wants_worktree or command.program is not None or command.flow is not None:
            raise core_errors.AttachForbidden(
                hint="a process of a run can start a session with an agent in the run's workspace, and nothing else"
            )
        return admission.inherit(command, parent)

    def _list_sessions(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, messages.ListSessions)
        limit = request.payload.limit

        async def listing() -> Struct:
            return messages.ListSessionsAnswer([outbound.listed(card) for card in await self.tower.cards(limit)])

        self.answer_later(request, listing)

    def _attach_session(self, request: inbound.Request) -> None:
        self._attach(request)

    def _resume_session(self, request: inbound.Request) -> None:
        self._attach(request, with_summary=True)

    def _attach(self, request: inbound.Request, *, with_summary: bool = False) -> None:
        assert isinstance(request.payload, messages.AttachSession) and request.session_id
        session_id, last_seen_seq, token = request.session_id, request.payload.lastSeenSeq, request.payload.attachToken
        cursor = numbers.journal_seq(last_seen_seq)

        def attached(attachment: tower.Attachment | core_errors.CoreError) -> None:
            self._one_answered()
            if isinstance(attachment, core_errors.CoreError):
                self._send(Packet([self._refusal(request, attachment)]))
            elif self._stream is None:
                attachment.subscription.close()
            else:
                answer = self._attach_answer(request, attachment, numbers.numbering_of(last_seen_seq))
                self._follow(attachment, last_seen_seq, [answer], with_summary=with_summary)

        self._one_more_unanswered()
        self.tower.attach(session_id, cursor, self, admit=lambda session: self._admit(session, token), done=attached)

    def _attach_answer(self, request: inbound.Request, attachment: tower.Attachment, numbering: int) -> bytes:
        session, subscription = attachment.session, attachment.subscription
        # With a gap nothing is replayed, and the answer has the journal's numbers: a place to attach at another time.
        base = 0 if attachment.gap else numbering
        replay = messages.Replay(base + subscription.cursor + 1, base + session.seq, completed=True, gap=attachment.gap)
        return self.answer(request, session.id, messages.AttachAnswer(session.id, outbound.wire_state(session.state), replay))

    def _follow(
        self, attachment: tower.Attachment, last_seen_seq: int, frames: list[bytes], *, with_summary: bool = False
    ) -> None:
        session, now_ms = attachment.session, self.tower.now_ms()
        session_id, numbering = session.id, numbers.numbering_of(last_seen_seq)
        self._summaries.pop(session_id, None)
        if attachment.gap:
            numbering = numbers.next_numbering(max(last_seen_seq, self._numberings.get(session_id, 0)))
            frames += outbound.gap_frames(session, last_seen_seq, attachment.earliest_seq, now_ms, numbering)
        elif with_summary:
            # push, resume_session: behind the replay, and with the last replayed number. A client that takes it for a
            # duplicate of that event has all that it summarises.
            summary = outbound.snapshot_frame(session, now_ms, numbering)
            if attachment.subscription.cursor >= session.seq:
                frames.append(summary)
            else:
                self._summaries[session_id] = (session.seq, summary)
        self._number(session_id, numbering)
        if frames:
            self._send(Packet(frames))
        if earlier := self._subscriptions.pop(session_id, None):
            earlier.close()
        self._subscriptions[session_id] = attachment.subscription
        attachment.subscription.start()

    def _number(self, session_id: str, numbering: int) -> None:
        if numbering:
            self._numberings[session_id] = numbering
        else:
            self._numberings.pop(session_id, None)

    def _send_user_message(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, messages.SendUserMessage) and request.session_id
        session_id = request.session_id
        self.check_may_command(session_id)
        if request.payload.rules and self._access.of_a_run:
            raise core_errors.AttachForbidden(session_id, hint="what a run has started cannot add rules to the policy")

        def accepted(outcome: tower.Outcome) -> bytes:
            self.hear_of(session_id, outcome)
            return self.answer(request, session_id, messages.SendAnswer(outcome["run_id"], accepted=True))

        self.submit(inbound.send_message(request.payload, session_id, self.actor), request, accepted)

    def _submit_approval(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, messages.SubmitApproval) and request.session_id
        self.check_may_command(request.session_id)
        command = inbound.decide_approval(request.payload, request.session_id, self.actor)
        self.submit(command, request, lambda _: self.answer(request, command.session_id, messages.Accepted(True)))

    def _cancel_run(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, messages.CancelRun) and request.session_id
        self.check_may_command(request.session_id)
        command = inbound.cancel_run(request.payload, request.session_id, self.actor)
        self.submit(command, request, lambda _: self.answer(request, command.session_id, messages.Accepted(True)))

    # What they share

    def answer_later(self, request: inbound.Request, find: Callable[[], Awaitable[Struct]]) -> None:
        """Answers a question that takes time, while others go on."""

        async def answer() -> None:
            payload = await find()
            self._send(Packet([outbound.answer(request.request_id, request.type, request.session_id, payload)]))

        self.attempt(request, answer)

    def attempt(self, request: inbound.Request, work: Callable[[], Awaitable[None]]) -> None:
        """Does what takes time; a failure of it is the request's answer."""

        async def attempt() -> None:
            try:
                await work()
            except core_errors.CoreError as refusal:
                self._send(Packet([self._refusal(request, refusal)]))
            except Exception:
                log.exception("a %s request failed", request.type)
                failed = outbound.refusal(request.request_id, request.type, request.session_id, errors.INTERNAL)
                self._send(Packet([failed]))
            finally:
                self._one_answered()

        self._one_more_unanswered()
        task = asyncio.get_running_loop().create_task(attempt())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def submit(self, command: commands.AnyCommand, request: inbound.Request, succeeded: Callable[[tower.Outcome], bytes]) -> None:
        def done(outcome: tower.Outcome | core_errors.CoreError) -> None:
            self._one_answered()
            if self._stream is None:
                return  # gone meanwhile; what it asked for has happened all the same
            if isinstance(outcome, core_errors.CoreError):
                self._send(Packet([self._refusal(request, outcome)]))
            else:
                self._send(Packet([succeeded(outcome)]))

        self._one_more_unanswered()
        self.tower.submit(command, done)

    def _one_more_unanswered(self) -> None:
        self._unanswered += 1
        if self._unanswered == UNANSWERED_LIMIT and self._stream is not None:
            self._stream.pause_reading()

    def _one_answered(self) -> None:
        self._unanswered -= 1
        if self._leaving:
            if self._unanswered == 0:
                asyncio.get_running_loop().call_soon(self._part)  # behind the answer, which is said in this very turn
        elif self._unanswered == UNANSWERED_LIMIT // 2 and self.ready and self._stream is not None:
            self._stream.resume_reading()

    def hear_of(self, session_id: str, outcome: tower.Outcome) -> None:
        """Existing clients expect to hear of a run that they started, attached or not."""
        if session_id not in self._subscriptions:
            # Another connection of the same client may have passed a gap: numbers below its own it would drop.
            self._number(session_id, max((peer._numberings.get(session_id, 0) for peer in self._peers or ()), default=0))
            self._subscribe(session_id, after_seq=outcome["after_seq"])

    def _subscribe(self, session_id: str, after_seq: int) -> None:
        subscription = self._subscriptions[session_id] = self.tower.subscribe(session_id, after_seq, self)
        subscription.start()

    def _admit(self, session: Session, token: str | None) -> None:
        """push, Security Requirements 2: a wrong token never attaches, an absent one only if the client is trusted."""
        if token is None and self._may_command(session.id):
            return
        if token is None or not hmac.compare_digest(_sha256(token), session.attach_token_sha256):
            raise core_errors.AttachForbidden(
                session.id, hint="pass the `attachToken` that `start_session` answered" if token is None else None
            )

    def _may_command(self, session_id: str) -> bool:
        return self._access.trusted or session_id in self._subscriptions

    @property
    def is_of_a_run(self) -> bool:
        return self._access.of_a_run

    def check_sees_all(self) -> None:
        """For what concerns other sessions than the one that a token lets in to, and for what cannot be taken back."""
        if not self._access.trusted:
            raise core_errors.AttachForbidden(hint="only the owner may do this, and nothing that a run has started")

    def check_operates(self) -> None:
        """For what concerns the daemon itself and everybody at it: its owner, who is on its machine."""
        if not self._access.trusted or self._access.via != "cli":
            raise core_errors.AttachForbidden(hint="only the owner may do this, on the daemon's own socket")

    def check_is_owners_own(self) -> None:
        """For what only the owner's own processes can do, whether or not attach tokens are required."""
        if not self._is_owners_own:
            raise core_errors.AttachForbidden(
                hint="only the owner may do this, on the daemon's own socket, and no process of a run"
            )

    @property
    def _is_owners_own(self) -> bool:
        """The owner's process on the daemon's own socket: no user's token, no process of a run."""
        return self._access.via == "cli" and not self._access.of_a_run

    def check_policy(self, wanted: str | None) -> None:
        if wanted is not None:
            roles.check_policy(self._access.role, wanted, self.tower.workshop.usual_policy)

    def check_may_command(self, session_id: str) -> None:
        if not self._may_command(session_id):
            raise core_errors.AttachForbidden(session_id, hint="attach to the session with its `attachToken` first")

    def answer(self, request: inbound.Request, session_id: str, payload: Struct) -> bytes:
        return outbound.answer(request.request_id, request.type, session_id, payload)

    def _refusal(self, request: inbound.Request, refusal: core_errors.CoreError) -> bytes:
        return outbound.refusal(request.request_id, request.type, request.session_id, errors.of(refusal))

    def _cut_off(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(TRY_AGAIN_LATER, reason)

    def _send(self, packet: Packet) -> None:
        stream = self._stream
        if stream is None:
            return
        stream.send(packet)
        if not stream.writable:
            stream.pause_reading()


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
