"""Authenticates apps by their tokens; logs them in and out.

A token in the page's address is for the owner alone: it logs its bearer in once, as the owner.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from switchtower.core.roles import Action, Role
from switchtower.protocols.relay import messages, wire_values
from switchtower.transports.origins import AllowedOrigins, OriginVerdict
from switchtower.web_api import browser_login, guard, ports, requests, responses
from switchtower.web_api.requests import HttpCall, HttpCaller, find_calling_run, get_origin, mark_authenticated
from switchtower.web_api.routes import EndpointRoute, RouteAccess

READ_METHODS = ("GET", "HEAD")


class TokenAuthenticator:
    """Authenticates clients of the port: one with a token, in a header or in the cookie of our own page, is a user. The role is
    looked up with each request."""

    def __init__(
        self,
        accounts: ports.AccountsPort,
        find_run: ports.FindRun,
        sites: AllowedOrigins,
        *,
        public_url: str | None = None,
        can_read: ports.CanRead = lambda origin, headers: False,
    ) -> None:
        self._accounts = accounts
        self._find_run = find_run
        self._sites = sites
        self._public_url = public_url
        self._can_read = can_read

    async def authenticate(self, request: Request, entry: RouteAccess) -> HttpCaller:
        origin = get_origin(request)
        nobody = HttpCaller(name="", via="web", address=origin.machine)
        if entry is RouteAccess.ANYONE:
            return nobody
        if entry is RouteAccess.READER and self._can_read(origin, request.headers):
            return nobody
        if find_calling_run(request, self._find_run) is not None:
            raise responses.make_run_process_refused()
        if entry is RouteAccess.UNAUTHENTICATED:
            if "origin" in request.headers and guard.judge_origin(request.headers, self._sites) is OriginVerdict.LOOPBACK:
                raise responses.HttpError(403, "a page of another port needs a token", hint="log in at the daemon's own page")
            return nobody
        token = _read_bearer_token(request) if "authorization" in request.headers else self._read_cookie_token(request)
        identity = None if token is None else await self._accounts.verify(token)
        if identity is None:
            raise responses.make_unauthorized()
        mark_authenticated(request)
        return HttpCaller(
            name=identity.name,
            via="web",
            address=origin.machine,
            token_id=identity.token_id,
            expires_at_ms=identity.expires_at_ms,
            role=identity.role,
            device=identity.describe_device(requests.get_user_agent(request)),
        )

    def _read_cookie_token(self, request: Request) -> str | None:
        """Returns the cookie's token, for a request of our own page. Raises `HttpError` for a request of any other page."""
        token = browser_login.read_cookie(_join_headers(request, "cookie", ";"), request.headers.get("host", ""))
        if token is None:
            return None
        comes = _can_read if request.method in READ_METHODS else _is_own_page
        if not comes(request, self._public_url):
            raise responses.HttpError(
                403, "only our own page may use this login", hint="send the token in `Authorization: Bearer`"
            )
        return token


def _read_bearer_token(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _is_own_page(request: Request, public_url: str | None) -> bool:
    headers = request.headers
    origin, fetch_site = _join_headers(request, "origin", ","), _join_headers(request, "sec-fetch-site", ",")
    proto = headers.get("x-forwarded-proto", "")
    return browser_login.is_own_page(origin, fetch_site, headers.get("host", ""), public_url, forwarded_proto=proto)


def _can_read(request: Request, public_url: str | None) -> bool:
    """A looser check, for requests that change nothing. A browser too old to name the requesting page keeps other pages from
    reading the answer itself."""
    fetch_site = _join_headers(request, "sec-fetch-site", ",")
    return _is_own_page(request, public_url) or ("origin" not in request.headers and fetch_site in (None, browser_login.NO_SITE))


def _join_headers(request: Request, name: str, separator: str) -> str | None:
    given = request.headers.getlist(name)
    return separator.join(given) if given else None


class LoginCookies:
    """The cookie of a login: only our own page gets it, and only our own page can use it."""

    def __init__(self, public_url: str | None) -> None:
        self._public_url = public_url

    def make_response(self, request: Request, token: str, *, device: str | None = None) -> Response:
        """`device` identifies the browser at its next login."""
        response = responses.make_json_response({"access_token": token})
        if _is_own_page(request, self._public_url):
            response.headers.append("Set-Cookie", self.make_cookie(request, token))
            if device is not None:
                host = request.headers.get("host", "")
                response.headers.append(
                    "Set-Cookie", browser_login.make_device_cookie(host, device, secure=self._is_secure(request))
                )
        return response

    def make_cookie(self, request: Request, token: str) -> str:
        return browser_login.make_cookie(
            request.headers.get("host", ""), token, seconds=ports.LOGIN_SECONDS, secure=self._is_secure(request)
        )

    def make_expired_cookie(self, request: Request) -> Response:
        ending = browser_login.make_expired_cookie(request.headers.get("host", ""), secure=self._is_secure(request))
        return Response(status_code=204, headers={"Set-Cookie": ending})

    def _is_secure(self, request: Request) -> bool:
        """The TLS proxy in front of us reports it, or the page's own origin. A client that lies only loses its own cookie."""
        headers = request.headers
        spoken = headers.get("x-forwarded-proto") == "https" or headers.get("origin", "").lower().startswith("https://")
        public = browser_login.parse_origin(self._public_url) or ""
        return spoken or public == f"https://{headers.get('host', '').lower()}"


class FirstVisitLogin:
    """Handles a visit to the address that `tower token url` printed: its token becomes a login, and is removed from the
    address."""

    def __init__(
        self, accounts: ports.AccountsPort, logins: LoginCookies, find_run: ports.FindRun, explain: ports.ConvertFailure
    ) -> None:
        self._accounts = accounts
        self._logins = logins
        self._find_run = find_run
        self._explain = explain

    async def __call__(self, request: Request) -> Response | None:
        """Returns None for a request without a token, or with one that is no longer valid."""
        given = request.query_params.getlist("token")
        is_opened = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        if len(given) != 1 or not is_opened:
            return None
        try:
            if find_calling_run(request, self._find_run) is not None:
                return None
            token = await self._accounts.exchange_token(
                given[0], client=requests.get_user_agent(request), address=get_origin(request).machine
            )
        except Exception as refusal:
            if (problem := responses.convert_failure(refusal) or self._explain(refusal)) is None:
                raise
            return None if problem.status == 401 else responses.make_error_response(problem)
        headers = {"Location": "/", "Set-Cookie": self._logins.make_cookie(request, token)}
        return Response(status_code=303, headers=headers)


class AuthEndpoints:
    def __init__(self, accounts: ports.AccountsPort, logins: LoginCookies) -> None:
        self._accounts = accounts
        self._logins = logins

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("POST", "/auth/login", self.login, RouteAccess.UNAUTHENTICATED),
            EndpointRoute("POST", "/auth/token", self.exchange_token, RouteAccess.UNAUTHENTICATED),
            EndpointRoute("POST", "/auth/logout", self.log_out, action=Action.WATCH),
            EndpointRoute("GET", "/auth/me", self.get_identity, action=Action.WATCH),
        )

    async def login(self, call: HttpCall) -> Any:
        asked = await call.read_body(messages.Login)
        client = requests.get_user_agent(call.request)
        device = browser_login.read_device_cookie(
            _join_headers(call.request, "cookie", ";"), call.request.headers.get("host", "")
        )
        token = await self._accounts.login(asked.username, asked.password, call.caller.address, client=client, device=device)
        return self._logins.make_response(call.request, token, device=self._accounts.make_device_token(asked.username))

    async def exchange_token(self, call: HttpCall) -> Any:
        """Our addition: exchanges the token of the first visit's address for one that can be revoked."""
        asked = await call.read_body(requests.TokenExchangeBody)
        token = await self._accounts.exchange_token(
            asked.token, client=requests.get_user_agent(call.request), address=call.caller.address, counted=True
        )
        return self._logins.make_response(call.request, token)

    async def log_out(self, call: HttpCall) -> Any:
        if call.caller.token_id is None:
            raise responses.HttpError(409, "the owner's token cannot be revoked", hint="forget it instead")
        await self._accounts.revoke_token(call.caller.token_id, call.caller.make_actor())
        return self._logins.make_expired_cookie(call.request)

    async def get_identity(self, call: HttpCall) -> Any:
        """Returns the user, the end of the login, and the permissions."""
        until = call.caller.expires_at_ms
        return {
            "name": call.caller.name,
            "token_id": call.caller.token_id,
            "expires_at": None if until is None else wire_values.format_timestamp(until),
            "role": call.caller.role,
            "admin": call.caller.role is Role.ADMIN,
        }


class VisitEndpoints:
    def __init__(self, visits: ports.VisitTokensPort) -> None:
        self._visits = visits

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (EndpointRoute("POST", "/visits", self.issue, action=Action.MANAGE_TOKENS),)

    async def issue(self, call: HttpCall) -> Any:
        token, expires_at_ms = self._visits.issue()
        return responses.make_json_response({"token": token, "expires_at": wire_values.format_timestamp(expires_at_ms)}, 201)
