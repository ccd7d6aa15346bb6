"""One app: a browser, a phone, a script. It is sent the events of all runs until it first says which it wants.

Each run that it follows is a cursor in the journal. One that does not read falls behind on its own and pages on when it reads
again; nothing is dropped and nothing queues up here but its answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

import msgspec

from switchtower.core import errors as core_errors
from switchtower.core import events, tower
from switchtower.core.access import Access
from switchtower.core.session import Session
from switchtower.protocols.relay import attaching, errors, messages, names, outbound, permissions
from switchtower.protocols.relay.hub.dispatch import Sender
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.protocols.relay.hub.tap import Tap
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

MOST_WAITING = 1_000
"""Commands that one client may have sent and not have seen done."""
MOST_CALLS = 64
_LONGEST_ERROR = 2_000
_RETRY = 0.5
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

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


class AppPeer:
    """Implements `stream.Receiver` for `/ws/app`."""

    protocol: ClassVar[str] = "relay_app"

    def __init__(self, hub: Hub, access: Access) -> None:
        self._hub = hub
        self._tower = hub.tower
        self._access = access
        self._actor = access.actor("relay")
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._taps: dict[str, Tap] = {}
        self._everything = True
        self._incoming: asyncio.Queue[tuple[messages.Envelope, Any]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._finding: dict[str, asyncio.Task[None]] = {}
        """Runs that have spoken up, of which it is being found out where they live."""
        self._unwatch: Callable[[], None] = lambda: None

    # The receiver's side

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._hub.apps.add(self)
        self._unwatch = self._tower.watch_batches(self._saw)
        self._worker = asyncio.get_running_loop().create_task(self._work())

    def received(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._take(frame)
        if self._incoming.qsize() >= MOST_WAITING and self._stream is not None:
            self._stream.pause_reading()

    def refused(self, problem: str) -> None:
        self._say("error", {"error": problem})

    def writable_again(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            for tap in tuple(self._taps.values()):
                tap.wake()

    def disconnected(self) -> None:
        """Calls go on to their end: somebody else may decide what this one asked for, and the journal tells of it."""
        self._hub.apps.discard(self)
        self._unwatch()
        for tap in self._taps.values():
            tap.close()
        self._taps.clear()
        for task in tuple(self._finding.values()):
            task.cancel()
        self._stream = self._outbox = None
        if self._worker is not None:
            self._worker.cancel()

    def let_go(self, code: int, reason: str) -> None:
        if self._stream is not None:
            self._stream.close(code, reason)

    # What runs tell

    def _saw(self, session: Session, batch: tower.Batch) -> None:
        """Who wants everything follows a run from the moment it speaks up until it has ended and all of it was told."""
        if not self._everything or self._outbox is None:
            return
        tap = self._taps.get(batch.session_id)
        if tap is None:
            about = outbound.About.session(session, self._hub.own_host_id)
            if self._hub.knows_host_of(session):
                self._follow(about, batch.first_seq - 1)
            elif batch.session_id not in self._finding:
                finding = asyncio.get_running_loop().create_task(self._find_and_follow(about, batch.first_seq - 1))
                self._finding[batch.session_id] = finding
        elif session.run is None and tap.has_told(batch.last_seq):
            self._quit(batch.session_id)

    def _follow(self, about: outbound.About, after_seq: int) -> None:
        tap = self._taps[about.session_id] = self._tap(about, include_output=True)
        tap.follow(self._tower.subscribe(about.session_id, after_seq, tap))

    async def _find_and_follow(self, about: outbound.About, after_seq: int) -> None:
        """Several nodes: the run's messages say on which of them it lives. What it says meanwhile waits in the journal."""
        try:
            host_id = await self._home_of(about.session_id)
            if self._everything and self._outbox is not None and about.session_id not in self._taps:
                self._follow(msgspec.structs.replace(about, host_id=host_id), after_seq)
        finally:
            self._finding.pop(about.session_id, None)

    async def _home_of(self, session_id: str) -> str:
        while True:
            try:
                return await self._hub.home_of(session_id)
            except core_errors.CoreError as refusal:
                log.warning("where %s lives cannot be told: %s", session_id, refusal)
                await asyncio.sleep(_RETRY)

    def _tap(self, about: outbound.About, *, include_output: bool) -> Tap:
        assert self._outbox is not None, "only who is connected follows"
        return Tap(about, self._outbox, self._gap, include_output=include_output)

    def _quit(self, session_id: str) -> None:
        """It is not followed any more. Who wants everything follows it again when it goes on."""
        if (tap := self._taps.pop(session_id, None)) is not None:
            tap.close()

    def _gap(self, about: outbound.About) -> None:
        """What it misses is no longer kept: it is told so, and where the run's terminal stands."""
        self._say("run.gap", {}, about.run_id)
        self._taps.pop(about.session_id, None)
        asked = messages.Subscribe()
        if self._worker is not None and not self._everything:
            envelope = messages.Envelope(type="run.subscribe", run_id=about.run_id)
            self._incoming.put_nowait((envelope, asked))

    # What the client asks

    def _take(self, frame: bytes) -> None:
        try:
            envelope = _decode(frame)
            is_call = envelope.type.startswith("rpc.")
            decode = _decoders.get(envelope.type, _decode_other_rpc if is_call else None)
            if decode is None:
                self._unknown(envelope)
                return
            asked = decode(envelope.data)
        except _UNREADABLE as problem:
            self._unreadable(frame, str(problem))
            return
        if is_call:
            self._call(envelope, asked)
        else:
            self._incoming.put_nowait((envelope, asked))

    def _unknown(self, envelope: messages.Envelope) -> None:
        if envelope.type not in ("ping", "host.heartbeat"):
            self._say("error", {"error": f"unknown type `{envelope.type}`"}, envelope.run_id)

    def _unreadable(self, frame: bytes, problem: str) -> None:
        """As much of an answer as the frame allows: a client waits for the id it has sent."""
        try:
            loose = msgspec.json.decode(frame)
        except _UNREADABLE:
            loose = None
        problem = problem[:_LONGEST_ERROR]
        whole = loose if isinstance(loose, dict) else {}
        type_, run_id, data = (whole.get(name) for name in ("type", "run_id", "data"))
        given = data if isinstance(data, dict) else {}
        request_id = given.get("request_id")
        ids = {name: given[name] for name in ("input_id", "request_id") if _is_id(given.get(name))}
        run_id = run_id if _is_id(run_id) else None
        if isinstance(type_, str) and type_.startswith("rpc.") and isinstance(request_id, str):
            refusal = messages.Response(request_id[: names.LONGEST], False, type_[: names.LONGEST], error=problem)
            self._respond(None, run_id, refusal)
        elif isinstance(type_, str) and type_ in messages.COMMAND_DATA and run_id is not None and given:
            self._say("run.error", {"command": type_, "error": problem, **ids}, run_id)
        else:
            self._say("error", {"error": problem})

    async def _work(self) -> None:
        """One at a time and in order: what is typed first arrives first."""
        while True:
            envelope, asked = await self._incoming.get()
            try:
                await self._do(envelope, asked)
            except errors.Refused as refusal:
                await self._refuse(envelope, asked, refusal.text)
            except Exception:
                log.exception("a %s of an app failed", envelope.type)
                await self._refuse(envelope, asked, errors.INTERNAL)
            if self._stream is not None and self._incoming.qsize() < MOST_WAITING // 2:
                self._stream.resume_reading()

    async def _refuse(self, envelope: messages.Envelope, asked: Any, problem: str) -> None:
        host_id = await self._host_of_run(envelope.run_id)
        data = {"command": envelope.type, "error": problem, **_ids_of(asked)}
        self._say("run.error", data, envelope.run_id, host_id=host_id)

    async def _host_of_run(self, run_id: str | None) -> str | None:
        """None for a run that is not known."""
        try:
            return None if run_id is None else self._hub.host_of(await self._hub.card(run_id))
        except (errors.Refused, core_errors.CoreError):
            return None

    async def _do(self, envelope: messages.Envelope, asked: Any) -> None:
        self._check_role(envelope.type, asked)
        run_id = envelope.run_id
        if run_id is None:
            if envelope.type == "run.unsubscribe":
                self._narrow()
                return
            raise errors.UnknownRun
        match envelope.type:
            case "run.subscribe":
                await self._subscribe(run_id, asked)
            case "run.unsubscribe":
                self._narrow()
                self._quit(names.session_of(run_id))
            case _:
                sender = Sender(envelope.data, self._host_refused)
                await self._hub.command(envelope.type, run_id, asked, self._actor_of(asked), sender)

    # Subscriptions

    def _narrow(self) -> None:
        """From its first word about it on, a client is sent only what it asked for."""
        if self._everything:
            self._everything = False
            for session_id in list(self._taps):
                self._quit(session_id)

    async def _subscribe(self, run_id: str, asked: messages.Subscribe) -> None:
        card = await self._hub.card(run_id)
        session_id = card.session_id
        self._narrow()
        if asked.replace:
            for other in list(self._taps):
                self._quit(other)
        else:
            self._quit(session_id)
        about = outbound.About.card(card, self._hub.host_of(card))
        after = tower.FROM_THE_HEAD if asked.after_id is None else asked.after_id
        if asked.after_id is None and asked.include_output and (screen := await self._hub.screen(run_id)) is not None:
            # Who comes late sees the terminal as it is, then what it puts out from there on.
            after = screen["id"]
            self._say("run.screen", screen, run_id)
        if self._outbox is None:
            return
        tap = self._tap(about, include_output=asked.include_output)
        try:
            attachment = await attaching.attached(self._tower, session_id, after, tap)
        except core_errors.CoreError as refusal:
            raise errors.Refused(errors.of(refusal)) from refusal
        if attachment.gap and asked.after_id is not None:
            self._say("run.gap", {}, run_id)
        self._taps[session_id] = tap
        tap.follow(attachment.subscription)

    # Calls

    def _call(self, envelope: messages.Envelope, asked: Any) -> None:
        if len(self._calls) >= MOST_CALLS:
            refusal = messages.Response(asked.request_id, False, envelope.type, error=errors.TOO_MANY_CALLS)
            self._respond(None, envelope.run_id, refusal)
            return
        task = asyncio.get_running_loop().create_task(self._answer(envelope, asked))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, envelope: messages.Envelope, asked: Any) -> None:
        run_id, type_ = envelope.run_id, envelope.type
        host_id = getattr(asked, "host_id", None)
        try:
            result = await self._result(type_, envelope, asked)
            response = messages.Response(asked.request_id, True, type_, result=result)
            if type_ == "rpc.run.start" and isinstance(result, dict):
                run_id = cast(str | None, result.get("run_id"))
        except errors.Refused as refusal:
            response = messages.Response(asked.request_id, False, type_, error=refusal.text)
        except Exception:
            log.exception("a %s of an app failed", type_)
            response = messages.Response(asked.request_id, False, type_, error=errors.INTERNAL)
        self._respond(host_id or await self._host_of_run(run_id) or envelope.host_id, run_id, response)

    def _check_role(self, type_: str, asked: Any) -> None:
        """Raises `Refused`."""
        try:
            self._access.check(permissions.action_of(type_, asked))
        except core_errors.RoleForbidden as refusal:
            raise errors.Refused(errors.of(refusal)) from None

    async def _result(self, type_: str, envelope: messages.Envelope, asked: Any) -> Any:
        self._check_role(type_, asked)
        work: Awaitable[Any]
        actor = self._actor_of(asked)
        if isinstance(asked, messages.OtherRpc):
            work = self._hub.other_rpc(type_, envelope.run_id, asked, actor, Sender(envelope.data))
        elif type_ in messages.HOST_RPCS:
            # The page puts a run's id even on calls to a host: the host that is named counts.
            host_id = asked.host_id or envelope.host_id
            if host_id is None:
                raise errors.UnknownHost
            work = self._hub.host_rpc(type_, host_id, asked, actor, Sender(envelope.data))
        elif envelope.run_id is None:
            raise errors.UnknownRun
        else:
            work = self._hub.run_rpc(type_, envelope.run_id, asked, actor, Sender(envelope.data))
        return await work

    def _actor_of(self, asked: Any) -> events.Actor:
        """The user of this app. `actor` in a message is what the app calls itself; the name is the user's own."""
        claimed = getattr(asked, "actor", None)
        return msgspec.structs.replace(self._actor, via=claimed) if claimed in messages.ACTORS else self._actor

    def _host_refused(self, host_id: str, run_id: str, problem: dict[str, Any]) -> None:
        """Another host did not do what this app had asked."""
        self._say("run.error", problem, run_id, host_id=host_id)

    # What it is told

    def _respond(self, host_id: str | None, run_id: str | None, response: messages.Response) -> None:
        self._say("rpc.response", response, run_id, host_id=host_id)

    def _say(self, type_: str, data: Any, run_id: str | None = None, *, host_id: str | None = None) -> None:
        if self._outbox is not None:
            frame = outbound.unnumbered(type_, self._tower.now_ms(), data, run_id=run_id, host_id=host_id)
            self._outbox.send(Packet([frame]))


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= names.LONGEST


def _ids_of(asked: Any) -> dict[str, str]:
    """The ids by which a client knows what it sent."""
    return {name: value for name in ("input_id", "request_id") if isinstance(value := getattr(asked, name, None), str)}
