"""`tower audit`: shows the decisions of all sessions with user, origin and time, and verifies that record."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import arguments, console, output

if TYPE_CHECKING:
    from switchtower.stores.audit import AuditLink, ChainReport

DEFAULT_LIMIT, MAX_LIMIT = 50, 100_000
_PAGE_SIZE = 500
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DECISION_WORDS = {"approve": "approved", "deny_continue": "denied", "deny_stop": "denied, stopped", "expired": "expired"}


@click.group(invoke_without_command=True)
@click.option("--since", metavar="WHEN", help="Only from then on: a time (2026-01-31T08:00), or how long ago (90m, 12h, 7d).")
@arguments.amount_option("--limit", "COUNT", f"How many at most; {DEFAULT_LIMIT} unless told.", maximum=MAX_LIMIT, whole=True)
@click.option("--accounts", is_flag=True, help="List logins and changes of users, tokens and hosts instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
@click.pass_context
def audit(ctx: click.Context, since: str | None, limit: float | None, accounts: bool, as_json: bool) -> int:
    """List decisions on approvals, the newest first: when, who, from where, what was decided and about what.

    Without a decision in time it is `expired`. What a deleted session held is not listed; `tower audit export` has it.

    \b
    Example:
      tower audit --since 7d
      tower audit --accounts
      tower audit --json --limit 1000 | jq -r '.[] | select(.decision == "approve") | .summary'
      tower audit verify
    """
    if ctx.invoked_subcommand is not None:
        return console.ExitStatus.OK
    import msgspec

    from switchtower.cli import table

    path, cells = (("audit", "accounts"), _format_note) if accounts else (("audit",), _format_decision)
    found = _fetch_records(path, None if since is None else parse_moment(since, now=time.time()), int(limit or DEFAULT_LIMIT))
    if as_json:
        output.write_line(msgspec.json.encode(found))
        return console.ExitStatus.OK
    if not found:
        console.print_line("nothing has happened" if accounts else "no decisions yet")
        return console.ExitStatus.OK
    now = time.time()
    for row in table.format_rows([cells(one, table.format_since(one, "ts", now=now)) for one in found]):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


@audit.command(short_help="Check that the audit was not changed")
@click.option("--head", "heads", multiple=True, metavar="HASH", help="A head that was printed before; it must still be there.")
@click.option("--json", "as_json", is_flag=True, help="Print one array: each chain with its head and its first break.")
def verify(heads: tuple[str, ...], as_json: bool) -> int:
    """Check the audit's hash chains: that no record was changed, removed, added or moved since it was written, and that each
    decision in the journal is the one that was recorded. Needs no daemon, and changes nothing.

    Someone who can write to the store can compute all hashes again. Keep the heads that this prints in another place, and pass
    them with --head later: a chain that was rewritten no longer has them.

    Exits with 0 when all holds, and with 1 and the first broken link when something does not.

    \b
    Example:
      tower audit verify
      tower audit verify --head 5f1c…
    """
    import msgspec

    from switchtower.stores.verification import StoreUnreadable

    wanted = frozenset(head.lower() for head in heads)
    try:
        found = _verify_chains(wanted)
    except StoreUnreadable as problem:
        raise click.ClickException(str(problem)) from None
    missing = sorted(wanted - {head for chain in found for head in chain.heads})
    if as_json:
        told = [{name: value for name, value in msgspec.to_builtins(chain).items() if name != "heads"} for chain in found]
        output.write_line(msgspec.json.encode(told))
    else:
        for chain in found:
            _print_chain(chain)
    for head in missing:
        console.print_line(f"no chain holds the head {head[:64]}: it was rewritten, or this is another store")
    if missing or any(chain.broken is not None for chain in found):
        console.print_line("hint: keep the store as it is, and compare it with a backup")
        return console.ExitStatus.FAILED
    return console.ExitStatus.OK


def _print_chain(chain: "ChainReport") -> None:
    gone = f", {chain.deleted} of deleted sessions" if chain.deleted else ""
    if chain.broken is None:
        output.write_line(f"{chain.name}: {chain.links} records hold{gone}; head {chain.head}")
    else:
        output.write_line(
            console.escape_unprintable(f"{chain.name}: broken at record {chain.broken.number}: {chain.broken.what}")
        )


def _verify_chains(wanted: frozenset[str]) -> "list[ChainReport]":
    from switchtower import config

    settings = config.load()
    if settings.store is None:
        from switchtower.stores.sqlite import verification

        return verification.verify_audit_chains(settings.journal_path, settings.registry_path, wanted)
    import asyncio

    from switchtower.stores.postgres import verification as postgres_verification

    return asyncio.run(postgres_verification.verify_audit_chains(settings.store, wanted))


@audit.command(short_help="Print all records of the audit")
def export() -> int:
    """Print every record of the audit as a line of JSON, the oldest first, with its hash. Needs no daemon.

    A record of a session that was deleted is among them. Of a question only the digest is kept.

    \b
    Example:
      tower audit export > audit.jsonl
    """
    import asyncio

    from switchtower.stores.verification import StoreUnreadable

    async def write() -> None:
        async for chain, link in _read_links():
            output.write_line(_encode_link(chain, link))

    try:
        asyncio.run(write())
    except StoreUnreadable as problem:
        raise click.ClickException(str(problem)) from None
    return console.ExitStatus.OK


async def _read_links() -> "AsyncIterator[tuple[str, AuditLink]]":
    from switchtower import config

    settings = config.load()
    if settings.store is None:
        from switchtower.stores.sqlite import verification

        for found in verification.read_audit_links(settings.journal_path, settings.registry_path):
            yield found
        return
    from switchtower.stores.postgres import verification as postgres_verification

    async for found in postgres_verification.read_audit_links(settings.store):
        yield found


def _encode_link(chain: str, link: "AuditLink") -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "chain": chain,
            "number": link.number,
            "ts_ms": link.ts_ms,
            "session_id": link.session_id or None,
            "seq": link.seq or None,
            "kind": link.kind,
            "record": None if link.record is None else msgspec.Raw(link.record),
            "digest": link.digest.hex(),
            "hash": link.hash.hex(),
        }
    )


def _fetch_records(path: tuple[str, ...], since: str | None, limit: int) -> list[dict[str, Any]]:
    import msgspec

    from switchtower.client import admin, errors

    found: list[dict[str, Any]] = []
    before: str | None = None
    while len(found) < limit:
        page = admin.get(*path, since=since, before=before, limit=str(min(_PAGE_SIZE, limit - len(found))))
        try:
            found += msgspec.convert(page["items"], list[dict[str, Any]])
            before = page["next"]
        except (msgspec.ValidationError, KeyError, TypeError):
            raise errors.ProtocolViolation("the daemon answered with something that is no audit") from None
        if before is None:
            break
    return found


def parse_moment(text: str, *, now: float) -> str:
    """Converts a time to the daemon's format: an age, or a time in this machine's zone unless it names another."""
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


def _format_decision(decision: dict[str, Any], ago: str) -> tuple[str, ...]:
    from switchtower.cli import table

    word = _DECISION_WORDS.get(table.format_cell(decision, "decision"), table.format_cell(decision, "decision"))
    who = _format_decider(decision)
    where = _format_origin(decision)
    what = " ".join(str(decision[key]) for key in ("title", "summary") if decision.get(key))
    always = " (always, for this session)" if decision.get("rule") else ""
    return (ago, word, who, where, table.format_cell(decision, "run_id"), f"{what}{always}")


def _format_decider(decision: dict[str, Any]) -> str:
    """Names the deciding user, or another machine and the user that it claims, which we cannot verify."""
    from switchtower.cli import table

    who, where, claims = table.format_cell(decision, "by"), table.format_cell(decision, "via"), decision.get("claims")
    if where not in ("host", "hub"):
        return who
    if not isinstance(claims, dict):
        return f"{where} {who}"
    return f"{where} {who} says {table.format_cell(claims, 'by')} ({table.format_cell(claims, 'via')})"


def _format_note(note: dict[str, Any], ago: str) -> tuple[str, ...]:
    from switchtower.cli import table

    about = " ".join(str(note[key]) for key in ("subject", "detail") if note.get(key))
    return (ago, table.format_cell(note, "kind"), table.format_cell(note, "by"), _format_origin(note), about)


def _format_origin(row: dict[str, Any]) -> str:
    """Formats the protocol, the address, and the name that the client gave itself."""
    parts = [str(row[key])[:60] for key in ("via", "address", "device") if row.get(key)]
    return ", ".join(parts) or "-"
