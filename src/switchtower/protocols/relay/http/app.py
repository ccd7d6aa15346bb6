"""The hub's HTTP for apps, put together."""

from collections.abc import Collection, Iterator
from typing import Any

from switchtower.protocols.relay.http import (
    audits,
    auth,
    guard,
    health,
    hosts,
    pages,
    ports,
    pushes,
    routing,
    runs,
    sessions,
    users,
)
from switchtower.transports.origins import AllowedOrigins


def build_public_app(
    hub: ports.HubPort,
    accounts: ports.AccountsPort,
    *,
    version: str,
    explain: ports.ConvertFailure,
    find_run: ports.FindRun,
    names: Collection[str] = (),
    origins: Collection[str] = (),
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
) -> Any:
    """An ASGI app for `transports.http.serve`. `names` are those that we may be reached by, besides loopback's and `origins`."""
    sites = AllowedOrigins(origins, public_url=extras.public_url)
    logins = auth.LoginCookies(extras.public_url)
    rows = (
        *health.HealthEndpoints(version, extras.monitor, _list_features(extras) or None).list_routes(),
        *auth.AuthEndpoints(accounts, logins).list_routes(),
        *runs.RunEndpoints(hub).list_routes(),
        *hosts.HostEndpoints(hub).list_routes(),
        *users.UserEndpoints(accounts).list_routes(),
        *audits.AccountAuditEndpoints(accounts).list_routes(),
        *_list_optional_routes(extras),
    )
    door = auth.TokenAuthenticator(accounts, find_run, sites, public_url=extras.public_url, can_read=extras.can_read)
    otherwise = pages.respond_not_found
    if extras.page is not None:
        otherwise = pages.PageApp(extras.page, auth.FirstVisitLogin(accounts, logins, find_run, explain))
    router = routing.make_router(rows, door, explain, body_timeout_s=body_timeout_s, default=otherwise)
    return guard.OriginGuard(router, hosts=names, sites=sites)


def _list_optional_routes(extras: ports.OptionalEndpoints) -> Iterator[routing.EndpointRoute]:
    if extras.sessions is not None:
        yield from sessions.SessionEndpoints(extras.sessions).list_routes()
    if extras.decisions is not None:
        yield from audits.AuditEndpoints(extras.decisions).list_routes()
    if extras.pushes is not None:
        yield from pushes.PushSubscriptionEndpoints(extras.pushes).list_routes()


def _list_features(extras: ports.OptionalEndpoints) -> list[str]:
    """What the page may offer."""
    there = {"audit": extras.decisions, "metrics": extras.monitor, "webpush": extras.pushes}
    further = () if extras.sessions is None else sessions.FEATURES
    return [*(name for name, part in there.items() if part is not None), *further]
