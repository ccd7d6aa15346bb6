"""`tower store`: moves everything that a tower keeps from one store to another."""

import time
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output

if TYPE_CHECKING:
    from switchtower.cli.storing import places
    from switchtower.stores.copying import comparing, moving

_TELL_EVERY = 2.0


@click.group(invoke_without_command=True)
@click.pass_context
def store(ctx: click.Context) -> None:
    """Move between SQLite and PostgreSQL.

    \b
    Example:
      tower store copy sqlite postgresql://tower@db.example/tower
    """
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())


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
    from switchtower.stores.copying.ports import CannotCopy
    from switchtower.stores.looking import CannotLook

    try:
        ours, theirs = places.read(source), places.read(target)
        if ours.shown == theirs.shown:
            raise CannotCopy("FROM and TO are the same", hint="name another place to copy to")
        if resume and anew:
            raise CannotCopy("--resume and --anew are opposites", hint="choose one of them")
        moved, compared = asyncio.run(_run(ours, theirs, resume=resume, anew=anew, verify_only=verify_only))
    except (CannotCopy, CannotLook) as problem:
        raise click.ClickException(str(problem)) from None
    except AlreadyRunning as problem:
        raise click.ClickException(f"nothing was copied: {problem}") from None
    except sqlite3.Error as problem:
        raise click.ClickException(
            f"the files at the target: {problem}; hint: see the disk, and try again with --resume"
        ) from None
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror or problem}: {problem.filename or '-'}; hint: see the disk") from None
    return _told(ours, theirs, moved, compared, as_json=as_json)


async def _run(
    ours: "places.Place", theirs: "places.Place", *, resume: bool, anew: bool, verify_only: bool
) -> "tuple[moving.Moved | None, comparing.Compared]":
    from switchtower.cli.storing import opening
    from switchtower.stores.copying import comparing, moving

    progress = _Progress()
    async with opening.reading(ours) as source:
        if verify_only:
            async with opening.reading(theirs) as other:
                return None, await comparing.compare(source, other, progress.tell)
        async with opening.writing(theirs, resume=resume, anew=anew) as target:
            console.say(f"copying {ours.shown} to {theirs.shown}", "dim")
            moved = await moving.move_all(source, target, progress.tell)
            console.say("comparing", "dim")
            compared = await comparing.compare(source, target, progress.tell)
            await opening.refuse_company(ours)
            if compared.same:
                await target.take_place()
            return moved, compared


class _Progress:
    """A line every few moments: a small store needs none."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def tell(self, what: str, done: int, of: int) -> None:
        if time.monotonic() - self._told_at >= _TELL_EVERY:
            self._told_at = time.monotonic()
            console.say(f"{what}: {done:,} of {of:,}", "dim")


def _told(
    ours: "places.Place",
    theirs: "places.Place",
    moved: "moving.Moved | None",
    compared: "comparing.Compared",
    *,
    as_json: bool,
) -> int:
    import msgspec

    if as_json:
        report = {"ok": compared.same, "from": ours.shown, "to": theirs.shown, "copied": moved, "compared": compared}
        output.line(msgspec.json.encode(report))
    else:
        for difference in compared.differences:
            output.line(console.printable(difference))
        if compared.more_differences:
            output.line(f"and {compared.more_differences:,} more")
        counted = f"{compared.sessions:,} sessions, {compared.entries:,} entries, {compared.receipts:,} receipts"
        output.line(
            f"{'ok' if compared.same else 'not the same'}: {counted}, {compared.records:,} rows of users, logins and hosts"
        )
    if compared.same:
        return console.Exit.OK
    if moved is not None:
        console.say("nothing took its place at the target; hint: see `tower journal verify` of both, and try again with --anew")
    return console.Exit.FAILED
