"""One pi client: its frames go to the dispatcher, and its answers and the events that it follows go out on its stream.

While a client does not read, the daemon does not read from it. Answers wait meanwhile, within a bound; the events of its sessions
wait in the journal.

The broadcaster sends to every connection. All frames of one turn of the event loop leave together, encoded once for all clients:
lifecycle events first, then each client's own answers, then announcements (interop, Envelope). So an idle connection costs one
write a turn, however many commands are running, and one that does not want lifecycle events costs none.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import ClassVar

import msgspec
from msgspec import Struct

from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.protocols.pi import encoder, inbound
from switchtower.protocols.pi import responses as frames
from switchtower.protocols.pi.dispatch.dispatcher import CommandDispatcher
from switchtower.protocols.pi.sessions.loaded import LoadedSession, SessionStreams
from switchtower.protocols.pi.stream_state import PiStreamState
from switchtower.transports.stream import TRY_AGAIN_LATER, Outbox, Packet, Stream


class Broadcaster:
    """Implements `ports.BroadcastPort`."""

    def __init__(self) -> None:
        self.peers: set[PiConnection] = set()
        self._lifecycle: list[bytes] = []
        self._answers: dict[PiConnection, list[bytes]] = {}
        self._announcements: list[bytes] = []
        self._scheduled = False
        self.dismissed: tuple[int, str] | None = None
        """The code and reason with which all clients were disconnected."""

    def close_all(self, code: int, reason: str) -> None:
        """Disconnects all clients, after the frames that are waiting for them."""
        self.flush()
        self.dismissed = code, reason
        for peer in tuple(self.peers):
            peer.close_for_restart(code, reason)

    def broadcast_lifecycle(self, frame: bytes) -> None:
        self._lifecycle.append(frame)
        self._schedule()

    def queue_response(self, peer: "PiConnection", frame: bytes) -> None:
        answers = self._answers.get(peer)
        if answers is None:
            self._answers[peer] = [frame]
            self._schedule()
        else:
            answers.append(frame)

    def broadcast(self, frame: bytes) -> None:
        self._announcements.append(frame)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        lifecycle, self._lifecycle = self._lifecycle, []
        answers, self._answers = self._answers, {}
        announcements, self._announcements = self._announcements, []
        for peer, answered in answers.items():
            before = lifecycle if peer.wants_lifecycle else []
            peer.send(Packet([*before, *answered, *announcements]))
        if not lifecycle and not announcements:
            return
        for_all = Packet([*lifecycle, *announcements])
        for_quiet = Packet(announcements) if announcements else None
        for peer in tuple(self.peers):
            if peer not in answers:
                packet = for_all if peer.wants_lifecycle else for_quiet
                if packet is not None:
                    peer.send(packet)


SERVICE_RESTART = 1012
HELLO = b'{"type":"switchtower_hello"'


class StdioHello(Struct, frozen=True):
    """The first frame of our own stdio program: it introduces the process that it speaks for."""

    namespace: str
    cwd: str | None = None


class FollowedSession(Struct):
    """One session that a client follows, and the state of its stream."""

    name: str
    state: PiStreamState
    subscription: session_service.Subscription | None = None


class PiConnection:
    """Implements `stream.RespondingReceiver`, `session_service.Subscriber` and `context.Client`."""

    protocol: ClassVar[str] = "pi"

    def __init__(
        self,
        dispatcher: CommandDispatcher,
        broadcaster: Broadcaster,
        streams: SessionStreams,
        access: Access,
        *,
        key: str,
        namespace: str,
        lifecycle: bool,
        cwd: str | None,
        greeting: Packet,
        opening: "asyncio.Task[None]",
        holds_lease: Callable[[], bool] | None = None,
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.cwd = cwd
        self.wants_lifecycle = lifecycle
        self._access = access
        self.actor = msgspec.structs.replace(access.make_actor(), via="pi", counts=True)
        self._dispatcher = dispatcher
        self._broadcaster = broadcaster
        self._streams = streams
        self._greeting = greeting
        self._opening = opening
        self._holds_lease = holds_lease
        self._stream: Stream | None = None
        self._early: list[bytes] = []
        """Frames that arrived before the server was open."""
        self._heard = False
        self._unanswered = 0
        self._outbox: Outbox | None = None
        """Holds lifecycle events and answers. Session events wait in the journal."""
        self._following: dict[str, FollowedSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        if self._broadcaster.dismissed is not None:
            stream.close(*self._broadcaster.dismissed)  # the server closed between admission and this call
            return
        # pi-server 16.1: before any other message.
        stream.send(self._greeting)
        self._broadcaster.peers.add(self)
        if not self._opening.done():
            self._opening.add_done_callback(lambda _: self._on_server_ready())

    def _on_server_ready(self) -> None:
        early, self._early = self._early, []
        if self._stream is not None:
            self._stream.resume_reading()
            if early:
                self.on_frames(early)

    def on_frames(self, incoming: list[bytes]) -> None:
        if self._holds_lease is not None and not self._holds_lease():
            self.close_for_restart(SERVICE_RESTART, "service restart, reconnect")
            return
        if not self._opening.done():
            self._early += incoming
            if self._stream is not None:
                self._stream.pause_reading()
            return
        for frame in incoming:
            if not self._heard:
                self._heard = True
                if frame.startswith(HELLO) and self._accept_hello(frame):
                    continue
            self._unanswered += 1  # exactly one response for each
            self._dispatcher.receive(frame, self)
        if self._stream is not None and not self._stream.writable:
            self._stream.pause_reading()

    def _accept_hello(self, frame: bytes) -> bool:
        """Accepts a hello only on the owner's socket: on another transport a client could claim to be another's process."""
        if self._stream is None or self._stream.origin.transport != "unix":
            return False
        try:
            hello = msgspec.json.decode(frame, type=StdioHello)
        except msgspec.MsgspecError:
            return False
        self.namespace, self.cwd = hello.namespace[:64], hello.cwd
        return True

    def has_pending_responses(self) -> bool:
        """A request has no answer yet, so a client that has finished sending is still reading."""
        return bool(self._early) or self._unanswered > 0 or bool(self._outbox)

    def on_oversized_frame(self, problem: str) -> None:
        self._dispatcher.rejected.messageSize += 1
        self._unanswered += 1
        self.respond(frames.encode_error_response("unknown", None, problem))

    def on_writable(self) -> None:
        if self._stream is None or self._outbox is None or not self._outbox.flush():
            return
        self._stream.resume_reading()
        for following in list(self._following.values()):
            if following.subscription is not None:
                following.subscription.wake()

    def on_disconnected(self) -> None:
        self._stream = None
        self._broadcaster.peers.discard(self)
        self._dispatcher.forget_client(self)
        for following in self._following.values():
            if following.subscription is not None:
                following.subscription.close()
        self._following.clear()
        self._outbox = None
        for task in self._tasks:
            task.cancel()

    def close_for_restart(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    # The dispatcher's client

    def find_objection(self, request: inbound.PiRequest) -> str | None:
        try:
            self._access.check_action(inbound.get_action(request.type, request.body))
        except core_errors.RoleForbidden as refusal:
            return refusal.message
        return None

    def respond(self, frame: bytes) -> None:
        self._unanswered -= 1
        if self._stream is not None:
            self._broadcaster.queue_response(self, frame)

    def on_replay(self, command: str, session_id: str | None) -> None:
        """A client that repeats a request to follow a session, perhaps on a new connection, wants to follow it."""
        if command == "switch_session" and session_id is not None:
            standing = self._streams.find_session(session_id)
            if standing is not None:
                self._run_in_background(self.follow(standing))

    def send(self, packet: Packet) -> None:
        """Sends at once, or as soon as the stream is writable; in order."""
        if self._outbox is not None:
            self._outbox.send(packet)

    # Following sessions

    @property
    def is_ready(self) -> bool:
        return self._outbox is not None and self._outbox.is_ready

    def deliver(self, batch: session_service.Batch) -> None:
        following = self._following.get(batch.session_id)
        if following is None or self._stream is None:
            return
        packet, following.state = self._streams.encode_batch(following.state, batch, following.name)
        if packet is not None:
            self._stream.send(packet)

    def on_gap(self, session_id: str) -> None:
        """The client was too slow for the retention: pieces of text are lost, and every one of them is sent again in a whole
        message."""
        behind = self._following[session_id]
        self._run_in_background(self._resubscribe(session_id, behind))

    def _run_in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._run_guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except core_errors.CoreError:
            # The events cannot be sent now. A client that is disconnected reconnects; one that gets no frames would not.
            if self._stream is not None:
                self._stream.close(TRY_AGAIN_LATER, "try again later")

    async def _resubscribe(self, session_id: str, behind: FollowedSession) -> None:
        assert behind.subscription is not None, "it was followed"
        after = behind.subscription.cursor
        behind.subscription, _ = await self._streams.subscribe(session_id, behind.name, self)
        async for entries in self._streams.read_pages(session_id, after, behind.subscription.cursor):
            told, behind.state = self._streams.encode_entries(behind.state, session_id, behind.name, entries)
            self.send(Packet(told))
        self._start(behind.subscription)

    async def follow(self, loaded: LoadedSession) -> None:
        session_id, name = loaded.id, loaded.name
        if session_id in self._following:
            return
        following = self._following[session_id] = FollowedSession(name, PiStreamState.empty())
        try:
            following.subscription, following.state = await self._streams.subscribe(session_id, name, self)
        except BaseException:
            self._following.pop(session_id, None)
            raise
        if self._following.get(session_id) is not following:
            following.subscription.close()  # the session was unloaded meanwhile
            return
        if told := encoder.encode_catch_up(following.state, now_ms=self._streams.service.now_ms()):
            self.send(Packet(told))
        self._start(following.subscription)

    def unfollow(self, session_id: str) -> None:
        """The session was unloaded: its further events do not belong to a session that pi's clients have."""
        following = self._following.pop(session_id, None)
        if following is not None and following.subscription is not None:
            following.subscription.close()

    def _start(self, subscription: session_service.Subscription) -> None:
        if self._stream is None:
            subscription.close()  # the client disconnected meanwhile
        else:
            subscription.start()


class RejectedConnection:
    """A client that is not admitted: it gets the reason and is disconnected. Implements `stream.Receiver`."""

    protocol: ClassVar[str] = "pi"

    def __init__(self, code: int, reason: str) -> None:
        self._code = code
        self._reason = reason

    def on_connected(self, stream: Stream) -> None:
        stream.close(self._code, self._reason)

    def on_frames(self, incoming: list[bytes]) -> None:
        """Frames of a rejected client are ignored."""

    def on_oversized_frame(self, problem: str) -> None:
        """Frames of a rejected client are ignored."""

    def on_writable(self) -> None:
        """Nothing waits to be sent."""

    def on_disconnected(self) -> None:
        """The connection was closed by us."""
