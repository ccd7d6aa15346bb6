"""`tower journal`: inspects the journal itself, a file or a database, with or without a daemon. It changes nothing."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output, table

if TYPE_CHECKING:
    from switchtower.stores import verification

_PROGRESS_INTERVAL = 2.0
_file_argument = click.argument("file", required=False, type=click.Path(path_type=str), metavar="[FILE]")


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
        output.write_line(ctx.get_help())


@journal.command(short_help="Check that the journal holds what it promises")
@_file_argument
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

    from switchtower.stores.verification import StoreUnreadable

    place = _locate_journal(file)
    try:
        report = _verify_journal(place)
    except StoreUnreadable as problem:
        raise click.ClickException(str(problem)) from None
    if as_json:
        output.write_line(msgspec.json.encode({"ok": report.is_ok, **msgspec.to_builtins(report)}))
    else:
        _print_report(report)
    if report.is_ok:
        return console.ExitStatus.OK
    what = "file" if isinstance(place, Path) else "database"
    console.print_line(
        f"hint: keep the {what} as it is, and see docs/operations.md for what to do; `tower restore` takes a backup"
    )
    return console.ExitStatus.FAILED


@journal.command(short_help="Count what is in the journal")
@_file_argument
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def stats(file: str | None, as_json: bool) -> int:
    """Count what is in the journal, or in FILE: sessions, entries by kind, sizes, and the largest sessions. FILE may be a
    `postgresql://…`.

    \b
    Example:
      tower journal stats
    """
    import msgspec

    from switchtower.stores.verification import StoreUnreadable

    place = _locate_journal(file)
    try:
        counted = _count_entries(place)
    except StoreUnreadable as problem:
        raise click.ClickException(str(problem)) from None
    if as_json:
        output.write_line(msgspec.json.encode(counted))
        return console.ExitStatus.OK
    for row in table.format_fields(_format_stats(counted, is_file=isinstance(place, Path))):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


def _locate_journal(file: str | None) -> "Path | str":
    """Returns a file, or the address of a database."""
    from switchtower import config
    from switchtower.cli.storage import store_location

    if file is None:
        settings = config.load()
        return settings.journal_path if settings.store is None else settings.store
    if "://" in file and not store_location.is_database(file):  # not printed: it may contain a password
        raise click.UsageError("an address must begin with `postgresql://`; hint: name a file, or such a database")
    return file if store_location.is_database(file) else Path(file)


def _verify_journal(place: "Path | str") -> "verification.VerificationReport":
    import asyncio

    from switchtower.stores.postgres import database
    from switchtower.stores.postgres import verification as postgres_verification
    from switchtower.stores.sqlite import verification as sqlite_verification

    if isinstance(place, Path):
        console.print_line(f"checking {place}", "dim")
        return sqlite_verification.verify_journal(place, _VerifyProgress().report_progress)
    console.print_line(f"checking {database.mask_password(place)}", "dim")
    return asyncio.run(postgres_verification.verify_journal(place, _VerifyProgress().report_progress))


def _count_entries(place: "Path | str") -> "verification.JournalStats":
    import asyncio

    from switchtower.stores.postgres import inspection as postgres_inspection
    from switchtower.stores.sqlite import inspection

    return (
        inspection.collect_journal_stats(place)
        if isinstance(place, Path)
        else asyncio.run(postgres_inspection.collect_journal_stats(place))
    )


class _VerifyProgress:
    """Prints a progress line every few seconds; a journal of a few megabytes needs none."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def report_progress(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._reported_at >= _PROGRESS_INTERVAL:
            self._reported_at = time.monotonic()
            console.print_line(f"{what}: {done:,} of {total:,}", "dim")


def _print_report(report: "verification.VerificationReport") -> None:
    for trouble in report.troubles:
        output.write_line(console.escape_unprintable(f"{trouble.place}: {trouble.what}"))
    if report.more_troubles:
        output.write_line(f"and {report.more_troubles:,} more")
    counted = (
        f"{report.sessions:,} sessions, {report.entries:,} entries, {report.receipts:,} receipts,"
        f" {report.snapshots_compared:,} of {report.snapshots:,} snapshots compared"
    )
    pruned = f" ({report.pruned_sessions:,} sessions are pruned)" if report.pruned_sessions else ""
    output.write_line(f"{'ok' if report.is_ok else 'not ok'}: {counted}{pruned}")


def _format_stats(counted: "verification.JournalStats", *, is_file: bool) -> list[tuple[str, str]]:
    from switchtower.presentation import formats

    kinds = table.format_rows([(kind.kind, f"{kind.entries:,}", formats.format_size(kind.bytes)) for kind in counted.kinds[:10]])
    largest = table.format_rows(
        [(one.session_id, f"{one.entries:,} entries", formats.format_size(one.bytes)) for one in counted.largest[:5]]
    )
    states = ", ".join(f"{count:,} {state}" for state, count in counted.states.items())
    of_a_file = [
        ("file", counted.path),
        ("size", f"{formats.format_size(counted.file_bytes)}, {formats.format_size(counted.free_bytes)} of it free"),
        ("log", formats.format_size(counted.log_bytes)),
    ]
    return [
        *(of_a_file if is_file else [("database", counted.path), ("size", formats.format_size(counted.file_bytes))]),
        ("schema", str(counted.schema)),
        ("sessions", f"{counted.sessions:,}" + (f" ({states})" if states else "")),
        ("entries", f"{counted.entries:,}, {formats.format_size(counted.entry_bytes)}"),
        ("snapshots", f"{counted.snapshots:,}"),
        ("receipts", f"{counted.receipts:,}"),
        ("pruned", f"{counted.pruned_sessions:,} sessions"),
        ("since", _format_moment(counted.oldest_ms)),
        ("until", _format_moment(counted.newest_ms)),
        ("kinds", "\n".join(kinds)),
        ("largest", "\n".join(largest)),
    ]


def _format_moment(at_ms: int | None) -> str:
    return "-" if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
