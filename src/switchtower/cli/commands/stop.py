"""`tower stop`: ends the daemon of this home, and only that process."""

import os
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from switchtower.cli import console

if TYPE_CHECKING:
    from switchtower import config

_EXIT_MARGIN = 10.0


@click.command()
def stop() -> int:
    """Stop the daemon and wait until it is gone. Sessions and pending approvals are kept.

    Exits with 0 when no daemon runs afterwards.

    \b
    Example:
      tower stop && tower serve
    """
    from switchtower import config
    from switchtower.client import discover

    settings = config.load()
    # The lock's holder, not the number in a file: that may be a stranger's by now.
    pid = discover.find_lock_holder(settings)
    if not pid:
        console.print_line("no daemon is running")
        return console.ExitStatus.OK
    if not stop_process(pid, settings):
        console.print_error(f"the daemon (pid {pid}) is still busy ending", f"see its log at `{settings.log_path}`")
        return console.ExitStatus.FAILED
    console.print_line(f"stopped the daemon (pid {pid})")
    return console.ExitStatus.OK


def stop_process(pid: int, settings: "config.Settings") -> bool:
    """Whether the process is gone in time."""
    from switchtower.client import discover

    patience = settings.shutdown_timeout + _EXIT_MARGIN
    try:
        process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        return True
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if process is not None:
        try:
            return bool(select.select([process], [], [], patience)[0])
        finally:
            os.close(process)
    deadline = time.monotonic() + patience
    while discover.find_lock_holder(settings) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
