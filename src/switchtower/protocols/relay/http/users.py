"""Users and the tokens that they were given, for admins."""

from typing import Any

from switchtower.protocols.relay import stamps
from switchtower.protocols.relay.http import answers, bodies, ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row


class Users:
    def __init__(self, accounts: ports.Accounts) -> None:
        self._accounts = accounts

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/users", self.list),
            Row("POST", "/users", self.add),
            Row("PUT", "/users/{name}/password", self.set_password),
            Row("DELETE", "/users/{name}", self.remove),
            Row("GET", "/tokens", self.tokens),
            Row("DELETE", "/tokens/{token_id}", self.revoke),
        )

    async def list(self, call: Call) -> Any:
        return [
            {
                "name": user.name,
                "created_at": stamps.spelled(user.created_at_ms),
                "last_login_at": None if user.last_login_at_ms is None else stamps.spelled(user.last_login_at_ms),
            }
            for user in await self._accounts.users()
        ]

    async def add(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewUser)
        await self._accounts.add(asked.name, asked.password)
        return answers.json({"name": asked.name}, 201)

    async def set_password(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewPassword)
        await self._accounts.set_password(call.named("name"), asked.password)

    async def remove(self, call: Call) -> Any:
        await self._accounts.remove(call.named("name"))

    async def tokens(self, call: Call) -> Any:
        return [
            {
                "id": token.token_id,
                "user": token.user,
                "created_at": stamps.spelled(token.created_at_ms),
                "expires_at": stamps.spelled(token.expires_at_ms),
                "client": token.client,
            }
            for token in await self._accounts.tokens(call.text("user"))
        ]

    async def revoke(self, call: Call) -> Any:
        if not await self._accounts.revoke(call.named("token_id")):
            raise problems.Problem(404, "unknown token id", hint="`tower token list` shows those that are good")
