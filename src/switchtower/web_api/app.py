"""Builds the apps of the HTTP port and of the host's own socket: relay's endpoints, joined with the daemon's accounts.

The owner's Unix socket needs no tokens, because only the owner's processes can connect.
"""

from collections.abc import Collection, Iterator
from typing import Any

from starlette.requests import Request

from switchtower.accounts import accounts, login_limit, passwords
from switchtower.core.ports import session_service
from switchtower.core.roles import Role
from switchtower.notifications import web_push
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.transports.origins import AllowedOrigins
from switchtower.web_api import auth, guard, ports, responses, routes
from switchtower.web_api.endpoints import health, local_runs, pages, sessions, users
from switchtower.web_api.endpoints.local_runs import LocalRunFinder
from switchtower.web_api.requests import HttpCaller, find_calling_run, get_user_agent
from switchtower.web_api.routes import RouteAccess


def make_app(
    hub: ports.HubPort,
    accounts_: accounts.Accounts,
    *,
    version: str,
    find_run: ports.FindRun,
    host: str,
    origins: tuple[str, ...] = (),
    body_timeout_s: float = routes.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
) -> Any:
    """Makes the app for `transports.http.serve`. `host` is the address that it listens at; `origins` is the setting of that
    name."""
    return build_public_app(
        hub,
        accounts_,
        version=version,
        explain=convert_account_failure,
        find_run=find_run,
        names=(host,),
        origins=origins,
        body_timeout_s=body_timeout_s,
        extras=extras,
    )


def make_owner_app(
    hub: ports.HubPort,
    accounts_: accounts.Accounts,
    service: session_service.SessionService,
    rpc: HostRpcHandler,
    *,
    version: str,
    find_run: ports.FindRun,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
    visits: ports.VisitTokensPort | None = None,
) -> Any:
    """Makes the app for `transports.http.serve_unix`."""
    return build_owner_app(
        hub,
        accounts_,
        service,
        rpc,
        version=version,
        explain=convert_account_failure,
        find_run=find_run,
        extras=extras,
        visit_tokens=visits,
    )


def convert_account_failure(failure: Exception) -> responses.HttpError | None:
    """Converts a refusal of the accounts to an HTTP error."""
    match failure:
        case accounts.InvalidCredentials():
            return responses.make_unauthorized(failure.message, hint=None)
        case login_limit.TooManyAttempts():
            wait = {"Retry-After": str(failure.retry_after_s)}
            return responses.HttpError(429, "too many attempts", hint=f"try again in {failure.retry_after_s} s", headers=wait)
        case passwords.PasswordHasherBusy():
            return responses.HttpError(
                503, "too many passwords are being checked", hint="try again", headers={"Retry-After": "1"}
            )
        case accounts.UserExists():
            return responses.HttpError(409, failure.message, hint=failure.hint)
        case accounts.LastAdminRequired():
            return responses.HttpError(409, failure.message, hint=failure.hint)
        case accounts.NoSuchUser():
            return responses.HttpError(404, failure.message, hint=failure.hint)
        case web_push.InvalidSubscription():
            return responses.HttpError(400, failure.message, hint=failure.hint)
        case accounts.AccountError():
            return responses.HttpError(400, failure.message, hint=failure.hint)
        case _:
            return None


def build_public_app(
    hub: ports.HubPort,
    accounts: ports.AccountsPort,
    *,
    version: str,
    explain: ports.ConvertFailure,
    find_run: ports.FindRun,
    names: Collection[str] = (),
    origins: Collection[str] = (),
    body_timeout_s: float = routes.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
) -> Any:
    """Builds an ASGI app for `transports.http.serve`. `names` are our host names, besides loopback's and those of `origins`."""
    sites = AllowedOrigins(origins, public_url=extras.public_url)
    logins = auth.LoginCookies(extras.public_url)
    rows = (
        *health.HealthEndpoints(version, extras.monitor, _list_features(extras) or None).list_routes(),
        *auth.AuthEndpoints(accounts, logins).list_routes(),
        *sessions.RunEndpoints(hub).list_routes(),
        *sessions.HostEndpoints(hub).list_routes(),
        *users.UserEndpoints(accounts).list_routes(),
        *users.AccountAuditEndpoints(accounts).list_routes(),
        *_list_optional_routes(extras),
    )
    door = auth.TokenAuthenticator(accounts, find_run, sites, public_url=extras.public_url, can_read=extras.can_read)
    otherwise = pages.respond_not_found
    if extras.page is not None:
        otherwise = pages.PageApp(extras.page, auth.FirstVisitLogin(accounts, logins, find_run, explain))
    router = routes.make_router(rows, door, explain, body_timeout_s=body_timeout_s, default=otherwise)
    return guard.OriginGuard(router, hosts=names, sites=sites)


def _list_optional_routes(extras: ports.OptionalEndpoints) -> Iterator[routes.EndpointRoute]:
    if extras.sessions is not None:
        yield from sessions.SessionEndpoints(extras.sessions).list_routes()
    if extras.decisions is not None:
        yield from users.AuditEndpoints(extras.decisions).list_routes()
    if extras.pushes is not None:
        yield from users.PushSubscriptionEndpoints(extras.pushes).list_routes()


def _list_features(extras: ports.OptionalEndpoints) -> list[str]:
    """Lists the features that the page may offer."""
    there = {"audit": extras.decisions, "metrics": extras.monitor, "webpush": extras.pushes}
    further = () if extras.sessions is None else sessions.FEATURES
    return [*(name for name, part in there.items() if part is not None), *further]


VIA = "local"


class OwnerSocketAuthenticator:
    def __init__(self, find_run: ports.FindRun) -> None:
        self._find_run = find_run

    async def authenticate(self, request: Request, entry: RouteAccess) -> HttpCaller:
        run_id = None if entry is RouteAccess.ANYONE else find_calling_run(request, self._find_run)
        if run_id is None:
            return HttpCaller(name="owner", via=VIA, role=Role.ADMIN, device=get_user_agent(request), address="local")
        if entry is not RouteAccess.RUN:
            raise responses.make_run_process_refused()
        return HttpCaller(name="run", via=VIA, run_id=run_id, role=Role.OPERATOR, address="local")


def build_owner_app(
    hub: ports.HubPort,
    accounts: ports.AccountsPort,
    tower_: session_service.SessionService,
    rpc: HostRpcHandler,
    *,
    version: str,
    explain: ports.ConvertFailure,
    find_run: ports.FindRun,
    body_timeout_s: float = routes.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
    visit_tokens: ports.VisitTokensPort | None = None,
) -> Any:
    """Builds an ASGI app for `transports.http.serve_unix`."""
    finder = LocalRunFinder(tower_, rpc)
    rows = (
        *health.HealthEndpoints(version, extras.monitor).list_routes(),
        *local_runs.LocalRunEndpoints(tower_, rpc, finder).list_routes(),
        *local_runs.LocalRpcEndpoints(rpc, finder).list_routes(),
        *sessions.HostEndpoints(hub).list_routes(),
        *users.UserEndpoints(accounts).list_routes(),
        *users.AccountAuditEndpoints(accounts).list_routes(),
        *(() if extras.decisions is None else users.AuditEndpoints(extras.decisions).list_routes()),
        *(() if visit_tokens is None else auth.VisitEndpoints(visit_tokens).list_routes()),
    )
    door = OwnerSocketAuthenticator(find_run)
    return guard.OwnerSocketGuard(routes.make_router(rows, door, explain, body_timeout_s=body_timeout_s))
