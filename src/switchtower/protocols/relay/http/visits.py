"""The token in the page's address, for the owner alone: it lets its bearer in once, as the owner."""

from typing import Any

from switchtower.core.roles import Action
from switchtower.protocols.relay import stamps
from switchtower.protocols.relay.http import answers, ports
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row


class FirstVisits:
    def __init__(self, visits: ports.Visits) -> None:
        self._visits = visits

    def rows(self) -> tuple[Row, ...]:
        return (Row("POST", "/visits", self.issue, action=Action.MANAGE_TOKENS),)

    async def issue(self, call: Call) -> Any:
        token, expires_at_ms = self._visits.issue()
        return answers.json({"token": token, "expires_at": stamps.spelled(expires_at_ms)}, 201)
