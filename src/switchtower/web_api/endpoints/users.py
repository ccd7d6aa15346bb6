"""Endpoints for admins: users and their tokens, and the audit, a page at a time, the newest first; and for browsers that
subscribe to notifications of decisions and ended runs, even while the page is closed."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core.ports import journal, registry
from switchtower.core.roles import Action
from switchtower.protocols.relay import wire_values
from switchtower.web_api import ports, requests, responses
from switchtower.web_api.requests import HttpCall
from switchtower.web_api.routes import EndpointRoute


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
                "created_at": wire_values.format_timestamp(user.created_at_ms),
                "last_login_at": None if user.last_login_at_ms is None else wire_values.format_timestamp(user.last_login_at_ms),
            }
            for user in await self._accounts.list_users()
        ]

    async def add(self, call: HttpCall) -> Any:
        asked = await call.read_body(requests.NewUserBody)
        await self._accounts.add_user(asked.name, asked.password, call.caller.make_actor(), role=asked.role)
        return responses.make_json_response({"name": asked.name, "role": asked.role}, 201)

    async def set_role(self, call: HttpCall) -> Any:
        asked = await call.read_body(requests.NewRoleBody)
        await self._accounts.set_role(call.get_path_part("name"), asked.role, call.caller.make_actor())

    async def set_password(self, call: HttpCall) -> Any:
        asked = await call.read_body(requests.NewPasswordBody)
        await self._accounts.set_password(call.get_path_part("name"), asked.password, call.caller.make_actor())

    async def remove(self, call: HttpCall) -> Any:
        await self._accounts.remove_user(call.get_path_part("name"), call.caller.make_actor())

    async def list_tokens(self, call: HttpCall) -> Any:
        return [_convert_token(token) for token in await self._accounts.list_tokens(call.get_text("user"))]

    async def create_token(self, call: HttpCall) -> Any:
        """Only this answer contains the token itself."""
        asked = await call.read_body(requests.NewTokenBody)
        lifetime_ms = None if asked.expires_in_s is None else asked.expires_in_s * 1_000
        secret, token = await self._accounts.create_token(
            asked.name, asked.user or call.caller.name, asked.scope, lifetime_ms, call.caller.make_actor()
        )
        return responses.make_json_response({**_convert_token(token), "token": secret}, 201)

    async def revoke(self, call: HttpCall) -> Any:
        if not await self._accounts.revoke_token(call.get_path_part("token_id"), call.caller.make_actor()):
            raise responses.HttpError(404, "unknown token id", hint="`tower token list` shows those that are good")


def _convert_token(token: registry.Token) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "user": token.user,
        "name": token.name or None,
        "scope": token.scope,
        "created_at": wire_values.format_timestamp(token.created_at_ms),
        "expires_at": wire_values.format_timestamp(token.expires_at_ms),
        "last_used_at": None if token.last_used_ms is None else wire_values.format_timestamp(token.last_used_ms),
        "client": token.client,
    }


DEFAULT_DECISIONS, MAX_DECISIONS = 100, 500
_INVALID_MS = 2**45


class AuditEndpoints:
    def __init__(self, decisions: journal.Audit) -> None:
        self._audit = decisions

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (EndpointRoute("GET", "/audit", self.list, action=Action.READ_AUDIT),)

    async def list(self, call: HttpCall) -> Any:
        limit = call.get_clamped("limit", DEFAULT_DECISIONS, MAX_DECISIONS)
        since_ms = _read_since(call)
        try:
            page = await self._audit.read_page(limit, before=call.get_text("before"), since_ms=since_ms)
        except journal.InvalidAuditCursor:
            raise responses.HttpError(400, "`before` is not a place in the audit", hint="pass the `next` of a page") from None
        return {"items": [_convert_record(decision) for decision in page.decisions], "next": page.next}


class AccountAuditEndpoints:
    """Logins, and changes of users, tokens and hosts, for admins."""

    def __init__(self, accounts: ports.AccountsPort) -> None:
        self._accounts = accounts

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (EndpointRoute("GET", "/audit/accounts", self.list, action=Action.READ_AUDIT),)

    async def list(self, call: HttpCall) -> Any:
        limit = call.get_clamped("limit", DEFAULT_DECISIONS, MAX_DECISIONS)
        since_ms = _read_since(call)
        notes = await self._accounts.list_notes(limit + 1, before=call.get_number("before"))
        shown = [(number, note) for number, note in notes[:limit] if note.ts_ms >= since_ms]
        is_more = len(notes) > limit and len(shown) == limit
        return {"items": [_convert_note(number, note) for number, note in shown], "next": str(shown[-1][0]) if is_more else None}


def _convert_note(number: int, note: journal.AuditNote) -> dict[str, Any]:
    return {
        "id": str(number),
        "ts": wire_values.format_timestamp(note.ts_ms),
        "kind": note.kind,
        "subject": note.subject,
        "detail": note.detail,
        "by": note.by.name,
        "via": note.by.via,
        "device": note.by.device,
        "address": note.by.address,
    }


def _read_since(call: HttpCall) -> int:
    since = call.get_text("since")
    since_ms = 0 if since is None else wire_values.parse_timestamp(since, _INVALID_MS)
    if since_ms == _INVALID_MS:
        raise responses.HttpError(400, "`since` is not a time", hint="write it as `2026-01-31T08:00:00Z`")
    return since_ms


def _convert_record(decision: journal.AuditRecord) -> dict[str, Any]:
    return {
        "id": decision.place,
        "ts": wire_values.format_timestamp(decision.ts_ms),
        "run_id": wire_values.format_run_id(decision.session_id),
        "run_title": decision.session_title,
        "host_id": decision.host,
        "request_id": wire_values.format_request_id(decision.approval_id),
        "tool": decision.tool,
        "title": decision.title,
        "summary": decision.summary,
        "decision": decision.verdict,
        "rule": decision.rule,
        "comment": decision.comment,
        "by": decision.by,
        "via": decision.via,
        "client": decision.client,
        "device": decision.device,
        "address": decision.address,
        "claims": None if decision.claims is None else {"by": decision.claims.name, "via": decision.claims.via},
    }


SubscriptionKey = Annotated[str, Meta(min_length=1, max_length=256)]
SubscriptionEndpoint = Annotated[str, Meta(min_length=1, max_length=2_048)]


class SubscriptionKeys(Struct, frozen=True):
    p256dh: SubscriptionKey
    auth: SubscriptionKey


class SubscriptionBody(Struct, frozen=True):
    """A browser's `PushSubscription` as JSON."""

    endpoint: SubscriptionEndpoint
    keys: SubscriptionKeys


class UnsubscribeBody(Struct, frozen=True):
    endpoint: SubscriptionEndpoint


class PushSubscriptionEndpoints:
    def __init__(self, pushes: ports.PushSubscriptionsPort) -> None:
        self._pushes = pushes

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/push/key", self.get_public_key, action=Action.WATCH),
            EndpointRoute("POST", "/push/subscriptions", self.subscribe, action=Action.WATCH),
            EndpointRoute("DELETE", "/push/subscriptions", self.unsubscribe, action=Action.WATCH),
        )

    async def get_public_key(self, call: HttpCall) -> Any:
        return {"public_key": await self._pushes.get_public_key()}

    async def subscribe(self, call: HttpCall) -> Any:
        asked = await call.read_body(SubscriptionBody)
        await self._pushes.subscribe(call.caller.name, asked.endpoint, asked.keys.p256dh, asked.keys.auth)

    async def unsubscribe(self, call: HttpCall) -> Any:
        asked = await call.read_body(UnsubscribeBody)
        if not await self._pushes.unsubscribe(call.caller.name, asked.endpoint):
            raise responses.HttpError(404, "nobody subscribed with this endpoint")
