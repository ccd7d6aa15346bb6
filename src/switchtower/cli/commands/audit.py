"""`tower audit`: who decided what, from where and when, over all sessions."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

USUAL, MOST = 50, 100_000
_PAGE = 500
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WORDS = {"approve": "approved", "deny_continue": "denied", "deny_stop": "denied, stopped", "expired": "expired"}


@click.command()
@click.option("--since", metavar="WHEN", help="Only from then on: a time (2026-01-31T08:00), or how long ago (90m, 12h, 7d).")
@arguments.amount("--limit", "COUNT", f"How many at most; {USUAL} unless told.", most=MOST, whole=True)
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def audit(since: str | None, limit: float | None, as_json: bool) -> int:
    """List decisions on approvals, the newest first: when, who, from where, what was decided and about what.

    A decision that nobody made in time is `expired`. What a deleted session held is not listed.

    \b
    Example:
      tower audit --since 7d
      tower audit --json --limit 1000 | jq -r '.[] | select(.decision == "approve") | .summary'
    """
    import msgspec

    from switchtower.cli import listing

    decisions = _fetched(None if since is None else moment(since, now=time.time()), int(limit or USUAL))
    if as_json:
        output.line(msgspec.json.encode(decisions))
        return console.Exit.OK
    if not decisions:
        console.say("nobody has decided anything")
        return console.Exit.OK
    now = time.time()
    for row in table.rows([_cells(decision, listing.ago(decision, "ts", now=now)) for decision in decisions]):
        output.line(console.printable(row))
    return console.Exit.OK


def _fetched(since: str | None, limit: int) -> list[dict[str, Any]]:
    import msgspec

    from switchtower.cli import admin
    from switchtower.client import errors

    found: list[dict[str, Any]] = []
    before: str | None = None
    while len(found) < limit:
        page = admin.get("audit", since=since, before=before, limit=str(min(_PAGE, limit - len(found))))
        try:
            found += msgspec.convert(page["items"], list[dict[str, Any]])
            before = page["next"]
        except (msgspec.ValidationError, KeyError, TypeError):
            raise errors.ProtocolViolation("the daemon answered with something that is no audit") from None
        if before is None:
            break
    return found


def moment(text: str, *, now: float) -> str:
    """As the daemon reads it: a time of this machine's zone unless it names another, or some time ago."""
    import datetime

    count, unit = text[:-1], text[-1:].lower()
    try:
        if count.isascii() and count.isdecimal() and unit in _UNITS:
            at = datetime.datetime.fromtimestamp(max(1.0, now - int(count) * _UNITS[unit]), datetime.UTC)
        else:
            at = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"`{text}` is not a time; hint: write 2026-01-31T08:00, 90m, 12h or 7d", param_hint="--since"
        ) from None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cells(decision: dict[str, Any], ago: str) -> tuple[str, ...]:
    from switchtower.cli import listing

    word = _WORDS.get(listing.text(decision, "decision"), listing.text(decision, "decision"))
    who = _decider(decision)
    where = listing.text(decision, "via")
    what = " ".join(str(decision[key]) for key in ("title", "summary") if decision.get(key))
    always = " (always, for this session)" if decision.get("rule") else ""
    return (ago, word, who, where, listing.text(decision, "run_id"), f"{what}{always}")


def _decider(decision: dict[str, Any]) -> str:
    """A user, or another machine and whom that names: its word, and not ours."""
    from switchtower.cli import listing

    who, where, claims = listing.text(decision, "by"), listing.text(decision, "via"), decision.get("claims")
    if where not in ("host", "hub"):
        return who
    if not isinstance(claims, dict):
        return f"{where} {who}"
    return f"{where} {who} says {listing.text(claims, 'by')} ({listing.text(claims, 'via')})"
