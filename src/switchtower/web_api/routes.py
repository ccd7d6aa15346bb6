"""The endpoints as a table: method, path, handler, and required access. Every failure of a handler is converted here."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router

from switchtower.core import roles
from switchtower.core.roles import Action
from switchtower.web_api import ports, responses
from switchtower.web_api.endpoints import pages
from switchtower.web_api.requests import HttpCall, HttpCaller

log = logging.getLogger(__name__)

BODY_TIMEOUT = 60.0

EndpointHandler = Callable[[HttpCall], Awaitable[Any]]


class RouteAccess(Enum):
    """The access that an endpoint requires."""

    ANYONE = auto()
    UNAUTHENTICATED = auto()
    """A client without a token yet, but no process of a run."""
    USER = auto()
    READER = auto()
    """A user, or another client that may read the metrics."""
    RUN = auto()
    """A user; on the owner's socket also a process of a run."""


class EndpointRoute(NamedTuple):
    method: str
    path: str
    handler: EndpointHandler
    entry: RouteAccess = RouteAccess.USER
    action: Action | None = None
    """The endpoint's action, which determines the lowest role that it needs. None needs an admin."""

    def check(self, role: roles.Role) -> None:
        """Raises `errors.RoleForbidden`."""
        if self.entry not in (RouteAccess.ANYONE, RouteAccess.UNAUTHENTICATED):
            roles.check_role(role, self.action)


class RequestAuthenticator(Protocol):
    async def authenticate(self, request: Request, entry: RouteAccess) -> HttpCaller:
        """Raises `HttpError`."""
        ...


def make_router(
    rows: Iterable[EndpointRoute],
    authenticator: RequestAuthenticator,
    explain: ports.ConvertFailure,
    *,
    body_timeout_s: float,
    default: Any = pages.respond_not_found,
) -> Router:
    """`default` is the app for all other paths."""
    by_path: dict[str, dict[str, EndpointRoute]] = {}
    for row in rows:
        methods = by_path.setdefault(row.path, {})
        assert row.method not in methods, "each endpoint has one row"
        methods[row.method] = row
    routes = [Route(path, PathEndpoint(methods, authenticator, explain, body_timeout_s)) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False, default=default)


class PathEndpoint:
    """All methods of one path."""

    def __init__(
        self,
        rows: dict[str, EndpointRoute],
        authenticator: RequestAuthenticator,
        explain: ports.ConvertFailure,
        body_timeout_s: float,
    ) -> None:
        self._routes = rows
        self._authenticator = authenticator
        self._explain = explain
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._respond(Request(scope, receive, send))
        if response is not None:
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> Any:
        row = self._routes.get("GET" if request.method == "HEAD" else request.method)
        if row is None:
            allowed = ", ".join(sorted(self._routes))
            return responses.make_error_response(responses.HttpError(405, "method not allowed", headers={"Allow": allowed}))
        try:
            caller = await self._authenticator.authenticate(request, row.entry)
            row.check(caller.role)
            return responses.make_response(await row.handler(HttpCall(request, caller, body_timeout_s=self._body_timeout_s)))
        except ClientDisconnect:
            return None
        except Exception as failure:
            problem = responses.convert_failure(failure) or self._explain(failure)
            if problem is None:
                # It is our own bug. The row's path is logged, not the request's, which may contain anything.
                log.exception("%s %s failed", row.method, row.path)
                problem = responses.make_internal_error()
            return responses.make_error_response(problem)
