"""Users and the tokens that they were given, for admins."""

from typing import Any

from switchtower.core import registry
from switchtower.core.roles import Action
from switchtower.protocols.relay import stamps
from switchtower.protocols.relay.http import answers, bodies, ports, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute


class UserEndpoints:
    def __init__(self, accounts: ports.AccountsPort) -> None:
        self._accounts = accounts

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/users", self.list, action=Action.MANAGE_USERS),
            EndpointRoute("POST", "/users", self.add, action=Action.MANAGE_USERS),
            EndpointRoute("PUT", "/users/{name}/role", self.set_role, action=Action.MANAGE_USERS),
            EndpointRoute("PUT", "/users/{name}/password", self.set_password, action=Action.MANAGE_USERS),
            EndpointRoute("DELETE", "/users/{name}", self.remove, action=Action.MANAGE_USERS),
            EndpointRoute("GET", "/tokens", self.list_tokens, action=Action.MANAGE_TOKENS),
            EndpointRoute("POST", "/tokens", self.create_token, action=Action.MANAGE_TOKENS),
            EndpointRoute("DELETE", "/tokens/{token_id}", self.revoke, action=Action.MANAGE_TOKENS),
        )

    async def list(self, call: HttpCall) -> Any:
        return [
            {
                "name": user.name,
                "role": user.role,
                "created_at": stamps.format_timestamp(user.created_at_ms),
                "last_login_at": None if user.last_login_at_ms is None else stamps.format_timestamp(user.last_login_at_ms),
            }
            for user in await self._accounts.list_users()
        ]

    async def add(self, call: HttpCall) -> Any:
        asked = await call.read_body(bodies.NewUserBody)
        await self._accounts.add_user(asked.name, asked.password, call.caller.make_actor(), role=asked.role)
        return answers.make_json_response({"name": asked.name, "role": asked.role}, 201)

    async def set_role(self, call: HttpCall) -> Any:
        asked = await call.read_body(bodies.NewRoleBody)
        await self._accounts.set_role(call.get_path_part("name"), asked.role, call.caller.make_actor())

    async def set_password(self, call: HttpCall) -> Any:
        asked = await call.read_body(bodies.NewPasswordBody)
        await self._accounts.set_password(call.get_path_part("name"), asked.password, call.caller.make_actor())

    async def remove(self, call: HttpCall) -> Any:
        await self._accounts.remove_user(call.get_path_part("name"), call.caller.make_actor())

    async def list_tokens(self, call: HttpCall) -> Any:
        return [_convert_token(token) for token in await self._accounts.list_tokens(call.get_text("user"))]

    async def create_token(self, call: HttpCall) -> Any:
        """The only answer that contains the token itself."""
        asked = await call.read_body(bodies.NewTokenBody)
        lifetime_ms = None if asked.expires_in_s is None else asked.expires_in_s * 1_000
        secret, token = await self._accounts.create_token(
            asked.name, asked.user or call.caller.name, asked.scope, lifetime_ms, call.caller.make_actor()
        )
        return answers.make_json_response({**_convert_token(token), "token": secret}, 201)

    async def revoke(self, call: HttpCall) -> Any:
        if not await self._accounts.revoke_token(call.get_path_part("token_id"), call.caller.make_actor()):
            raise problems.HttpError(404, "unknown token id", hint="`tower token list` shows those that are good")


def _convert_token(token: registry.Token) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "user": token.user,
        "name": token.name or None,
        "scope": token.scope,
        "created_at": stamps.format_timestamp(token.created_at_ms),
        "expires_at": stamps.format_timestamp(token.expires_at_ms),
        "last_used_at": None if token.last_used_ms is None else stamps.format_timestamp(token.last_used_ms),
        "client": token.client,
    }
