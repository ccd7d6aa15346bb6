"""The runs of this host, for its owner: start, list, type, stop, decide, and the terminal as a stream of bytes."""

import uuid
from typing import Any, Literal

import msgspec
from msgspec import Struct

from switchtower.core import journal, tower
from switchtower.core.roles import Action
from switchtower.protocols.relay import messages, names, rows
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.http import problems, stdin, stdout
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.local_found import Finder
from switchtower.protocols.relay.http.routing import Entry, Row

_APPROVING = ("approve", "approve_for_session")


class Permission(Struct, frozen=True):
    request_id: messages.Id
    decision: Literal["approve", "approve_for_session", "deny", "abort"]
    reason: str | None = None


class LocalRuns:
    def __init__(self, tower_: tower.Tower, rpc: HostRpc, finder: Finder) -> None:
        self._tower = tower_
        self._rpc = rpc
        self._finder = finder

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/runs", self.list, Entry.RUN, action=Action.WATCH),
            Row("POST", "/runs", self.start, action=Action.START),
            Row("GET", "/runs/{run_id}", self.get, Entry.RUN, action=Action.WATCH),
            Row("POST", "/runs/{run_id}/input", self.send_input, action=Action.SEND),
            Row("POST", "/runs/{run_id}/stop", self.stop, action=Action.STOP),
            Row("POST", "/runs/{run_id}/resize", self.resize, action=Action.TYPE),
            Row("POST", "/runs/{run_id}/permission", self.decide, action=Action.DECIDE),
            Row("GET", "/runs/{run_id}/stdout", self.stdout, Entry.RUN, action=Action.WATCH),
            Row("POST", "/runs/{run_id}/stdin", self.stdin, action=Action.TYPE),
        )

    async def list(self, call: Call) -> Any:
        """Those under way; with `?all=true` also those that have ended."""
        everything = call.flag("all", otherwise=False)
        cards = await self._finder.cards(call)
        return [self._shown(card) for card in cards if everything or card.active_run_id is not None]

    async def start(self, call: Call) -> Any:
        asked = await call.asked_with(messages.RunStart, request_id=str(uuid.uuid4()))
        return {"run_id": names.run_of(await self._rpc.start_run(asked, call.caller.actor()))}

    async def get(self, call: Call) -> Any:
        return self._shown(await self._finder.card(call))

    async def send_input(self, call: Call) -> Any:
        card = await self._finder.card(call)
        asked = await call.asked_with(messages.SendInput, input_id=str(uuid.uuid4()))
        await self._rpc.commands.send_input(card, asked, call.caller.actor())

    async def stop(self, call: Call) -> Any:
        card = await self._finder.card(call)
        asked = await call.asked_with(messages.Stop)
        return {"signal": await self._rpc.commands.stop(card, asked.signal, call.caller.actor())}

    async def resize(self, call: Call) -> Any:
        card = await self._finder.card(call)
        await self._rpc.commands.resize(card, await call.asked(messages.Resize), call.caller.actor())

    async def decide(self, call: Call) -> Any:
        card = await self._finder.card(call)
        asked = await call.asked(Permission)
        decided = messages.Decide(request_id=asked.request_id, decision=asked.decision, reason=asked.reason)
        await self._rpc.commands.decide(card, decided, call.caller.actor(), approve=asked.decision in _APPROVING)

    async def stdout(self, call: Call) -> Any:
        card = await self._finder.card(call)
        begin = call.text("from") or stdout.SCREEN
        if begin not in stdout.BEGINNINGS:
            raise problems.Problem(400, f"`from` is one of {', '.join(stdout.BEGINNINGS)}")
        _check_terminal(card)
        if call.request.method == "HEAD":
            return stdout.head()
        return stdout.Stdout(self._tower, card.session_id, await stdout.follow(self._tower, card.session_id, begin))

    async def stdin(self, call: Call) -> Any:
        card = await self._finder.card(call)
        _check_terminal(card)
        await stdin.pour(call.request, card, self._rpc.commands, call.caller.actor())

    def _shown(self, card: journal.Card) -> dict[str, Any]:
        row = rows.run_row(card, self._rpc.host_id)
        return {
            "run_id": row.id,
            "pid": card.pid,
            "awaiting_input": row.status in ("awaiting_input", "awaiting_approval"),
            **msgspec.to_builtins(row),
        }


def _check_terminal(card: journal.Card) -> None:
    if not card.tool:
        raise problems.Problem(409, "run has no terminal", hint="send it a message with `/input`")
