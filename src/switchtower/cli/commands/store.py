"""`tower store`: moves everything that a tower keeps from one store to another."""

import time
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output

if TYPE_CHECKING:
    from switchtower.cli.storing import places
    from switchtower.stores.copying import comparing, moving

_PROGRESS_INTERVAL = 2.0


@click.group(invoke_without_command=True)
@click.pass_context
def store(ctx: click.Context) -> None:
    """Move between SQLite and PostgreSQL.

    \b
    Example:
      tower store copy sqlite postgresql://tower@db.example/tower
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


@store.command(short_help="Copy a whole store to an empty one, and compare the two")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--resume", is_flag=True, help="Go on with a copy that was interrupted.")
@click.option("--anew", is_flag=True, help="Throw away what an interrupted copy left, and begin again.")
@click.option("--verify-only", is_flag=True, help="Copy nothing: only compare the two.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: what was copied and compared, and each difference.")
def copy(source: str, target: str, resume: bool, anew: bool, verify_only: bool, as_json: bool) -> int:
    """Copy sessions with all their entries, receipts, users, logins, hosts, and the secrets that logins hang on.

    FROM and TO are `postgresql://…`, `sqlite` for the files of this home, or the folder of another home. Both must be stopped.
    TO must be empty, and nobody sees anything there before all of it was copied and compared with FROM. FROM stays as it is.
    The search index is made anew. What else a home has (settings, presets, checkpoints) stays where it is.

    A password does not belong on a command line: PGPASSWORD and ~/.pgpass are read. Progress is on stderr. Exits with 0 when
    both are the same, and with 1 and the sessions that differ when they are not.

    \b
    Example:
      tower stop
      tower store copy sqlite postgresql://tower@db.example/tower
      tower store copy postgresql://tower@db.example/tower /srv/tower-home
      tower store copy --verify-only sqlite postgresql://tower@db.example/tower
    """
    import asyncio
    import sqlite3

    from switchtower.cli.storing import places
    from switchtower.daemon.home import AlreadyRunning
    from switchtower.stores.copying.ports import TransferError
    from switchtower.stores.looking import StoreUnreadable

    try:
        ours, theirs = places.parse_location(source), places.parse_location(target)
        if ours.display_name == theirs.display_name:
            raise TransferError("FROM and TO are the same", hint="name another place to copy to")
        if resume and anew:
            raise TransferError("--resume and --anew are opposites", hint="choose one of them")
        moved, compared = asyncio.run(_run_copy(ours, theirs, resume=resume, restart=anew, verify_only=verify_only))
    except (TransferError, StoreUnreadable) as problem:
        raise click.ClickException(str(problem)) from None
    except AlreadyRunning as problem:
        raise click.ClickException(f"nothing was copied: {problem}") from None
    except sqlite3.Error as problem:
        raise click.ClickException(
            f"the files at the target: {problem}; hint: see the disk, and try again with --resume"
        ) from None
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror or problem}: {problem.filename or '-'}; hint: see the disk") from None
    return _print_result(ours, theirs, moved, compared, as_json=as_json)


async def _run_copy(
    ours: "places.StoreLocation", theirs: "places.StoreLocation", *, resume: bool, restart: bool, verify_only: bool
) -> "tuple[moving.TransferResult | None, comparing.ComparisonResult]":
    from switchtower.cli.storing import opening
    from switchtower.stores.copying import comparing, moving

    progress = _CopyProgress()
    async with opening.open_for_reading(ours) as source:
        if verify_only:
            async with opening.open_for_reading(theirs) as other:
                return None, await comparing.compare_stores(source, other, progress.report_progress)
        async with opening.open_for_writing(theirs, resume=resume, restart=restart) as target:
            console.print_line(f"copying {ours.display_name} to {theirs.display_name}", "dim")
            moved = await moving.copy_store(source, target, progress.report_progress)
            console.print_line("comparing", "dim")
            compared = await comparing.compare_stores(source, target, progress.report_progress)
            await opening.require_no_live_nodes(ours)
            if compared.is_equal:
                await target.activate()
            return moved, compared


class _CopyProgress:
    """A line every few moments: a small store needs none."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def report_progress(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._reported_at >= _PROGRESS_INTERVAL:
            self._reported_at = time.monotonic()
            console.print_line(f"{what}: {done:,} of {total:,}", "dim")


def _print_result(
    ours: "places.StoreLocation",
    theirs: "places.StoreLocation",
    moved: "moving.TransferResult | None",
    compared: "comparing.ComparisonResult",
    *,
    as_json: bool,
) -> int:
    import msgspec

    if as_json:
        report = {
            "ok": compared.is_equal,
            "from": ours.display_name,
            "to": theirs.display_name,
            "copied": moved,
            "compared": compared,
        }
        output.write_line(msgspec.json.encode(report))
    else:
        for difference in compared.differences:
            output.write_line(console.escape_unprintable(difference))
        if compared.more_differences:
            output.write_line(f"and {compared.more_differences:,} more")
        counted = f"{compared.sessions:,} sessions, {compared.entries:,} entries, {compared.receipts:,} receipts"
        output.write_line(
            f"{'ok' if compared.is_equal else 'not the same'}: {counted}, {compared.records:,} rows of users, logins and hosts"
        )
    if compared.is_equal:
        return console.ExitStatus.OK
    if moved is not None:
        console.print_line(
            "nothing took its place at the target; hint: see `tower journal verify` of both, and try again with --anew"
        )
    return console.ExitStatus.FAILED
