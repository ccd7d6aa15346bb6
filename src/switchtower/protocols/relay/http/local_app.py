"""The host's own HTTP on its owner's Unix socket, put together: no tokens, because only the owner's processes come in."""

from typing import Any

from starlette.requests import Request

from switchtower.core import tower
from switchtower.core.roles import Role
from switchtower.protocols.relay.host.rpc import HostRpc
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
from switchtower.protocols.relay.http.calls import Caller, user_agent
from switchtower.protocols.relay.http.local_found import Finder
from switchtower.protocols.relay.http.peers import run_of
from switchtower.protocols.relay.http.routing import Entry

VIA = "local"


class OwnersDoor:
    def __init__(self, find_run: ports.FindRun) -> None:
        self._find_run = find_run

    async def admit(self, request: Request, entry: Entry) -> Caller:
        run_id = None if entry is Entry.ANYONE else run_of(request, self._find_run)
        if run_id is None:
            return Caller(name="owner", via=VIA, role=Role.ADMIN, device=user_agent(request), address="local")
        if entry is not Entry.RUN:
            raise problems.of_a_run()
        return Caller(name="run", via=VIA, run_id=run_id, role=Role.OPERATOR, address="local")


def make_local_app(
    hub: ports.Hub,
    accounts: ports.Accounts,
    tower_: tower.Tower,
    rpc: HostRpc,
    *,
    version: str,
    explain: ports.Explain,
    find_run: ports.FindRun,
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.Extras = ports.NO_EXTRAS,
    visitors: ports.Visits | None = None,
) -> Any:
    """An ASGI app for `transports.http.serve_unix`."""
    finder = Finder(tower_, rpc)
    rows = (
        *health.Health(version, extras.monitor).rows(),
        *local_runs.LocalRuns(tower_, rpc, finder).rows(),
        *local_rpc.LocalRpc(rpc, finder).rows(),
        *hosts.Hosts(hub).rows(),
        *users.Users(accounts).rows(),
        *audits.AccountNotes(accounts).rows(),
        *(() if extras.decisions is None else audits.Audits(extras.decisions).rows()),
        *(() if visitors is None else visits.FirstVisits(visitors).rows()),
    )
    door = OwnersDoor(find_run)
    return guard.OwnersGuard(routing.router(rows, door, explain, body_timeout_s=body_timeout_s))
