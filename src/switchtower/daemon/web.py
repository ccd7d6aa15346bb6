"""The pages of the HTTP port and of the host's own socket: relay's endpoints, joined with the daemon's accounts."""

from typing import Any

from switchtower.core import tower
from switchtower.daemon import accounts, login_limit, notify_push, passwords
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.http import app, local_app, ports, problems, routing


def make_app(
    hub: ports.Hub,
    accounts_: accounts.Accounts,
    *,
    version: str,
    find_run: ports.FindRun,
    host: str,
    origins: tuple[str, ...] = (),
    body_timeout_s: float = routing.BODY_TIMEOUT,
    extras: ports.Extras = ports.NO_EXTRAS,
) -> Any:
    """For `transports.http.serve`. `host` is what it listens at; `origins` is the setting of that name."""
    return app.make_app(
        hub,
        accounts_,
        version=version,
        explain=explained,
        find_run=find_run,
        names=(host,),
        origins=origins,
        body_timeout_s=body_timeout_s,
        extras=extras,
    )


def make_local_app(
    hub: ports.Hub,
    accounts_: accounts.Accounts,
    tower_: tower.Tower,
    rpc: HostRpc,
    *,
    version: str,
    find_run: ports.FindRun,
    extras: ports.Extras = ports.NO_EXTRAS,
    visits: ports.Visits | None = None,
) -> Any:
    """For `transports.http.serve_unix`."""
    return local_app.make_local_app(
        hub,
        accounts_,
        tower_,
        rpc,
        version=version,
        explain=explained,
        find_run=find_run,
        extras=extras,
        visitors=visits,
    )


def explained(failure: Exception) -> problems.Problem | None:
    """What the accounts refuse, as HTTP says it."""
    match failure:
        case accounts.InvalidCredentials():
            return problems.unauthorized(failure.message, hint=None)
        case login_limit.TooManyAttempts():
            wait = {"Retry-After": str(failure.retry_after_s)}
            return problems.Problem(429, "too many attempts", hint=f"try again in {failure.retry_after_s} s", headers=wait)
        case passwords.Busy():
            return problems.Problem(503, "too many passwords are being checked", hint="try again", headers={"Retry-After": "1"})
        case accounts.UserExists():
            return problems.Problem(409, failure.message, hint=failure.hint)
        case accounts.LastAdminStays():
            return problems.Problem(409, failure.message, hint=failure.hint)
        case accounts.NoSuchUser():
            return problems.Problem(404, failure.message, hint=failure.hint)
        case notify_push.Unusable():
            return problems.Problem(400, failure.message, hint=failure.hint)
        case accounts.AccountError():
            return problems.Problem(400, failure.message, hint=failure.hint)
        case _:
            return None
