"""`tower restart`: stops the daemon of this home and starts it again, with the options that it was started with."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import console

if TYPE_CHECKING:
    from switchtower import config


@click.command()
@click.option("-f", "--force", is_flag=True, help="Restart also while runs are active.")
def restart(force: bool) -> int:
    """Stop the daemon, wait until it is gone, and start it again in the background, with the options that it had and the
    environment of this shell.

    Sessions, queues and pending approvals continue. A run that works at this moment is interrupted, and a program in a terminal
    ends: with such runs the command asks at a terminal, and elsewhere needs --force. Where no daemon runs, one is started. A
    daemon that a service manager holds is not touched; the command that restarts it is printed.

    \b
    Exit codes:
      0 the daemon runs again, 1 refused or it did not start

    \b
    Example:
      tower restart
      OPENAI_API_KEY=… tower restart --force
    """
    from switchtower import config
    from switchtower.cli.commands import stop
    from switchtower.client import discover, errors

    settings = config.load(_read_options(config.load()))
    pid = discover.find_lock_holder(settings)
    if pid:
        if (remedy := _find_service_command(pid)) is not None:
            raise errors.ClientError(f"a service manager holds the daemon (pid {pid})", hint=f"run `{remedy}`")
        active = asyncio.run(_count_active_runs(settings))
        if active and not force and not _confirm_restart(active):
            raise errors.ClientError(
                f"the daemon was not restarted: {_format_run_count(active)} would end", hint="wait for it, or use `--force`"
            )
        if not stop.stop_process(pid, settings):
            console.print_error(f"the daemon (pid {pid}) is still busy ending", f"see its log at `{settings.log_path}`")
            return console.ExitStatus.FAILED
    asyncio.run(_start_daemon(settings))
    console.print_line(f"restarted the daemon (pid {discover.find_lock_holder(settings)})" if pid else "started the daemon")
    return console.ExitStatus.OK


def _read_options(settings: "config.Settings") -> dict[str, str]:
    """The flags of the running daemon's own command line."""
    from switchtower.client import discover

    endpoints = discover.read_endpoints(settings)
    return {} if endpoints is None or endpoints.pid != discover.find_lock_holder(settings) else endpoints.options


def _find_service_command(pid: int) -> str | None:
    """How to restart a daemon that systemd started; launchd starts one that was stopped by itself."""
    from switchtower.cli.services import systemd

    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return f"systemctl --user restart {systemd.SERVICE_UNIT}" if f"/{systemd.SERVICE_UNIT}" in groups else None


async def _count_active_runs(settings: "config.Settings") -> int:
    """How many runs would be interrupted. A run that waits for a decision continues to wait."""
    from switchtower.cli import lookup
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            return sum(session.state == "running" for session in await client.list_sessions(lookup.MAX_LISTED))
    except errors.DaemonUnreachable:
        return 0


async def _start_daemon(settings: "config.Settings") -> None:
    from switchtower.client.client import DaemonClient

    (await DaemonClient.connect(settings)).close()


def _confirm_restart(active: int) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        return False
    console.print_piece(f"{_format_run_count(active)} will end. Restart the daemon? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _format_run_count(active: int) -> str:
    return "1 active run" if active == 1 else f"{active} active runs"
