"""The runs of this host, for its owner: start, list, type, stop, decide, and the terminal as a stream of bytes."""

import uuid
from typing import Any, Literal

import msgspec
from msgspec import Struct

from switchtower.core import journal, tower
from switchtower.core.roles import Action
from switchtower.protocols.relay import messages, names, rows
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.http import problems, stdin, stdout
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.local_found import LocalRunFinder
from switchtower.protocols.relay.http.routing import RouteAccess, EndpointRoute

_APPROVALS = ("approve", "approve_for_session")


class PermissionBody(Struct, frozen=True):
    request_id: messages.Id
    decision: Literal["approve", "approve_for_session", "deny", "abort"]
    reason: str | None = None


class LocalRunEndpoints:
    def __init__(self, tower_: tower.SessionService, rpc: HostRpcHandler, finder: LocalRunFinder) -> None:
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
        """Those under way; with `?all=true` also those that have ended."""
        everything = call.get_flag("all", default=False)
        cards = await self._finder.list_cards(call)
        return [self._make_row(card) for card in cards if everything or card.active_run_id is not None]

    async def start(self, call: HttpCall) -> Any:
        asked = await call.read_body_with_defaults(messages.RunStart, request_id=str(uuid.uuid4()))
        return {"run_id": names.format_run_id(await self._rpc.start_run(asked, call.caller.make_actor()))}

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
        begin = call.get_text("from") or stdout.SCREEN
        if begin not in stdout.START_POSITIONS:
            raise problems.HttpError(400, f"`from` is one of {', '.join(stdout.START_POSITIONS)}")
        _check_terminal(card)
        if call.request.method == "HEAD":
            return stdout.make_head_response()
        return stdout.TerminalOutputResponse(
            self._tower, card.session_id, await stdout.follow_terminal(self._tower, card.session_id, begin)
        )

    async def stream_stdin(self, call: HttpCall) -> Any:
        card = await self._finder.find_card(call)
        _check_terminal(card)
        await stdin.type_request_body(call.request, card, self._rpc.commands, call.caller.make_actor())

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
        raise problems.HttpError(409, "run has no terminal", hint="send it a message with `/input`")
