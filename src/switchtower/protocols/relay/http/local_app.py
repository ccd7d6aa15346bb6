"""The host's own HTTP on its owner's Unix socket, put together: no tokens, because only the owner's processes come in."""

from typing import Any

from starlette.requests import Request

from switchtower.core import tower
from switchtower.core.roles import Role
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.http import (
    audits,
    guard,
    health,
    hosts,
    local_rpc,
    local_runs,
    ports,
    problems,
    routing,
    users,
    visits,
)
from switchtower.protocols.relay.http.calls import HttpCaller, get_user_agent
from switchtower.protocols.relay.http.local_found import LocalRunFinder
from switchtower.protocols.relay.http.peers import find_calling_run
from switchtower.protocols.relay.http.routing import RouteAccess

VIA = "local"


class OwnerSocketAuthenticator:
    def __init__(self, find_run: ports.FindRun) -> None:
        self._find_run = find_run

    async def authenticate(self, request: Request, entry: RouteAccess) -> HttpCaller:
        run_id = None if entry is RouteAccess.ANYONE else find_calling_run(request, self._find_run)
        if run_id is None:
            return HttpCaller(name="owner", via=VIA, role=Role.ADMIN, device=get_user_agent(request), address="local")
        if entry is not RouteAccess.RUN:
            raise problems.make_run_process_refused()
        return HttpCaller(name="run", via=VIA, run_id=run_id, role=Role.OPERATOR, address="local")


def build_owner_app(
    hub: ports.HubPort,
    accounts: ports.AccountsPort,
    tower_: tower.SessionService,
    rpc: HostRpcHandler,
    *,
    version: str,
    explain: ports.ConvertFailure,
    find_run: ports.FindRun,
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
    visit_tokens: ports.VisitTokensPort | None = None,
) -> Any:
    """An ASGI app for `transports.http.serve_unix`."""
    finder = LocalRunFinder(tower_, rpc)
    rows = (
        *health.HealthEndpoints(version, extras.monitor).list_routes(),
        *local_runs.LocalRunEndpoints(tower_, rpc, finder).list_routes(),
        *local_rpc.LocalRpcEndpoints(rpc, finder).list_routes(),
        *hosts.HostEndpoints(hub).list_routes(),
        *users.UserEndpoints(accounts).list_routes(),
        *audits.AccountAuditEndpoints(accounts).list_routes(),
        *(() if extras.decisions is None else audits.AuditEndpoints(extras.decisions).list_routes()),
        *(() if visit_tokens is None else visits.VisitEndpoints(visit_tokens).list_routes()),
    )
    door = OwnerSocketAuthenticator(find_run)
    return guard.OwnerSocketGuard(routing.make_router(rows, door, explain, body_timeout_s=body_timeout_s))
