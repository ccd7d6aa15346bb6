"""The hub's requests to this host: commands, one after the other for each run, and calls, each answered on its own.

This host's setting `hub_may` limits the hub's requests; others are refused here, before anything is looked up. Every failure is
answered and never raised. Text that users type reaches neither the log nor an error.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

import msgspec

from switchtower.core import events
from switchtower.core.ports import journal, session_service
from switchtower.protocols.relay import errors, messages, wire_values
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.settings import LinkSettings

log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 64
MAX_QUEUED_COMMANDS = 1_000
MAX_QUEUED_BYTES = 16 * 1024 * 1024
TOO_MANY_CALLS = "too many calls at once"
TOO_MANY_COMMANDS = "too many commands at once; try again"
HUB_LEVELS = ("watch", "decide", "start")
"""The levels that a host may grant its hub, each including all before it."""
_WATCH_TYPES = frozenset(
    {
        "rpc.fs.read",
        "rpc.fs.search",
        "rpc.fs.list",
        "rpc.git.status",
        "rpc.git.diff",
        "rpc.runs.list",
        "rpc.host.info",
        "rpc.host.doctor",
        "rpc.host.capabilities",
        "rpc.host.logs.tail",
    }
)
_DECIDE_TYPES = frozenset({*messages.COMMAND_DATA, "rpc.run.stop"})
_REFUSALS = {
    "decide": "this host lets its hub only watch; set `hub_may = decide` there to decide, type and stop",
    "start": "this host does not let its hub start programs or change files; set `hub_may = start` there",
}
_MAX_ERROR_LENGTH = 500
_ENVELOPE_BYTES = 4_096
"""Bytes of an answer besides its result."""
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_shapes = messages.COMMAND_DATA | messages.RPC_DATA
_decoders: dict[str, Callable[[msgspec.Raw], Any]] = {
    type_: msgspec.json.Decoder(shape).decode for type_, shape in _shapes.items()
}


class _RequestSource(msgspec.Struct):
    """The fields that any data may have besides its own."""

    by: Any = None
    actor: Any = None
    request_id: Any = None
    input_id: Any = None
    command_id: Any = None
    """The hub's own id of the command, by which it finds the sender."""


_decode_asker = msgspec.json.Decoder(_RequestSource).decode


class HubReply(Protocol):
    """Sends a message to the hub, or drops it when the hub is disconnected: the hub itself fails the calls to a host that
    disconnected."""

    def __call__(self, type_: str, data: Any, *, run_id: str | None = None) -> None: ...


class HubRequestHandler:
    def __init__(self, tower_: session_service.SessionService, rpc: HostRpcHandler, settings: LinkSettings) -> None:
        self._tower = tower_
        self._rpc = rpc
        self._host_id = settings.host_id
        self._hub = settings.hub
        self._max_result_bytes = settings.max_frame_bytes - _ENVELOPE_BYTES
        self._allowed = HUB_LEVELS[: HUB_LEVELS.index(settings.hub_may) + 1]
        self._logged: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._waiting: dict[str, deque[tuple[messages.Envelope, HubReply]]] = {}
        self._waiting_count = self._waiting_bytes = 0

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handle(self, envelope: messages.Envelope, answer: HubReply) -> None:
        type_ = envelope.type
        if type_.startswith("rpc."):
            self._start_call(envelope, answer)
        elif type_ in messages.COMMAND_DATA:
            self._enqueue_command(envelope, answer)
        else:
            # The document: types may be added, and a receiver ignores unknown ones.
            log.debug("the hub sent a message of a type that is not known here")

    # Calls

    def _start_call(self, envelope: messages.Envelope, answer: HubReply) -> None:
        asker = _decode_source(envelope.data)
        request_id = asker.request_id if isinstance(asker.request_id, str) else ""
        if not 0 < len(request_id) <= wire_values.MAX_ID_LENGTH:
            answer("error", {"error": f"`{envelope.type}` needs a `request_id` of 1 to {wire_values.MAX_ID_LENGTH} characters"})
            return
        respond = _Responder(answer, envelope, request_id)
        if envelope.type not in messages.RPC_DATA:
            respond.respond_error(errors.UNKNOWN_RPC)
        elif (refusal := self._find_refusal(envelope.type)) is not None:
            respond.respond_error(refusal)
        elif self._calls >= MAX_CONCURRENT_CALLS:
            respond.respond_error(TOO_MANY_CALLS)
        else:
            self._calls += 1
            self._start(self._perform(envelope, asker, respond)).add_done_callback(self._on_call_done)

    def _on_call_done(self, _: asyncio.Task[None]) -> None:
        self._calls -= 1

    async def _perform(self, envelope: messages.Envelope, source: _RequestSource, respond: "_Responder") -> None:
        try:
            asked: Any = _decoders[envelope.type](envelope.data)
            if envelope.type in messages.HOST_RPCS:
                if asked.host_id not in (None, self._host_id):
                    raise errors.UnknownHost
                result = await self._rpc.call_on_host(envelope.type, asked, self._make_actor(source))
            else:
                card = await self._get_card(envelope.run_id)
                result = await self._rpc.call_on_run(envelope.type, card, asked, self._make_actor(source))
            keeps_end = envelope.type == "rpc.host.logs.tail"
            respond.respond(wire_values.shorten_result(result, self._max_result_bytes, keeps_end=keeps_end))
        except errors.RelayError as refusal:
            respond.respond_error(refusal.text)
        except _DECODE_ERRORS as problem:
            respond.respond_error(str(problem)[:_MAX_ERROR_LENGTH])
        except Exception:
            log.exception("a %s failed", envelope.type)
            respond.respond_error(errors.INTERNAL)

    # Commands

    def _enqueue_command(self, envelope: messages.Envelope, answer: HubReply) -> None:
        run_id = envelope.run_id
        if (refusal := self._find_refusal(envelope.type)) is not None:
            self._refuse(envelope, answer, refusal)
            return
        if run_id is None:
            self._refuse(envelope, answer, errors.UNKNOWN_RUN)
            return
        size = len(bytes(envelope.data))
        if self._waiting_count >= MAX_QUEUED_COMMANDS or self._waiting_bytes + size > MAX_QUEUED_BYTES:
            self._refuse(envelope, answer, TOO_MANY_COMMANDS)
            return
        self._waiting_count += 1
        self._waiting_bytes += size
        line = self._waiting.get(run_id)
        if line is None:
            line = self._waiting[run_id] = deque()
            self._start(self._process_commands(run_id, line))
        line.append((envelope, answer))

    async def _process_commands(self, run_id: str, line: deque[tuple[messages.Envelope, HubReply]]) -> None:
        """Executes a run's commands in order: input arrives in the order in which it was typed."""
        while line:
            envelope, answer = line.popleft()
            try:
                await self._execute_command(envelope)
            except errors.RelayError as refusal:
                self._refuse(envelope, answer, refusal.text)
            except _DECODE_ERRORS as problem:
                self._refuse(envelope, answer, str(problem)[:_MAX_ERROR_LENGTH])
            except Exception:
                log.exception("a %s failed", envelope.type)
                self._refuse(envelope, answer, errors.INTERNAL)
            finally:
                self._waiting_count -= 1
                self._waiting_bytes -= len(bytes(envelope.data))
        del self._waiting[run_id]

    async def _execute_command(self, envelope: messages.Envelope) -> None:
        asked = _decoders[envelope.type](envelope.data)
        actor = self._make_actor(_decode_source(envelope.data))
        card = await self._get_card(envelope.run_id)
        await self._rpc.commands.execute(envelope.type, card, asked, actor)

    def _refuse(self, envelope: messages.Envelope, answer: HubReply, problem: str) -> None:
        asker = _decode_source(envelope.data)
        ids = {"input_id": asker.input_id, "request_id": asker.request_id, "command_id": asker.command_id}
        known = {name: value for name, value in ids.items() if isinstance(value, str) and len(value) <= wire_values.MAX_ID_LENGTH}
        answer("run.error", {"command": envelope.type, "error": problem, **known}, run_id=envelope.run_id)

    # Commands and calls

    def _find_refusal(self, type_: str) -> str | None:
        """Returns the reason why the hub may not request this here, or None. The first refusal of each type is logged."""
        needed = get_required_level(type_)
        if needed in self._allowed:
            return None
        if type_ not in self._logged:
            self._logged.add(type_)
            log.warning("the hub at %s asked for %s, which `hub_may` does not allow", self._hub, type_)
        return _REFUSALS[needed]

    async def _get_card(self, run_id: str | None) -> journal.Card:
        try:
            card = None if run_id is None else await self._tower.find_card(wire_values.parse_run_id(run_id))
        except wire_values.InvalidRelayId:
            card = None
        if card is None or card.host is not None:
            raise errors.UnknownRun
        return card

    def _make_actor(self, source: _RequestSource) -> events.Actor:
        """Returns the hub as the actor, with the user that it names. That is its claim, and does not identify a user of this
        host."""
        name = source.by if isinstance(source.by, str) and 0 < len(source.by) <= wire_values.MAX_ID_LENGTH else "a user"
        claims = events.Claim(name, source.actor if source.actor in messages.ACTORS else "web")
        return events.Actor(name=self._hub, via="hub", claims=claims)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def get_required_level(type_: str) -> str:
    """Returns the level of `hub_may` that a request needs. A type that is in no list, such as a new one, needs the highest."""
    if type_ in _WATCH_TYPES:
        return "watch"
    return "decide" if type_ in _DECIDE_TYPES else "start"


class _Responder:
    """Sends the one answer to a call."""

    def __init__(self, answer: HubReply, envelope: messages.Envelope, request_id: str) -> None:
        self._answer = answer
        self._envelope = envelope
        self._request_id = request_id

    def respond(self, result: Any) -> None:
        run_id = self._envelope.run_id
        if self._envelope.type == "rpc.run.start":
            run_id = cast(dict[str, str], result)["run_id"]
        self._send(messages.Response(self._request_id, ok=True, rpc_type=self._envelope.type, result=result), run_id)

    def respond_error(self, problem: str) -> None:
        refusal = messages.Response(self._request_id, ok=False, rpc_type=self._envelope.type, error=problem)
        self._send(refusal, self._envelope.run_id)

    def _send(self, response: messages.Response, run_id: str | None) -> None:
        self._answer("rpc.response", response, run_id=run_id)


def _decode_source(data: msgspec.Raw) -> _RequestSource:
    try:
        return _decode_asker(data)
    except _DECODE_ERRORS:
        return _RequestSource()
