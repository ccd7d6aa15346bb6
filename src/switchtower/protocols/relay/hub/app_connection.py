"""One app: a browser, a phone, a script. It is sent the events of all runs until it first subscribes to some.

Each run that it follows is a subscription: a cursor in the journal, with or without output. An app that does not read falls
behind on its own and reads pages when it resumes; nothing is dropped and nothing but its answers is queued here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

import msgspec

from switchtower.core import errors as core_errors
from switchtower.core import events
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.core.session import Session
from switchtower.protocols import connection
from switchtower.protocols.relay import encoder, errors, inbound, messages, wire_values
from switchtower.protocols.relay.hub.dispatcher import RequestSender
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.transports.stream import Outbox, Packet, Stream

_OUTPUT_KINDS = frozenset({*encoder.OUTPUTS, events.ScreenCaptured.kind})


class RunSubscription:
    """Implements `session_service.Subscriber`."""

    def __init__(
        self,
        about: encoder.EnvelopeHeader,
        outbox: Outbox,
        report_gap: Callable[[encoder.EnvelopeHeader], None],
        *,
        include_output: bool,
    ) -> None:
        """`report_gap` is called when the next events are no longer stored."""
        self._about = about
        self._outbox = outbox
        self._report_gap = report_gap
        self._include_output = include_output
        self._subscription: session_service.Subscription | None = None

    def follow(self, subscription: session_service.Subscription) -> None:
        self._subscription = subscription
        subscription.start()

    def has_sent(self, seq: int) -> bool:
        return self._subscription is not None and self._subscription.cursor >= seq

    def wake(self) -> None:
        if self._subscription is not None:
            self._subscription.wake()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    # The subscriber's side

    @property
    def is_ready(self) -> bool:
        return self._outbox.is_ready

    def deliver(self, batch: session_service.Batch) -> None:
        packet = self._encode_batch(batch)
        if packet is not None:
            self._outbox.send(packet)

    def on_gap(self, session_id: str) -> None:
        self._subscription = None
        self._report_gap(self._about)

    def _encode_batch(self, batch: session_service.Batch) -> Packet | None:
        """Encodes a batch once for all apps with the same filter."""
        key = "relay" if self._include_output else "relay, without output"
        if key not in batch.encodings:
            entries = batch.entries
            if not self._include_output:
                entries = [entry for entry in entries if entry.kind not in _OUTPUT_KINDS]
            frames = encoder.encode_batch(self._about, entries)
            batch.encodings[key] = Packet(frames) if frames else None
        packet: Packet | None = batch.encodings[key]
        return packet


log = logging.getLogger(__name__)

MAX_QUEUED_COMMANDS = 1_000
"""The maximum number of a client's commands that are not executed yet."""
MAX_CONCURRENT_CALLS = 64
_MAX_ERROR_LENGTH = 2_000
_RETRY_SECONDS = 0.5
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder(messages.Envelope).decode
_decoders = {
    type_: msgspec.json.Decoder(data).decode
    for type_, data in {
        **messages.COMMAND_DATA,
        **messages.RPC_DATA,
        "run.subscribe": messages.Subscribe,
        "run.unsubscribe": messages.Subscribe,
    }.items()
}


_decode_other_rpc = msgspec.json.Decoder(messages.OtherRpc).decode


class AppConnection:
    """Implements `stream.Receiver` for `/ws/app`."""

    protocol: ClassVar[str] = "relay_app"

    def __init__(self, hub: Hub, access: Access) -> None:
        self._hub = hub
        self._tower = hub.tower
        self._access = access
        self._actor = access.make_actor("relay")
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._subscriptions: dict[str, RunSubscription] = {}
        self._follows_all = True
        self._incoming: asyncio.Queue[tuple[messages.Envelope, Any]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._lookups: dict[str, asyncio.Task[None]] = {}
        """Runs with new events whose host is being looked up."""
        self._unwatch: Callable[[], None] = lambda: None

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._hub.apps.add(self)
        self._unwatch = self._tower.watch_batches(self._on_batch)
        self._worker = asyncio.get_running_loop().create_task(self._process_commands())

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._handle_frame(frame)
        if self._incoming.qsize() >= MAX_QUEUED_COMMANDS and self._stream is not None:
            self._stream.pause_reading()

    def on_oversized_frame(self, problem: str) -> None:
        self._send_message("error", {"error": problem})

    def on_writable(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            for tap in tuple(self._subscriptions.values()):
                tap.wake()

    def on_disconnected(self) -> None:
        """Calls continue to their end: another client may decide what this one requested, and the journal records it."""
        self._hub.apps.discard(self)
        self._unwatch()
        for tap in self._subscriptions.values():
            tap.close()
        self._subscriptions.clear()
        for task in tuple(self._lookups.values()):
            task.cancel()
        self._stream = self._outbox = None
        if self._worker is not None:
            self._worker.cancel()

    def close_for_restart(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    # Events of runs

    def _on_batch(self, session: Session, batch: session_service.Batch) -> None:
        """An app that follows everything follows a run from its next event until it has ended and all of it was sent."""
        if not self._follows_all or self._outbox is None:
            return
        tap = self._subscriptions.get(batch.session_id)
        if tap is None:
            about = encoder.EnvelopeHeader.from_session(session, self._hub.own_host_id)
            if self._hub.has_known_host(session):
                self._follow(about, batch.first_seq - 1)
            elif batch.session_id not in self._lookups:
                finding = asyncio.get_running_loop().create_task(self._find_and_follow(about, batch.first_seq - 1))
                self._lookups[batch.session_id] = finding
        elif session.run is None and tap.has_sent(batch.last_seq):
            self._unsubscribe(batch.session_id)

    def _follow(self, about: encoder.EnvelopeHeader, after_seq: int) -> None:
        tap = self._subscriptions[about.session_id] = self._make_subscription(about, include_output=True)
        tap.follow(self._tower.subscribe(about.session_id, after_seq, tap))

    async def _find_and_follow(self, about: encoder.EnvelopeHeader, after_seq: int) -> None:
        """In a cluster the run's messages name its host, which is looked up first. Its events wait in the journal meanwhile."""
        try:
            host_id = await self._find_host(about.session_id)
            if self._follows_all and self._outbox is not None and about.session_id not in self._subscriptions:
                self._follow(msgspec.structs.replace(about, host_id=host_id), after_seq)
        finally:
            self._lookups.pop(about.session_id, None)

    async def _find_host(self, session_id: str) -> str:
        while True:
            try:
                return await self._hub.find_host_id(session_id)
            except core_errors.CoreError as refusal:
                log.warning("where %s lives cannot be told: %s", session_id, refusal)
                await asyncio.sleep(_RETRY_SECONDS)

    def _make_subscription(self, about: encoder.EnvelopeHeader, *, include_output: bool) -> RunSubscription:
        assert self._outbox is not None, "only who is connected follows"
        return RunSubscription(about, self._outbox, self._on_gap, include_output=include_output)

    def _unsubscribe(self, session_id: str) -> None:
        """Ends the subscription. An app that follows everything subscribes again at the run's next event."""
        if (tap := self._subscriptions.pop(session_id, None)) is not None:
            tap.close()

    def _on_gap(self, about: encoder.EnvelopeHeader) -> None:
        """The next events are no longer stored: the app is sent a gap, and the current screen of the run's terminal."""
        self._send_message("run.gap", {}, about.run_id)
        self._subscriptions.pop(about.session_id, None)
        asked = messages.Subscribe()
        if self._worker is not None and not self._follows_all:
            envelope = messages.Envelope(type="run.subscribe", run_id=about.run_id)
            self._incoming.put_nowait((envelope, asked))

    # Requests of the client

    def _handle_frame(self, frame: bytes) -> None:
        try:
            envelope = _decode(frame)
            is_call = envelope.type.startswith("rpc.")
            decode = _decoders.get(envelope.type, _decode_other_rpc if is_call else None)
            if decode is None:
                self._refuse_unknown(envelope)
                return
            asked = decode(envelope.data)
        except _DECODE_ERRORS as problem:
            self._refuse_unreadable(frame, str(problem))
            return
        if is_call:
            self._start_call(envelope, asked)
        else:
            self._incoming.put_nowait((envelope, asked))

    def _refuse_unknown(self, envelope: messages.Envelope) -> None:
        if envelope.type not in ("ping", "host.heartbeat"):
            self._send_message("error", {"error": f"unknown type `{envelope.type}`"}, envelope.run_id)

    def _refuse_unreadable(self, frame: bytes, problem: str) -> None:
        """Answers as far as the frame allows: a client waits for the id that it has sent."""
        try:
            loose = msgspec.json.decode(frame)
        except _DECODE_ERRORS:
            loose = None
        problem = problem[:_MAX_ERROR_LENGTH]
        whole = loose if isinstance(loose, dict) else {}
        type_, run_id, data = (whole.get(name) for name in ("type", "run_id", "data"))
        given = data if isinstance(data, dict) else {}
        request_id = given.get("request_id")
        ids = {name: given[name] for name in ("input_id", "request_id") if _is_id(given.get(name))}
        run_id = run_id if _is_id(run_id) else None
        if isinstance(type_, str) and type_.startswith("rpc.") and isinstance(request_id, str):
            refusal = messages.Response(
                request_id[: wire_values.MAX_ID_LENGTH], False, type_[: wire_values.MAX_ID_LENGTH], error=problem
            )
            self._respond(None, run_id, refusal)
        elif isinstance(type_, str) and type_ in messages.COMMAND_DATA and run_id is not None and given:
            self._send_message("run.error", {"command": type_, "error": problem, **ids}, run_id)
        else:
            self._send_message("error", {"error": problem})

    async def _process_commands(self) -> None:
        """Executes commands one at a time and in order: input arrives in the order in which it was typed."""
        while True:
            envelope, asked = await self._incoming.get()
            try:
                await self._execute(envelope, asked)
            except errors.RelayError as refusal:
                await self._refuse(envelope, asked, refusal.text)
            except Exception:
                log.exception("a %s of an app failed", envelope.type)
                await self._refuse(envelope, asked, errors.INTERNAL)
            if self._stream is not None and self._incoming.qsize() < MAX_QUEUED_COMMANDS // 2:
                self._stream.resume_reading()

    async def _refuse(self, envelope: messages.Envelope, request: Any, problem: str) -> None:
        host_id = await self._find_run_host(envelope.run_id)
        data = {"command": envelope.type, "error": problem, **_get_correlation_ids(request)}
        self._send_message("run.error", data, envelope.run_id, host_id=host_id)

    async def _find_run_host(self, run_id: str | None) -> str | None:
        """Returns None for an unknown run."""
        try:
            return None if run_id is None else self._hub.get_host_id(await self._hub.get_card(run_id))
        except (errors.RelayError, core_errors.CoreError):
            return None

    async def _execute(self, envelope: messages.Envelope, request: Any) -> None:
        self._check_role(envelope.type, request)
        run_id = envelope.run_id
        if run_id is None:
            if envelope.type == "run.unsubscribe":
                self._stop_following_all()
                return
            raise errors.UnknownRun
        match envelope.type:
            case "run.subscribe":
                await self._subscribe(run_id, request)
            case "run.unsubscribe":
                self._stop_following_all()
                self._unsubscribe(wire_values.parse_run_id(run_id))
            case _:
                sender = RequestSender(envelope.data, self._on_host_refusal)
                await self._hub.send_command(envelope.type, run_id, request, self._make_actor(request), sender)

    # Subscriptions

    def _stop_following_all(self) -> None:
        """After its first subscription, an app is sent only the runs that it subscribed to."""
        if self._follows_all:
            self._follows_all = False
            for session_id in list(self._subscriptions):
                self._unsubscribe(session_id)

    async def _subscribe(self, run_id: str, request: messages.Subscribe) -> None:
        card = await self._hub.get_card(run_id)
        session_id = card.session_id
        self._stop_following_all()
        if request.replace:
            for other in list(self._subscriptions):
                self._unsubscribe(other)
        else:
            self._unsubscribe(session_id)
        about = encoder.EnvelopeHeader.from_card(card, self._hub.get_host_id(card))
        after = session_service.HEAD_CURSOR if request.after_id is None else request.after_id
        if request.after_id is None and request.include_output and (screen := await self._hub.read_screen(run_id)) is not None:
            # A new subscriber gets the current screen of the terminal, then the output after it.
            after = screen["id"]
            self._send_message("run.screen", screen, run_id)
        if self._outbox is None:
            return
        tap = self._make_subscription(about, include_output=request.include_output)
        try:
            attachment = await connection.attach(self._tower, session_id, after, tap)
        except core_errors.CoreError as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from refusal
        if attachment.gap and request.after_id is not None:
            self._send_message("run.gap", {}, run_id)
        self._subscriptions[session_id] = tap
        tap.follow(attachment.subscription)

    # Calls

    def _start_call(self, envelope: messages.Envelope, request: Any) -> None:
        if len(self._calls) >= MAX_CONCURRENT_CALLS:
            refusal = messages.Response(request.request_id, False, envelope.type, error=errors.TOO_MANY_CALLS)
            self._respond(None, envelope.run_id, refusal)
            return
        task = asyncio.get_running_loop().create_task(self._run_call(envelope, request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _run_call(self, envelope: messages.Envelope, request: Any) -> None:
        run_id, type_ = envelope.run_id, envelope.type
        host_id = getattr(request, "host_id", None)
        try:
            result = await self._call_hub(type_, envelope, request)
            response = messages.Response(request.request_id, True, type_, result=result)
            if type_ == "rpc.run.start" and isinstance(result, dict):
                run_id = cast(str | None, result.get("run_id"))
        except errors.RelayError as refusal:
            response = messages.Response(request.request_id, False, type_, error=refusal.text)
        except Exception:
            log.exception("a %s of an app failed", type_)
            response = messages.Response(request.request_id, False, type_, error=errors.INTERNAL)
        self._respond(host_id or await self._find_run_host(run_id) or envelope.host_id, run_id, response)

    def _check_role(self, type_: str, request: Any) -> None:
        """Raises `RelayError`."""
        try:
            self._access.check_action(inbound.get_action(type_, request))
        except core_errors.RoleForbidden as refusal:
            raise errors.RelayError(errors.convert_core_error(refusal)) from None

    async def _call_hub(self, type_: str, envelope: messages.Envelope, request: Any) -> Any:
        self._check_role(type_, request)
        work: Awaitable[Any]
        actor = self._make_actor(request)
        if isinstance(request, messages.OtherRpc):
            work = self._hub.forward_rpc(type_, envelope.run_id, request, actor, RequestSender(envelope.data))
        elif type_ in messages.HOST_RPCS:
            # The web page puts a run's id even on calls to a host: the named host counts.
            host_id = request.host_id or envelope.host_id
            if host_id is None:
                raise errors.UnknownHost
            work = self._hub.call_on_host(type_, host_id, request, actor, RequestSender(envelope.data))
        elif envelope.run_id is None:
            raise errors.UnknownRun
        else:
            work = self._hub.call_on_run(type_, envelope.run_id, request, actor, RequestSender(envelope.data))
        return await work

    def _make_actor(self, request: Any) -> events.Actor:
        """Returns the user of this app. `actor` in a message is the app's own label; the name is the user's."""
        claimed = getattr(request, "actor", None)
        return msgspec.structs.replace(self._actor, via=claimed) if claimed in messages.ACTORS else self._actor

    def _on_host_refusal(self, host_id: str, run_id: str, problem: dict[str, Any]) -> None:
        """Another host refused this app's command."""
        self._send_message("run.error", problem, run_id, host_id=host_id)

    # Sending to the client

    def _respond(self, host_id: str | None, run_id: str | None, response: messages.Response) -> None:
        self._send_message("rpc.response", response, run_id, host_id=host_id)

    def _send_message(self, type_: str, data: Any, run_id: str | None = None, *, host_id: str | None = None) -> None:
        if self._outbox is not None:
            frame = encoder.encode_unnumbered(type_, self._tower.now_ms(), data, run_id=run_id, host_id=host_id)
            self._outbox.send(Packet([frame]))


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= wire_values.MAX_ID_LENGTH


def _get_correlation_ids(request: Any) -> dict[str, str]:
    """Returns the ids by which a client matches the answer to its request."""
    return {name: value for name in ("input_id", "request_id") if isinstance(value := getattr(request, name, None), str)}
