"""Who an app is: its token at the door, logging in and out."""

from typing import Any

from starlette.requests import Request

from switchtower.protocols.relay import messages
from switchtower.protocols.relay.http import bodies, calls, ports, problems
from switchtower.protocols.relay.http.calls import Call, Caller
from switchtower.protocols.relay.http.peers import is_of_a_run, origin_of
from switchtower.protocols.relay.http.routing import Entry, Row


class TokenDoor:
    """For the port: whoever has a token is a user. Every user is an admin."""

    def __init__(self, accounts: ports.Accounts, of_a_run: ports.IsOfARun) -> None:
        self._accounts = accounts
        self._of_a_run = of_a_run

    async def admit(self, request: Request, entry: Entry) -> Caller:
        address = origin_of(request).address
        if entry is Entry.ANYONE:
            return Caller(name="", via="web", address=address)
        if is_of_a_run(request, self._of_a_run):
            raise problems.of_a_run()
        if entry is Entry.STRANGER:
            return Caller(name="", via="web", address=address)
        token = _bearer(request)
        identity = None if token is None else await self._accounts.verify(token)
        if identity is None:
            raise problems.unauthorized()
        return Caller(name=identity.name, via="web", address=address, token_id=identity.token_id)


def _bearer(request: Request) -> str | None:
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


class Auth:
    def __init__(self, accounts: ports.Accounts) -> None:
        self._accounts = accounts

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("POST", "/auth/login", self.login, Entry.STRANGER),
            Row("POST", "/auth/token", self.exchange, Entry.STRANGER),
            Row("POST", "/auth/logout", self.log_out),
            Row("GET", "/auth/me", self.me),
        )

    async def login(self, call: Call) -> Any:
        asked = await call.asked(messages.Login)
        client = calls.user_agent(call.request)
        return _granted(await self._accounts.login(asked.username, asked.password, call.caller.address, client=client))

    async def exchange(self, call: Call) -> Any:
        """Ours: the token of the first-run URL for one that can be revoked."""
        asked = await call.asked(bodies.FirstToken)
        return _granted(await self._accounts.exchange(asked.token))

    async def log_out(self, call: Call) -> Any:
        if call.caller.token_id is None:
            raise problems.Problem(409, "the owner's token cannot be revoked", hint="forget it instead")
        await self._accounts.revoke(call.caller.token_id)

    async def me(self, call: Call) -> Any:
        return {"name": call.caller.name, "token_id": call.caller.token_id}


def _granted(token: str) -> dict[str, str]:
    return {"access_token": token}
