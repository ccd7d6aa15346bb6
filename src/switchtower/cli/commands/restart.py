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

    settings = config.load(_options(config.load()))
    pid = discover.holder(settings)
    if pid:
        if (remedy := _service_command(pid)) is not None:
            raise errors.ClientError(f"a service manager holds the daemon (pid {pid})", hint=f"run `{remedy}`")
        active = asyncio.run(_active(settings))
        if active and not force and not _is_sure(active):
            raise errors.ClientError(
                f"the daemon was not restarted: {_counted(active)} would end", hint="wait for it, or use `--force`"
            )
        if not stop.end(pid, settings):
            console.fail(f"the daemon (pid {pid}) is still busy ending", f"see its log at `{settings.log_path}`")
            return console.Exit.FAILED
    asyncio.run(_start(settings))
    console.say(f"restarted the daemon (pid {discover.holder(settings)})" if pid else "started the daemon")
    return console.Exit.OK


def _options(settings: "config.Settings") -> dict[str, str]:
    """The flags of the running daemon's own command line."""
    from switchtower.client import discover

    endpoints = discover.read_endpoints(settings)
    return {} if endpoints is None or endpoints.pid != discover.holder(settings) else endpoints.options


def _service_command(pid: int) -> str | None:
    """How to restart a daemon that systemd started; launchd starts one that was stopped by itself."""
    from switchtower.cli.services import systemd

    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return f"systemctl --user restart {systemd.SERVICE}" if f"/{systemd.SERVICE}" in groups else None


async def _active(settings: "config.Settings") -> int:
    """How many runs would be interrupted. A run that waits for a decision continues to wait."""
    from switchtower.cli import lookup
    from switchtower.client import errors
    from switchtower.client.client import Client

    try:
        async with await Client.connect(settings, start=False) as client:
            return sum(session.state == "running" for session in await client.list_sessions(lookup.MOST_LISTED))
    except errors.DaemonUnreachable:
        return 0


async def _start(settings: "config.Settings") -> None:
    from switchtower.client.client import Client

    (await Client.connect(settings)).close()


def _is_sure(active: int) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        return False
    console.piece(f"{_counted(active)} will end. Restart the daemon? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _counted(active: int) -> str:
    return "1 active run" if active == 1 else f"{active} active runs"
