"""Who decided what, for admins: a page at a time, the newest first."""

from typing import Any

from switchtower.core import audit
from switchtower.core.roles import Action
from switchtower.protocols.relay import names, stamps
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute

DEFAULT_DECISIONS, MAX_DECISIONS = 100, 500
_INVALID_MS = 2**45


class AuditEndpoints:
    def __init__(self, decisions: audit.Audit) -> None:
        self._audit = decisions

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (EndpointRoute("GET", "/audit", self.list, action=Action.READ_AUDIT),)

    async def list(self, call: HttpCall) -> Any:
        limit = call.get_clamped("limit", DEFAULT_DECISIONS, MAX_DECISIONS)
        since_ms = _read_since(call)
        try:
            page = await self._audit.read_page(limit, before=call.get_text("before"), since_ms=since_ms)
        except audit.InvalidAuditCursor:
            raise problems.HttpError(400, "`before` is not a place in the audit", hint="pass the `next` of a page") from None
        return {"items": [_convert_record(decision) for decision in page.decisions], "next": page.next}


class AccountAuditEndpoints:
    """Logins, and what happened to users, tokens and hosts, for admins."""

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


def _convert_note(number: int, note: audit.AuditNote) -> dict[str, Any]:
    return {
        "id": str(number),
        "ts": stamps.format_timestamp(note.ts_ms),
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
    since_ms = 0 if since is None else stamps.parse_timestamp(since, _INVALID_MS)
    if since_ms == _INVALID_MS:
        raise problems.HttpError(400, "`since` is not a time", hint="write it as `2026-01-31T08:00:00Z`")
    return since_ms


def _convert_record(decision: audit.AuditRecord) -> dict[str, Any]:
    return {
        "id": decision.place,
        "ts": stamps.format_timestamp(decision.ts_ms),
        "run_id": names.format_run_id(decision.session_id),
        "run_title": decision.session_title,
        "host_id": decision.host,
        "request_id": names.format_request_id(decision.approval_id),
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
