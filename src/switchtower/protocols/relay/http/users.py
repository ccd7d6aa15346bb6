"""Users and the tokens that they were given, for admins."""

from typing import Any

from switchtower.core import registry
from switchtower.core.roles import Action
from switchtower.protocols.relay import stamps
from switchtower.protocols.relay.http import answers, bodies, ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row


class Users:
    def __init__(self, accounts: ports.Accounts) -> None:
        self._accounts = accounts

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/users", self.list, action=Action.MANAGE_USERS),
            Row("POST", "/users", self.add, action=Action.MANAGE_USERS),
            Row("PUT", "/users/{name}/role", self.set_role, action=Action.MANAGE_USERS),
            Row("PUT", "/users/{name}/password", self.set_password, action=Action.MANAGE_USERS),
            Row("DELETE", "/users/{name}", self.remove, action=Action.MANAGE_USERS),
            Row("GET", "/tokens", self.tokens, action=Action.MANAGE_TOKENS),
            Row("POST", "/tokens", self.create_token, action=Action.MANAGE_TOKENS),
            Row("DELETE", "/tokens/{token_id}", self.revoke, action=Action.MANAGE_TOKENS),
        )

    async def list(self, call: Call) -> Any:
        return [
            {
                "name": user.name,
                "role": user.role,
                "created_at": stamps.spelled(user.created_at_ms),
                "last_login_at": None if user.last_login_at_ms is None else stamps.spelled(user.last_login_at_ms),
            }
            for user in await self._accounts.users()
        ]

    async def add(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewUser)
        await self._accounts.add(asked.name, asked.password, call.caller.actor(), role=asked.role)
        return answers.json({"name": asked.name, "role": asked.role}, 201)

    async def set_role(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewRole)
        await self._accounts.set_role(call.named("name"), asked.role, call.caller.actor())

    async def set_password(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewPassword)
        await self._accounts.set_password(call.named("name"), asked.password, call.caller.actor())

    async def remove(self, call: Call) -> Any:
        await self._accounts.remove(call.named("name"), call.caller.actor())

    async def tokens(self, call: Call) -> Any:
        return [_shown(token) for token in await self._accounts.tokens(call.text("user"))]

    async def create_token(self, call: Call) -> Any:
        """The only answer that contains the token itself."""
        asked = await call.asked(bodies.NewToken)
        lifetime_ms = None if asked.expires_in_s is None else asked.expires_in_s * 1_000
        secret, token = await self._accounts.create_token(
            asked.name, asked.user or call.caller.name, asked.scope, lifetime_ms, call.caller.actor()
        )
        return answers.json({**_shown(token), "token": secret}, 201)

    async def revoke(self, call: Call) -> Any:
        if not await self._accounts.revoke(call.named("token_id"), call.caller.actor()):
            raise problems.Problem(404, "unknown token id", hint="`tower token list` shows those that are good")


def _shown(token: registry.Token) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "user": token.user,
        "name": token.name or None,
        "scope": token.scope,
        "created_at": stamps.spelled(token.created_at_ms),
        "expires_at": stamps.spelled(token.expires_at_ms),
        "last_used_at": None if token.last_used_ms is None else stamps.spelled(token.last_used_ms),
        "client": token.client,
    }
