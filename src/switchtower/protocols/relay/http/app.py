"""The hub's HTTP for apps, put together."""

from collections.abc import Collection
from typing import Any

from switchtower.protocols.relay.http import auth, guard, health, hosts, ports, routing, runs, users


def make_app(
    hub: ports.Hub,
    accounts: ports.Accounts,
    *,
    version: str,
    explain: ports.Explain,
    is_of_a_run: ports.IsOfARun,
    names: Collection[str] = (),
    origins: Collection[str] = (),
    body_timeout_s: float = routing.BODY_TIMEOUT,
) -> Any:
    """An ASGI app for `transports.http.serve`. `names` are those that we may be reached by, besides loopback's and `origins`."""
    rows = (
        *health.Health(version).rows(),
        *auth.Auth(accounts).rows(),
        *runs.Runs(hub).rows(),
        *hosts.Hosts(hub).rows(),
        *users.Users(accounts).rows(),
    )
    door = auth.TokenDoor(accounts, is_of_a_run)
    router = routing.router(rows, door, explain, body_timeout_s=body_timeout_s)
    return guard.Guard(router, hosts=names, origins=origins)
