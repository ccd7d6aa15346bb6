"""Who decided what, for admins: a page at a time, the newest first."""

from typing import Any

from switchtower.core import audit
from switchtower.core.roles import Action
from switchtower.protocols.relay import names, stamps
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row

DECISIONS, MOST_DECISIONS = 100, 500
_NEVER_MS = 2**45


class Audits:
    def __init__(self, decisions: audit.Audit) -> None:
        self._audit = decisions

    def rows(self) -> tuple[Row, ...]:
        return (Row("GET", "/audit", self.list, action=Action.READ_AUDIT),)

    async def list(self, call: Call) -> Any:
        limit = call.clamped("limit", DECISIONS, MOST_DECISIONS)
        since_ms = _since(call)
        try:
            page = await self._audit.page(limit, before=call.text("before"), since_ms=since_ms)
        except audit.BadPlace:
            raise problems.Problem(400, "`before` is not a place in the audit", hint="pass the `next` of a page") from None
        return {"items": [_told(decision) for decision in page.decisions], "next": page.next}


class AccountNotes:
    """Logins, and what happened to users, tokens and hosts, for admins."""

    def __init__(self, accounts: ports.Accounts) -> None:
        self._accounts = accounts

    def rows(self) -> tuple[Row, ...]:
        return (Row("GET", "/audit/accounts", self.list, action=Action.READ_AUDIT),)

    async def list(self, call: Call) -> Any:
        limit = call.clamped("limit", DECISIONS, MOST_DECISIONS)
        since_ms = _since(call)
        notes = await self._accounts.notes(limit + 1, before=call.number("before"))
        shown = [(number, note) for number, note in notes[:limit] if note.ts_ms >= since_ms]
        is_more = len(notes) > limit and len(shown) == limit
        return {"items": [_noted(number, note) for number, note in shown], "next": str(shown[-1][0]) if is_more else None}


def _noted(number: int, note: audit.Note) -> dict[str, Any]:
    return {
        "id": str(number),
        "ts": stamps.spelled(note.ts_ms),
        "kind": note.kind,
        "subject": note.subject,
        "detail": note.detail,
        "by": note.by.name,
        "via": note.by.via,
        "device": note.by.device,
        "address": note.by.address,
    }


def _since(call: Call) -> int:
    since = call.text("since")
    since_ms = 0 if since is None else stamps.read(since, _NEVER_MS)
    if since_ms == _NEVER_MS:
        raise problems.Problem(400, "`since` is not a time", hint="write it as `2026-01-31T08:00:00Z`")
    return since_ms


def _told(decision: audit.Decision) -> dict[str, Any]:
    return {
        "id": decision.place,
        "ts": stamps.spelled(decision.ts_ms),
        "run_id": names.run_of(decision.session_id),
        "run_title": decision.session_title,
        "host_id": decision.host,
        "request_id": names.request_of(decision.approval_id),
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
