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
from switchtower.transports.origins import Sites


def make_app(
    hub: ports.Hub,
    accounts: ports.Accounts,
    *,
    version: str,
    explain: ports.Explain,
    find_run: ports.FindRun,
    names: Collection[str] = (),
    origins: Collection[str] = (),
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.Extras = ports.NO_EXTRAS,
) -> Any:
    """An ASGI app for `transports.http.serve`. `names` are those that we may be reached by, besides loopback's and `origins`."""
    sites = Sites(origins, public_url=extras.public_url)
    logins = auth.Logins(extras.public_url)
    rows = (
        *health.Health(version, extras.monitor, _features(extras) or None).rows(),
        *auth.Auth(accounts, logins).rows(),
        *runs.Runs(hub).rows(),
        *hosts.Hosts(hub).rows(),
        *users.Users(accounts).rows(),
        *audits.AccountNotes(accounts).rows(),
        *_extra_rows(extras),
    )
    door = auth.TokenDoor(accounts, find_run, sites, public_url=extras.public_url, may_look=extras.may_look)
    otherwise = pages.nothing
    if extras.page is not None:
        otherwise = pages.Page(extras.page, auth.FirstVisit(accounts, logins, find_run, explain))
    router = routing.router(rows, door, explain, body_timeout_s=body_timeout_s, otherwise=otherwise)
    return guard.Guard(router, hosts=names, sites=sites)


def _extra_rows(extras: ports.Extras) -> Iterator[routing.Row]:
    if extras.sessions is not None:
        yield from sessions.Sessions(extras.sessions).rows()
    if extras.decisions is not None:
        yield from audits.Audits(extras.decisions).rows()
    if extras.pushes is not None:
        yield from pushes.Subscriptions(extras.pushes).rows()


def _features(extras: ports.Extras) -> list[str]:
    """What the page may offer."""
    there = {"audit": extras.decisions, "metrics": extras.monitor, "webpush": extras.pushes}
    further = () if extras.sessions is None else sessions.FEATURES
    return [*(name for name, part in there.items() if part is not None), *further]
