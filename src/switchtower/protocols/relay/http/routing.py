"""The endpoints as a table: method, path, handler, and who may come. One door for everything that goes wrong."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router

from switchtower.core import roles
from switchtower.core.roles import Action
from switchtower.protocols.relay.http import answers, pages, ports, problems
from switchtower.protocols.relay.http.calls import Call, Caller

log = logging.getLogger(__name__)

BODY_TIMEOUT = 60.0

Handler = Callable[[Call], Awaitable[Any]]


class Entry(Enum):
    """Who may come."""

    ANYONE = auto()
    STRANGER = auto()
    """Somebody without a token yet, but no process of a run."""
    USER = auto()
    LOOKER = auto()
    """A user, or whoever else may see how the daemon does."""
    RUN = auto()
    """A user; on the owner's socket also a process of a run."""


class Row(NamedTuple):
    method: str
    path: str
    handler: Handler
    entry: Entry = Entry.USER
    action: Action | None = None
    """What it does, which says the least role that it needs. None needs an admin."""

    def check(self, role: roles.Role) -> None:
        """Raises `errors.RoleForbidden`."""
        if self.entry not in (Entry.ANYONE, Entry.STRANGER):
            roles.check(role, self.action)


class Door(Protocol):
    async def admit(self, request: Request, entry: Entry) -> Caller:
        """Raises `Problem`."""
        ...


def router(
    rows: Iterable[Row], door: Door, explain: ports.Explain, *, body_timeout_s: float, otherwise: Any = pages.nothing
) -> Router:
    """`otherwise` is the app for all other paths."""
    by_path: dict[str, dict[str, Row]] = {}
    for row in rows:
        methods = by_path.setdefault(row.path, {})
        assert row.method not in methods, "each endpoint has one row"
        methods[row.method] = row
    routes = [Route(path, Resource(methods, door, explain, body_timeout_s)) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False, default=otherwise)


class Resource:
    """All that one path answers."""

    def __init__(self, rows: dict[str, Row], door: Door, explain: ports.Explain, body_timeout_s: float) -> None:
        self._rows = rows
        self._door = door
        self._explain = explain
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._answer(Request(scope, receive, send))
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Any:
        row = self._rows.get("GET" if request.method == "HEAD" else request.method)
        if row is None:
            allowed = ", ".join(sorted(self._rows))
            return answers.problem(problems.Problem(405, "method not allowed", headers={"Allow": allowed}))
        try:
            caller = await self._door.admit(request, row.entry)
            row.check(caller.role)
            return answers.of(await row.handler(Call(request, caller, body_timeout_s=self._body_timeout_s)))
        except ClientDisconnect:
            return None
        except Exception as failure:
            problem = problems.of(failure) or self._explain(failure)
            if problem is None:
                # A bug of ours. The row's path, not the request's: that one may hold anything.
                log.exception("%s %s failed", row.method, row.path)
                problem = problems.internal()
            return answers.problem(problem)
