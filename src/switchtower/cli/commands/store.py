"""`tower store` copies all data from one store to another; `tower backup` and `tower restore` save the journal, the registry and
the configuration in one file, and restore them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output
from switchtower.settings.sources import ConfigError

if TYPE_CHECKING:
    from switchtower.cli.storage import store_location
    from switchtower.stores.transfer import transfer


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
@click.option("--restart", is_flag=True, help="Throw away what an interrupted copy left, and begin again.")
@click.option("--verify-only", is_flag=True, help="Copy nothing: only compare the two.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: what was copied and compared, and each difference.")
def copy(source: str, target: str, resume: bool, restart: bool, verify_only: bool, as_json: bool) -> int:
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

    from switchtower.cli.storage import store_location
    from switchtower.daemon.home import AlreadyRunning
    from switchtower.stores.transfer.ports import TransferError
    from switchtower.stores.verification import StoreUnreadable

    try:
        ours, theirs = store_location.parse_location(source), store_location.parse_location(target)
        if ours.display_name == theirs.display_name:
            raise TransferError("FROM and TO are the same", hint="name another place to copy to")
        if resume and restart:
            raise TransferError("--resume and --restart are opposites", hint="choose one of them")
        moved, compared = asyncio.run(_run_copy(ours, theirs, resume=resume, restart=restart, verify_only=verify_only))
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
    ours: "store_location.StoreLocation",
    theirs: "store_location.StoreLocation",
    *,
    resume: bool,
    restart: bool,
    verify_only: bool,
) -> "tuple[transfer.TransferResult | None, transfer.ComparisonResult]":
    from switchtower.cli.storage import store_access
    from switchtower.stores.transfer import transfer

    progress = _CopyProgress()
    async with store_access.open_for_reading(ours) as source:
        if verify_only:
            async with store_access.open_for_reading(theirs) as other:
                return None, await transfer.compare_stores(source, other, progress.report_progress)
        async with store_access.open_for_writing(theirs, resume=resume, restart=restart) as target:
            console.print_line(f"copying {ours.display_name} to {theirs.display_name}", "dim")
            moved = await transfer.copy_store(source, target, progress.report_progress)
            console.print_line("comparing", "dim")
            compared = await transfer.compare_stores(source, target, progress.report_progress)
            await store_access.require_no_live_nodes(ours)
            if compared.is_equal:
                await target.activate()
            return moved, compared


class _CopyProgress:
    """Prints a progress line every few seconds; a small store needs none."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def report_progress(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._reported_at >= _PROGRESS_INTERVAL:
            self._reported_at = time.monotonic()
            console.print_line(f"{what}: {done:,} of {total:,}", "dim")


def _print_result(
    ours: "store_location.StoreLocation",
    theirs: "store_location.StoreLocation",
    moved: "transfer.TransferResult | None",
    compared: "transfer.ComparisonResult",
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
            "nothing took its place at the target; hint: see `tower journal verify` of both, and try again with --restart"
        )
    return console.ExitStatus.FAILED


_file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one object.")
_store_option = click.option(
    "--store", metavar="STORE", help="`postgresql://…`, or `sqlite` for the files of this home; else what the setting says."
)


@click.command()
@_file_argument
@click.option("--with-secrets", is_flag=True, help="Also the owner's token, the key that signs logins and this host's identity.")
@click.option("--force", is_flag=True, help="Replace FILE when it is there.")
@_store_option
@_json_option
def backup(file: Path, with_secrets: bool, force: bool, store: str | None, as_json: bool) -> int:
    """Write the journal, users and hosts, settings, presets, prompts and skills to FILE, a tar.gz that only you can read.

    The daemon may run: the journal is copied as of one moment. Checkpoints for undo and worktrees are not part of it. A backup of
    a PostgreSQL has the same form, so that it can be restored into files, and the other way round.

    \b
    Example:
      tower backup ~/tower-$(date +%F).tar.gz
      tower backup --with-secrets /media/usb/tower.tar.gz
    """
    import msgspec

    from switchtower import config
    from switchtower.cli.storage import backup_writer, store_location
    from switchtower.presentation import formats
    from switchtower.stores.transfer.ports import TransferError
    from switchtower.stores.verification import StoreUnreadable

    settings = config.load()
    try:
        made = backup_writer.write_backup(
            settings,
            file.absolute(),
            with_secrets=with_secrets,
            force=force,
            store=store_location.choose_database(settings, store),
            on_progress=lambda text: console.print_line(text, "dim"),
        )
    except (backup_writer.BackupError, StoreUnreadable, TransferError) as problem:
        raise click.ClickException(str(problem)) from None
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror}: {problem.filename or file}; hint: choose another place") from None
    for left_out in made.left_out:
        console.print_line(f"left out: {left_out}", "yellow")
    if as_json:
        output.write_line(msgspec.json.encode(made))
    else:
        secrets = "with secrets" if made.secrets else "without secrets"
        console.print_line(f"{made.file}: {len(made.members)} files, {formats.format_size(made.bytes)}, {secrets}")
    return console.ExitStatus.OK


@click.command()
@_file_argument
@click.option("--force", is_flag=True, help="Replace what is there; the old files are kept, with `.before-restore-TIME` behind.")
@_store_option
@_json_option
def restore(file: Path, force: bool, store: str | None, as_json: bool) -> int:
    """Bring back what `tower backup` wrote to FILE. No daemon may run meanwhile, and no node of a PostgreSQL.

    Everything is checked before the first file is replaced. Files of yours that the backup does not have stay as they are. What
    a PostgreSQL held is kept in a schema of another name.

    \b
    Example:
      tower restore ~/tower-2026-03-01.tar.gz --force
      tower journal verify
    """
    import msgspec

    from switchtower import config
    from switchtower.cli.storage import backup_manifest, backup_restore, store_location
    from switchtower.daemon.home import AlreadyRunning
    from switchtower.stores.transfer.ports import TransferError
    from switchtower.stores.verification import StoreUnreadable

    settings = config.load()
    if not file.is_file():
        raise click.ClickException(f"there is no file `{file}`; hint: name what `tower backup` wrote")
    try:
        restored = backup_restore.restore_backup(
            settings, file, force=force, store=store_location.choose_database(settings, store)
        )
    except backup_manifest.BackupCorrupt as problem:
        raise click.ClickException(f"`{file}` was not restored: {problem}") from None
    except (backup_restore.RestoreError, StoreUnreadable, TransferError, AlreadyRunning) as problem:
        raise click.ClickException(f"nothing was restored: {problem}") from None
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror}: {problem.filename}; hint: see who owns it, and the disk") from None
    for kept in restored.kept_aside:
        console.print_line(f"kept aside: {kept}", "dim")
    if as_json:
        output.write_line(msgspec.json.encode(restored))
    else:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(restored.created_at_ms / 1000))
        console.print_line(f"restored {len(restored.restored)} files of a backup of {made}, made by version {restored.version}")
    _warn_about_settings()
    return console.ExitStatus.OK


def _warn_about_settings() -> None:
    from switchtower import config

    try:
        config.load()
    except ConfigError as problem:
        console.print_line(f"the settings that came back cannot be used: {problem}", "yellow")
