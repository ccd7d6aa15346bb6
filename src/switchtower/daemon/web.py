"""The pages of the HTTP port and of the host's own socket: relay's endpoints, joined with the daemon's accounts."""

from typing import Any

from switchtower.core import tower
from switchtower.daemon import accounts, login_limit, notify_push, passwords
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.http import app, local_app, ports, problems, routing


def make_app(
    hub: ports.HubPort,
    accounts_: accounts.Accounts,
    *,
    version: str,
    find_run: ports.FindRun,
    host: str,
    origins: tuple[str, ...] = (),
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
) -> Any:
    """For `transports.http.serve`. `host` is what it listens at; `origins` is the setting of that name."""
    return app.build_public_app(
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
    service: tower.SessionService,
    rpc: HostRpcHandler,
    *,
    version: str,
    find_run: ports.FindRun,
    extras: ports.OptionalEndpoints = ports.NO_OPTIONAL_ENDPOINTS,
    visits: ports.VisitTokensPort | None = None,
) -> Any:
    """For `transports.http.serve_unix`."""
    return local_app.build_owner_app(
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


def convert_account_failure(failure: Exception) -> problems.HttpError | None:
    """What the accounts refuse, as HTTP says it."""
    match failure:
        case accounts.InvalidCredentials():
            return problems.make_unauthorized(failure.message, hint=None)
        case login_limit.TooManyAttempts():
            wait = {"Retry-After": str(failure.retry_after_s)}
            return problems.HttpError(429, "too many attempts", hint=f"try again in {failure.retry_after_s} s", headers=wait)
        case passwords.PasswordHasherBusy():
            return problems.HttpError(503, "too many passwords are being checked", hint="try again", headers={"Retry-After": "1"})
        case accounts.UserExists():
            return problems.HttpError(409, failure.message, hint=failure.hint)
        case accounts.LastAdminRequired():
            return problems.HttpError(409, failure.message, hint=failure.hint)
        case accounts.NoSuchUser():
            return problems.HttpError(404, failure.message, hint=failure.hint)
        case notify_push.InvalidSubscription():
            return problems.HttpError(400, failure.message, hint=failure.hint)
        case accounts.AccountError():
            return problems.HttpError(400, failure.message, hint=failure.hint)
        case _:
            return None
