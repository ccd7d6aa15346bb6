"""Runs as apps list and read them, and input to one of them."""

from typing import Any

from switchtower.core.roles import Action
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute

MAX_RUNS = 200
DEFAULT_RECENT_RUNS = 50
DEFAULT_MESSAGES, MAX_MESSAGES = 200, 500


class RunEndpoints:
    def __init__(self, hub: ports.HubPort) -> None:
        self._hub = hub

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        # The public page asks for sessions, the command line for runs; they are the same.
        return (
            EndpointRoute("GET", "/runs", self.list, action=Action.WATCH),
            EndpointRoute("GET", "/sessions", self.list, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/recent", self.list_recent, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}", self.get, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/{run_id}", self.get, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}/messages", self.list_messages, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/{run_id}/messages", self.list_messages, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}/screen", self.get_screen, action=Action.WATCH),
            EndpointRoute("POST", "/runs/{run_id}/input", self.send_input, action=Action.SEND),
        )

    async def list(self, call: HttpCall) -> Any:
        return await self._hub.list_runs(MAX_RUNS)

    async def list_recent(self, call: HttpCall) -> Any:
        return await self._hub.list_runs(call.get_clamped("limit", DEFAULT_RECENT_RUNS, MAX_RUNS))

    async def get(self, call: HttpCall) -> Any:
        return _require_run(await self._hub.find_run(call.run_id))

    async def list_messages(self, call: HttpCall) -> Any:
        history = await self._hub.read_history(
            call.run_id,
            limit=call.get_clamped("limit", DEFAULT_MESSAGES, MAX_MESSAGES),
            before_id=call.get_number("before_id"),
            include_output=call.get_flag("include_output", default=True),
        )
        return _require_run(history)

    async def get_screen(self, call: HttpCall) -> Any:
        """Ours."""
        return _require_run(await self._hub.read_screen(call.run_id))

    async def send_input(self, call: HttpCall) -> Any:
        asked = await call.read_body(messages.SendInput)
        await self._hub.send_input(call.run_id, asked, call.caller.make_actor(asked.actor))


def _require_run(found: Any) -> Any:
    if found is None:
        raise problems.make_unknown_run()
    return found
