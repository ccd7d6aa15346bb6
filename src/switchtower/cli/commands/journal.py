"""`tower journal`: looks at the journal itself, a file or a database, with or without a daemon. Changes nothing."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output, table

if TYPE_CHECKING:
    from switchtower.stores import sqlite_stats, verifying

_TELL_EVERY = 2.0
_file = click.argument("file", required=False, type=click.Path(path_type=str), metavar="[FILE]")


@click.group(invoke_without_command=True)
@click.pass_context
def journal(ctx: click.Context) -> None:
    """Check the journal, or count what is in it. Both only read, and may be used while the daemon runs.

    \b
    Example:
      tower journal verify
      tower journal stats --json
    """
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())


@journal.command(short_help="Check that the journal holds what it promises")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print one object: what was counted, and each trouble with its place.")
def verify(file: str | None, as_json: bool) -> int:
    """Check the journal, or FILE: the pages of the file, the order of each session, that every entry and receipt can be read,
    and that each snapshot is what the entries come to. FILE may be a `postgresql://…`; the pages of that are its server's to
    check. Progress is on stderr.

    Exits with 0 when all is well, and with 1 and the places when something is wrong.

    \b
    Example:
      tower journal verify
      tower journal verify /backup/journal.db --json | jq .troubles
    """
    import msgspec

    from switchtower.stores.looking import CannotLook

    place = _place(file)
    try:
        report = _verified(place)
    except CannotLook as problem:
        raise click.ClickException(str(problem)) from None
    if as_json:
        output.line(msgspec.json.encode({"ok": report.ok, **msgspec.to_builtins(report)}))
    else:
        _show(report)
    if report.ok:
        return console.Exit.OK
    what = "file" if isinstance(place, Path) else "database"
    console.say(f"hint: keep the {what} as it is, and see docs/operations.md for what to do; `tower restore` takes a backup")
    return console.Exit.FAILED


@journal.command(short_help="Count what is in the journal")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def stats(file: str | None, as_json: bool) -> int:
    """Count what is in the journal, or in FILE: sessions, entries by kind, sizes, and the largest sessions. FILE may be a
    `postgresql://…`.

    \b
    Example:
      tower journal stats
    """
    import msgspec

    from switchtower.stores.looking import CannotLook

    place = _place(file)
    try:
        counted = _counted(place)
    except CannotLook as problem:
        raise click.ClickException(str(problem)) from None
    if as_json:
        output.line(msgspec.json.encode(counted))
        return console.Exit.OK
    for row in table.fields(_readable(counted, is_file=isinstance(place, Path))):
        output.line(console.printable(row))
    return console.Exit.OK


def _place(file: str | None) -> "Path | str":
    """A file, or the address of a database."""
    from switchtower import config
    from switchtower.cli.storing import places

    if file is None:
        settings = config.load()
        return settings.journal_path if settings.store is None else settings.store
    if "://" in file and not places.is_database(file):  # not shown: it may hold a password
        raise click.UsageError("an address must begin with `postgresql://`; hint: name a file, or such a database")
    return file if places.is_database(file) else Path(file)


def _verified(place: "Path | str") -> "verifying.Report":
    import asyncio

    from switchtower.stores import sqlite_verify
    from switchtower.stores.postgres_tools import addresses, verify

    if isinstance(place, Path):
        console.say(f"checking {place}", "dim")
        return sqlite_verify.verify(place, _Progress().tell)
    console.say(f"checking {addresses.shown(place)}", "dim")
    return asyncio.run(verify.verify(place, _Progress().tell))


def _counted(place: "Path | str") -> "sqlite_stats.Stats":
    import asyncio

    from switchtower.stores import sqlite_stats
    from switchtower.stores.postgres_tools import stats

    return sqlite_stats.stats(place) if isinstance(place, Path) else asyncio.run(stats.stats(place))


class _Progress:
    """A line every few moments: a journal of a few megabytes needs none."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def tell(self, what: str, done: int, of: int) -> None:
        if time.monotonic() - self._told_at >= _TELL_EVERY:
            self._told_at = time.monotonic()
            console.say(f"{what}: {done:,} of {of:,}", "dim")


def _show(report: "verifying.Report") -> None:
    for trouble in report.troubles:
        output.line(console.printable(f"{trouble.place}: {trouble.what}"))
    if report.more_troubles:
        output.line(f"and {report.more_troubles:,} more")
    counted = (
        f"{report.sessions:,} sessions, {report.entries:,} entries, {report.receipts:,} receipts,"
        f" {report.snapshots_compared:,} of {report.snapshots:,} snapshots compared"
    )
    pruned = f" ({report.pruned_sessions:,} sessions are pruned)" if report.pruned_sessions else ""
    output.line(f"{'ok' if report.ok else 'not ok'}: {counted}{pruned}")


def _readable(counted: "sqlite_stats.Stats", *, is_file: bool) -> list[tuple[str, str]]:
    from switchtower.cli import amounts

    kinds = table.rows([(kind.kind, f"{kind.entries:,}", amounts.size(kind.bytes)) for kind in counted.kinds[:10]])
    largest = table.rows([(one.session_id, f"{one.entries:,} entries", amounts.size(one.bytes)) for one in counted.largest[:5]])
    states = ", ".join(f"{count:,} {state}" for state, count in counted.states.items())
    of_a_file = [
        ("file", counted.path),
        ("size", f"{amounts.size(counted.file_bytes)}, {amounts.size(counted.free_bytes)} of it free"),
        ("log", amounts.size(counted.log_bytes)),
    ]
    return [
        *(of_a_file if is_file else [("database", counted.path), ("size", amounts.size(counted.file_bytes))]),
        ("schema", str(counted.schema)),
        ("sessions", f"{counted.sessions:,}" + (f" ({states})" if states else "")),
        ("entries", f"{counted.entries:,}, {amounts.size(counted.entry_bytes)}"),
        ("snapshots", f"{counted.snapshots:,}"),
        ("receipts", f"{counted.receipts:,}"),
        ("pruned", f"{counted.pruned_sessions:,} sessions"),
        ("since", _moment(counted.oldest_ms)),
        ("until", _moment(counted.newest_ms)),
        ("kinds", "\n".join(kinds)),
        ("largest", "\n".join(largest)),
    ]


def _moment(at_ms: int | None) -> str:
    return "-" if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
