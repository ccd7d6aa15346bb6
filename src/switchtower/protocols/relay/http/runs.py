"""Runs as apps list and read them, and input to one of them."""

from typing import Any

from switchtower.core.roles import Action
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row

MOST_RUNS = 200
RECENT = 50
MESSAGES, MOST_MESSAGES = 200, 500


class Runs:
    def __init__(self, hub: ports.Hub) -> None:
        self._hub = hub

    def rows(self) -> tuple[Row, ...]:
        # The public page asks for sessions, the command line for runs; they are the same.
        return (
            Row("GET", "/runs", self.list, action=Action.WATCH),
            Row("GET", "/sessions", self.list, action=Action.WATCH),
            Row("GET", "/sessions/recent", self.recent, action=Action.WATCH),
            Row("GET", "/runs/{run_id}", self.get, action=Action.WATCH),
            Row("GET", "/sessions/{run_id}", self.get, action=Action.WATCH),
            Row("GET", "/runs/{run_id}/messages", self.messages, action=Action.WATCH),
            Row("GET", "/sessions/{run_id}/messages", self.messages, action=Action.WATCH),
            Row("GET", "/runs/{run_id}/screen", self.screen, action=Action.WATCH),
            Row("POST", "/runs/{run_id}/input", self.send_input, action=Action.SEND),
        )

    async def list(self, call: Call) -> Any:
        return await self._hub.runs(MOST_RUNS)

    async def recent(self, call: Call) -> Any:
        return await self._hub.runs(call.clamped("limit", RECENT, MOST_RUNS))

    async def get(self, call: Call) -> Any:
        return _known(await self._hub.run(call.run_id))

    async def messages(self, call: Call) -> Any:
        history = await self._hub.history(
            call.run_id,
            limit=call.clamped("limit", MESSAGES, MOST_MESSAGES),
            before_id=call.number("before_id"),
            include_output=call.flag("include_output", otherwise=True),
        )
        return _known(history)

    async def screen(self, call: Call) -> Any:
        """Ours."""
        return _known(await self._hub.screen(call.run_id))

    async def send_input(self, call: Call) -> Any:
        asked = await call.asked(messages.SendInput)
        await self._hub.send_input(call.run_id, asked, call.caller.actor(asked.actor))


def _known(found: Any) -> Any:
    if found is None:
        raise problems.unknown_run()
    return found
