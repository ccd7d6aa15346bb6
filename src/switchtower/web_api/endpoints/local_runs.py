"""The runs of this host, for its owner: start, list, type, stop, decide, the terminal as a stream of bytes, and relay's RPCs.

A request on the owner's socket may be about a run that is on this host and that the caller may read. Each RPC has its own path,
and is journalled without the `rpc.` of its name.
"""

import uuid
from functools import partial
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from switchtower.core.ports import journal, session_service
from switchtower.core.roles import Action
from switchtower.protocols.relay import inbound, messages, rows, wire_values
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.web_api import requests, responses
from switchtower.web_api.endpoints import terminal_stream
from switchtower.web_api.requests import HttpCall, HttpCaller
from switchtower.web_api.routes import EndpointRoute, RouteAccess

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
        begin = call.get_text("from") or terminal_stream.SCREEN
        if begin not in terminal_stream.START_POSITIONS:
            raise responses.HttpError(400, f"`from` is one of {', '.join(terminal_stream.START_POSITIONS)}")
        _check_terminal(card)
        if call.request.method == "HEAD":
            return terminal_stream.make_head_response()
        return terminal_stream.TerminalOutputResponse(
            self._tower, card.session_id, await terminal_stream.follow_terminal(self._tower, card.session_id, begin)
        )

    async def stream_stdin(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        _check_terminal(card)
        await terminal_stream.type_request_body(call.request, card, self._rpc.commands, call.caller.make_actor())

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
