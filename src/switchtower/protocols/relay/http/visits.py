"""The token in the page's address, for the owner alone: it lets its bearer in once, as the owner."""

from typing import Any

from switchtower.core.roles import Action
from switchtower.protocols.relay import stamps
from switchtower.protocols.relay.http import answers, ports
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute


class VisitEndpoints:
    def __init__(self, visits: ports.VisitTokensPort) -> None:
        self._visits = visits

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (EndpointRoute("POST", "/visits", self.issue, action=Action.MANAGE_TOKENS),)

    async def issue(self, call: HttpCall) -> Any:
        token, expires_at_ms = self._visits.issue()
        return answers.make_json_response({"token": token, "expires_at": stamps.format_timestamp(expires_at_ms)}, 201)
