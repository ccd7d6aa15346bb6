"""The runs of this host, for its owner: start, list, type, stop, decide, the terminal as a stream of bytes, and relay's RPCs.

A request on the owner's socket may be about a run that is on this host and that the caller may read. Each RPC has its own path,
and is journalled without the `rpc.` of its name.

A terminal's output as one long response, until its run ends, and a request's body typed into a terminal as it arrives.

A slow reader is a cursor in the journal: the output that it has not taken waits there, and not here."""

import asyncio
import codecs
import uuid
from functools import partial
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from switchtower.core import codec, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.core.roles import Action
from switchtower.protocols import connection
from switchtower.protocols.relay import inbound, messages, rows, wire_values
from switchtower.protocols.relay.host.gate import RunCommands
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.web_api import requests, responses
from switchtower.web_api.requests import HttpCall, HttpCaller
from switchtower.web_api.routes import EndpointRoute, RouteAccess

START, END, SCREEN = "start", "now", "screen"
START_POSITIONS = (START, END, SCREEN)
MEDIA_TYPE = "application/octet-stream"

MAX_BUFFERED_BYTES = 262_144
"""No more is read from the journal while this many bytes wait to be sent; a page arrives in one piece."""
CHUNK_BYTES = 65_536
_MAX_ATTEMPTS = 5
"""Retention may remove entries faster than a new reader finds its starting point."""


class _OutputPiece(msgspec.Struct):
    text: str


_decode_piece = msgspec.json.Decoder(_OutputPiece).decode


class OutputPruned(Exception):
    """The next output was removed before it was read."""


class TerminalSubscriber:
    """Implements `session_service.Subscriber`: a terminal's output from some place on."""

    def __init__(self, initial_output: str = "") -> None:
        self._initial_output = initial_output.encode()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._subscription: session_service.Subscription | None = None
        self._ends_at: int | None = None
        self._ended = False
        self._has_gap = False
        self._changed = asyncio.Event()

    def start(self, attachment: session_service.Attachment) -> None:
        self._subscription = attachment.subscription
        if attachment.session.run is None:
            self._ends_at = attachment.session.seq
            self._ended = attachment.subscription.cursor >= attachment.session.seq
        self._subscription.start()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    async def read_next(self) -> bytes | None:
        """Returns the next output; None at the end. Raises `OutputPruned`."""
        if self._initial_output:
            opening, self._initial_output = self._initial_output, b""
            return opening
        while not self._waiting:
            if self._ended:
                return None
            if self._has_gap:
                raise OutputPruned
            self._changed.clear()
            await self._changed.wait()
        count, size = 0, 0
        while count < len(self._waiting) and size < CHUNK_BYTES:
            size += len(self._waiting[count])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_bytes -= size
        if self.is_ready and self._subscription is not None:
            self._subscription.wake()
        return "".join(_decode_piece(data).text for data in taken).encode()

    # The subscriber's side

    @property
    def is_ready(self) -> bool:
        return self._waiting_bytes < MAX_BUFFERED_BYTES

    def deliver(self, batch: session_service.Batch) -> None:
        for entry in batch.entries:
            if entry.kind == events.ToolProgressed.kind:
                self._waiting.append(entry.data)
                self._waiting_bytes += len(entry.data)
            elif entry.kind == events.RunCompleted.kind:
                self._ended = True
        if self._ends_at is not None and batch.last_seq >= self._ends_at:
            self._ended = True
        self._changed.set()

    def on_gap(self, session_id: str) -> None:
        self._has_gap = True
        self._changed.set()


async def follow_terminal(tower_: session_service.SessionService, session_id: str, position: str) -> TerminalSubscriber:
    """Raises the core's refusals."""
    if position == END:
        # The cursor is beyond the head: only new output is read, as after a gap.
        following = TerminalSubscriber()
        following.start(await connection.attach(tower_, session_id, session_service.HEAD_CURSOR, following))
        return following
    opening, after_seq = ("", 0) if position == START else await _load_screen(tower_, session_id)
    for _ in range(_MAX_ATTEMPTS):
        following = TerminalSubscriber(opening)
        attachment = await connection.attach(tower_, session_id, after_seq, following)
        if not attachment.gap:
            following.start(attachment)
            return following
        attachment.subscription.close()
        # Some output is no longer stored: the last whole screen replaces it, unless that was removed as well.
        opening, after_seq = await _load_screen(tower_, session_id)
        if after_seq < attachment.earliest_seq - 1:
            opening, after_seq = "", attachment.earliest_seq - 1
    raise errors.Overloaded(f"the output of {session_id} is removed faster than it can be read")


async def _load_screen(tower_: session_service.SessionService, session_id: str) -> tuple[str, int]:
    """Returns the text that paints the last whole screen, and its place; the start when there is none."""
    terminal = (await tower_.get_session(session_id)).terminal
    if terminal is None or terminal.screen_seq == 0:
        return "", 0
    entries = await tower_.read_entries(session_id, terminal.screen_seq - 1, 1)
    return next(((text, entry.seq) for entry in entries if (text := _read_painting(entry)) is not None), ("", 0))


def _read_painting(entry: journal.Entry) -> str | None:
    event = codec.decode(entry.kind, entry.data)
    return event.text if isinstance(event, events.ScreenCaptured) else None


def make_head_response() -> Response:
    return Response(media_type=MEDIA_TYPE)


class TerminalOutputResponse:
    """The response: an ASGI app that ends with the run, or when its reader disconnects."""

    def __init__(self, tower_: session_service.SessionService, session_id: str, subscriber: TerminalSubscriber) -> None:
        self._tower = tower_
        self._session_id = session_id
        self._subscriber = subscriber

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        pouring = asyncio.ensure_future(self._send_output(send))
        try:
            await asyncio.wait((leaving, pouring), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            pouring.cancel()
            await asyncio.wait((leaving, pouring))
            self._subscriber.close()
        if not pouring.cancelled():
            pouring.result()

    async def _send_output(self, send: Any) -> None:
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while (piece := await self._read_next()) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _read_next(self) -> bytes | None:
        while True:
            try:
                return await self._subscriber.read_next()
            except OutputPruned:
                self._subscriber.close()
                self._subscriber = await follow_terminal(self._tower, self._session_id, SCREEN)


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def type_request_body(request: Request, card: journal.Card, commands: RunCommands, actor: events.Actor) -> None:
    """Each piece is journalled before the next is read from the socket, so nothing piles up here."""
    characters = codecs.getincrementaldecoder("utf-8")()
    try:
        async for piece in request.stream():
            await commands.send_stdin(card, messages.SendStdin(text=characters.decode(piece)), actor)
        characters.decode(b"", final=True)
    except UnicodeDecodeError:
        raise responses.HttpError(400, "what is typed is UTF-8") from None


MAX_LISTED_RUNS = 1_000


class LocalRunFinder:
    def __init__(self, tower_: session_service.SessionService, rpc: HostRpcHandler) -> None:
        self._tower = tower_
        self._rpc = rpc

    async def find_card(self, call: HttpCall) -> journal.Card:
        """Returns the card of the run that the path names. Raises `HttpError`."""
        card = await self._tower.find_card(call.session_id)
        if card is None or not self._rpc.is_local(card):
            raise responses.make_unknown_run()
        if not _can_read(call.caller, card):
            raise responses.HttpError(403, "a process of a run may look at its own run only")
        return card

    async def list_cards(self, call: HttpCall) -> list[journal.Card]:
        """Lists the runs, the newest first."""
        cards = await self._tower.list_cards(MAX_LISTED_RUNS)
        return [card for card in cards if self._rpc.is_local(card) and _can_read(call.caller, card)]


def _can_read(caller: HttpCaller, card: journal.Card) -> bool:
    return caller.run_id is None or caller.run_id == card.active_run_id


_APPROVALS = ("approve", "approve_for_session")


class PermissionBody(Struct, frozen=True):
    request_id: messages.Id
    decision: Literal["approve", "approve_for_session", "deny", "abort"]
    reason: str | None = None


class LocalRunEndpoints:
    def __init__(self, tower_: session_service.SessionService, rpc: HostRpcHandler, finder: LocalRunFinder) -> None:
        self._tower = tower_
        self._rpc = rpc
        self._finder = finder

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/runs", self.list, RouteAccess.RUN, action=Action.WATCH),
            EndpointRoute("POST", "/runs", self.start, action=Action.START),
            EndpointRoute("GET", "/runs/{run_id}", self.get, RouteAccess.RUN, action=Action.WATCH),
            EndpointRoute("POST", "/runs/{run_id}/input", self.send_input, action=Action.SEND),
            EndpointRoute("POST", "/runs/{run_id}/stop", self.stop, action=Action.STOP),
            EndpointRoute("POST", "/runs/{run_id}/resize", self.resize, action=Action.TYPE),
            EndpointRoute("POST", "/runs/{run_id}/permission", self.decide, action=Action.DECIDE),
            EndpointRoute("GET", "/runs/{run_id}/stdout", self.stream_stdout, RouteAccess.RUN, action=Action.WATCH),
            EndpointRoute("POST", "/runs/{run_id}/stdin", self.stream_stdin, action=Action.TYPE),
        )

    async def list(self, call: HttpCall) -> Any:
        """Lists the active runs; with `?all=true` also those that have ended."""
        everything = call.get_flag("all", default=False)
        cards = await self._finder.list_cards(call)
        return [self._make_row(card) for card in cards if everything or card.active_run_id is not None]

    async def start(self, call: HttpCall) -> Any:
        asked = await call.read_body_with_defaults(messages.RunStart, request_id=str(uuid.uuid4()))
        return {"run_id": wire_values.format_run_id(await self._rpc.start_run(asked, call.caller.make_actor()))}

    async def get(self, call: HttpCall) -> Any:
        return self._make_row(await self._finder.find_card(call))

    async def send_input(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        asked = await call.read_body_with_defaults(messages.SendInput, input_id=str(uuid.uuid4()))
        await self._rpc.commands.send_input(card, asked, call.caller.make_actor())

    async def stop(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        asked = await call.read_body_with_defaults(messages.Stop)
        return {"signal": await self._rpc.commands.stop(card, asked.signal, call.caller.make_actor())}

    async def resize(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        await self._rpc.commands.resize(card, await call.read_body(messages.Resize), call.caller.make_actor())

    async def decide(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        asked = await call.read_body(PermissionBody)
        decided = messages.Decide(request_id=asked.request_id, decision=asked.decision, reason=asked.reason)
        await self._rpc.commands.decide(card, decided, call.caller.make_actor(), approve=asked.decision in _APPROVALS)

    async def stream_stdout(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        begin = call.get_text("from") or SCREEN
        if begin not in START_POSITIONS:
            raise responses.HttpError(400, f"`from` is one of {', '.join(START_POSITIONS)}")
        _check_terminal(card)
        if call.request.method == "HEAD":
            return make_head_response()
        return TerminalOutputResponse(self._tower, card.session_id, await follow_terminal(self._tower, card.session_id, begin))

    async def stream_stdin(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        _check_terminal(card)
        await type_request_body(call.request, card, self._rpc.commands, call.caller.make_actor())

    def _make_row(self, card: journal.Card) -> dict[str, Any]:
        row = rows.make_run_row(card, self._rpc.host_id)
        return {
            "run_id": row.id,
            "pid": card.pid,
            "awaiting_input": row.status in ("awaiting_input", "awaiting_approval"),
            **msgspec.to_builtins(row),
        }


def _check_terminal(card: journal.Card) -> None:
    if not card.tool:
        raise responses.HttpError(409, "run has no terminal", hint="send it a message with `/input`")


READ_TOOLS = ("fs.read", "fs.search", "fs.list", "git.status", "git.diff")
TOOLS = (*READ_TOOLS, "fs.write", "bash")
"""A user decides about the last two, so a process of a run may request them."""


class LocalRpcEndpoints:
    def __init__(self, rpc: HostRpcHandler, finder: LocalRunFinder) -> None:
        self._rpc = rpc
        self._finder = finder

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return tuple(
            EndpointRoute(
                method,
                f"/runs/{{run_id}}/{tool.replace('.', '/')}",
                partial(self.call, tool=tool),
                RouteAccess.RUN,
                inbound.MESSAGE_ACTIONS.get(f"rpc.{tool}"),
            )
            for tool in TOOLS
            for method in (("GET", "POST") if tool in READ_TOOLS else ("POST",))
        )

    async def call(self, call: HttpCall, *, tool: str) -> Any:
        card = await self._finder.find_card(call)
        type_ = f"rpc.{tool}"
        wanted = messages.RPC_DATA[type_]
        own_id = str(uuid.uuid4())
        if call.request.method == "POST":
            asked = await call.read_body_with_defaults(wanted, request_id=own_id)
        else:
            asked = requests.convert_fields({"request_id": own_id, **call.request.query_params}, wanted)
        # For a client that has disconnected, no approval is requested and no search is made.
        work = self._rpc.call_on_run(type_, card, cast(messages.RunRpc, asked), call.caller.make_actor(), tool=tool)
        return await call.run_while_connected(work)
