"""`tower backup` and `tower restore`: the journal, the registry and the configuration in one file, and back."""

import time
from pathlib import Path

import click

from switchtower.cli import console, output

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
    from switchtower.cli import amounts
    from switchtower.cli.archives import making
    from switchtower.cli.storing import places
    from switchtower.stores.copying.ports import TransferError
    from switchtower.stores.looking import StoreUnreadable

    settings = config.load()
    try:
        made = making.write_backup(
            settings,
            file.absolute(),
            with_secrets=with_secrets,
            force=force,
            store=places.choose_database(settings, store),
            on_progress=lambda text: console.print_line(text, "dim"),
        )
    except (making.BackupError, StoreUnreadable, TransferError) as problem:
        raise click.ClickException(str(problem)) from None
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror}: {problem.filename or file}; hint: choose another place") from None
    for left_out in made.left_out:
        console.print_line(f"left out: {left_out}", "yellow")
    if as_json:
        output.write_line(msgspec.json.encode(made))
    else:
        secrets = "with secrets" if made.secrets else "without secrets"
        console.print_line(f"{made.file}: {len(made.members)} files, {amounts.format_size(made.bytes)}, {secrets}")
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
    from switchtower.cli.archives import manifest, restoring
    from switchtower.cli.storing import places
    from switchtower.daemon.home import AlreadyRunning
    from switchtower.stores.copying.ports import TransferError
    from switchtower.stores.looking import StoreUnreadable

    settings = config.load()
    if not file.is_file():
        raise click.ClickException(f"there is no file `{file}`; hint: name what `tower backup` wrote")
    try:
        restored = restoring.restore_backup(settings, file, force=force, store=places.choose_database(settings, store))
    except manifest.BackupCorrupt as problem:
        raise click.ClickException(f"`{file}` was not restored: {problem}") from None
    except (restoring.RestoreError, StoreUnreadable, TransferError, AlreadyRunning) as problem:
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
    except config.ConfigError as problem:
        console.print_line(f"the settings that came back cannot be used: {problem}", "yellow")
