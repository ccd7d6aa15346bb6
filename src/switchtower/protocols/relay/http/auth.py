"""Who an app is: its token at the door, logging in and out."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from switchtower.core.roles import Action, Role
from switchtower.protocols.relay import messages, stamps
from switchtower.protocols.relay.http import answers, bodies, calls, cookies, guard, ports, problems
from switchtower.protocols.relay.http.calls import Call, Caller
from switchtower.protocols.relay.http.peers import authenticate, origin_of, run_of
from switchtower.protocols.relay.http.routing import Entry, Row
from switchtower.transports.origins import Sites, Standing

READS = ("GET", "HEAD")


class TokenDoor:
    """For the port: a client with a token, in a header or in the cookie of our own page, is a user. The role is looked up with
    each request."""

    def __init__(
        self,
        accounts: ports.Accounts,
        find_run: ports.FindRun,
        sites: Sites,
        *,
        public_url: str | None = None,
        may_look: ports.MayLook = lambda origin, headers: False,
    ) -> None:
        self._accounts = accounts
        self._find_run = find_run
        self._sites = sites
        self._public_url = public_url
        self._may_look = may_look

    async def admit(self, request: Request, entry: Entry) -> Caller:
        origin = origin_of(request)
        nobody = Caller(name="", via="web", address=origin.machine)
        if entry is Entry.ANYONE:
            return nobody
        if entry is Entry.LOOKER and self._may_look(origin, request.headers):
            return nobody
        if run_of(request, self._find_run) is not None:
            raise problems.of_a_run()
        if entry is Entry.STRANGER:
            if "origin" in request.headers and guard.standing(request.headers, self._sites) is Standing.LOOPBACK:
                raise problems.Problem(403, "a page of another port needs a token", hint="log in at the daemon's own page")
            return nobody
        token = _bearer(request) if "authorization" in request.headers else self._carried(request)
        identity = None if token is None else await self._accounts.verify(token)
        if identity is None:
            raise problems.unauthorized()
        authenticate(request)
        return Caller(
            name=identity.name,
            via="web",
            address=origin.machine,
            token_id=identity.token_id,
            expires_at_ms=identity.expires_at_ms,
            role=identity.role,
            device=identity.device(calls.user_agent(request)),
        )

    def _carried(self, request: Request) -> str | None:
        """What the cookie holds, of a request that our own page makes. Raises `Problem` for anybody else's."""
        token = cookies.given(_joined(request, "cookie", ";"), request.headers.get("host", ""))
        if token is None:
            return None
        comes = _may_read if request.method in READS else _is_our_page
        if not comes(request, self._public_url):
            raise problems.Problem(403, "only our own page may use this login", hint="send the token in `Authorization: Bearer`")
        return token


def _bearer(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _is_our_page(request: Request, public_url: str | None) -> bool:
    headers = request.headers
    origin, fetch_site = _joined(request, "origin", ","), _joined(request, "sec-fetch-site", ",")
    proto = headers.get("x-forwarded-proto", "")
    return cookies.is_our_page(origin, fetch_site, headers.get("host", ""), public_url, forwarded_proto=proto)


def _may_read(request: Request, public_url: str | None) -> bool:
    """For what changes nothing. A browser that is too old to say who asks keeps other pages from reading the answer itself."""
    fetch_site = _joined(request, "sec-fetch-site", ",")
    return _is_our_page(request, public_url) or ("origin" not in request.headers and fetch_site in (None, cookies.NOBODY))


def _joined(request: Request, name: str, separator: str) -> str | None:
    given = request.headers.getlist(name)
    return separator.join(given) if given else None


class Logins:
    """The cookie of a login: given to our own page and to nobody else, who could not use it."""

    def __init__(self, public_url: str | None) -> None:
        self._public_url = public_url

    def answer(self, request: Request, token: str, *, device: str | None = None) -> Response:
        """`device` is what the browser is known by at its next login."""
        response = answers.json({"access_token": token})
        if _is_our_page(request, self._public_url):
            response.headers.append("Set-Cookie", self.cookie(request, token))
            if device is not None:
                host = request.headers.get("host", "")
                response.headers.append("Set-Cookie", cookies.made_device(host, device, secure=self._is_secure(request)))
        return response

    def cookie(self, request: Request, token: str) -> str:
        return cookies.made(request.headers.get("host", ""), token, seconds=ports.LOGIN_SECONDS, secure=self._is_secure(request))

    def ended(self, request: Request) -> Response:
        ending = cookies.ended(request.headers.get("host", ""), secure=self._is_secure(request))
        return Response(status_code=204, headers={"Set-Cookie": ending})

    def _is_secure(self, request: Request) -> bool:
        """The proxy that speaks TLS for us says so, or the page's own origin. A lie keeps the liar's own cookie from him."""
        headers = request.headers
        spoken = headers.get("x-forwarded-proto") == "https" or headers.get("origin", "").lower().startswith("https://")
        public = cookies.origin_of(self._public_url) or ""
        return spoken or public == f"https://{headers.get('host', '').lower()}"


class FirstVisit:
    """Somebody opens the address that `tower token url` printed: its token becomes a login, and is gone from the address."""

    def __init__(self, accounts: ports.Accounts, logins: Logins, find_run: ports.FindRun, explain: ports.Explain) -> None:
        self._accounts = accounts
        self._logins = logins
        self._find_run = find_run
        self._explain = explain

    async def __call__(self, request: Request) -> Response | None:
        """None for who brings no token, or none that is good any more."""
        given = request.query_params.getlist("token")
        is_opened = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        if len(given) != 1 or not is_opened:
            return None
        try:
            if run_of(request, self._find_run) is not None:
                return None
            token = await self._accounts.exchange(given[0], client=calls.user_agent(request), address=origin_of(request).machine)
        except Exception as refusal:
            if (problem := problems.of(refusal) or self._explain(refusal)) is None:
                raise
            return None if problem.status == 401 else answers.problem(problem)
        headers = {"Location": "/", "Set-Cookie": self._logins.cookie(request, token)}
        return Response(status_code=303, headers=headers)


class Auth:
    def __init__(self, accounts: ports.Accounts, logins: Logins) -> None:
        self._accounts = accounts
        self._logins = logins

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("POST", "/auth/login", self.login, Entry.STRANGER),
            Row("POST", "/auth/token", self.exchange, Entry.STRANGER),
            Row("POST", "/auth/logout", self.log_out, action=Action.WATCH),
            Row("GET", "/auth/me", self.me, action=Action.WATCH),
        )

    async def login(self, call: Call) -> Any:
        asked = await call.asked(messages.Login)
        client = calls.user_agent(call.request)
        device = cookies.given_device(_joined(call.request, "cookie", ";"), call.request.headers.get("host", ""))
        token = await self._accounts.login(asked.username, asked.password, call.caller.address, client=client, device=device)
        return self._logins.answer(call.request, token, device=self._accounts.device_of(asked.username))

    async def exchange(self, call: Call) -> Any:
        """Ours: the token of the first visit's address for one that can be revoked."""
        asked = await call.asked(bodies.FirstToken)
        token = await self._accounts.exchange(
            asked.token, client=calls.user_agent(call.request), address=call.caller.address, counted=True
        )
        return self._logins.answer(call.request, token)

    async def log_out(self, call: Call) -> Any:
        if call.caller.token_id is None:
            raise problems.Problem(409, "the owner's token cannot be revoked", hint="forget it instead")
        await self._accounts.revoke(call.caller.token_id, call.caller.actor())
        return self._logins.ended(call.request)

    async def me(self, call: Call) -> Any:
        """Who asks, until when, and what they may do."""
        until = call.caller.expires_at_ms
        return {
            "name": call.caller.name,
            "token_id": call.caller.token_id,
            "expires_at": None if until is None else stamps.spelled(until),
            "role": call.caller.role,
            "admin": call.caller.role is Role.ADMIN,
        }
