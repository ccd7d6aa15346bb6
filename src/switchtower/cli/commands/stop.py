"""`tower stop`: ends the daemon of this home, and only that process."""

import os
import signal
import time
from typing import TYPE_CHECKING

import click

from switchtower.cli import console

if TYPE_CHECKING:
    from switchtower import config

_GRACE = 10.0


@click.command()
def stop() -> int:
    """Stop the daemon and wait until it is gone. Pending approvals and sessions are kept.

    Exits with 0 when no daemon runs afterwards.

    \b
    Example:
      tower stop && tower serve
    """
    from switchtower import config
    from switchtower.client import discover

    settings = config.load()
    endpoints = discover.read_endpoints(settings)
    # The lock proves that a daemon lives here; without it the pid may be a stranger's by now.
    if endpoints is None or not discover.is_locked(settings):
        console.say("no daemon is running")
        return console.Exit.OK
    try:
        os.kill(endpoints.pid, signal.SIGTERM)
    except ProcessLookupError:
        console.say("no daemon is running")
        return console.Exit.OK
    except PermissionError:
        console.fail(f"the daemon (pid {endpoints.pid}) belongs to another user")
        return console.Exit.FAILED
    if not _gone(endpoints.pid, settings):
        console.fail(f"the daemon (pid {endpoints.pid}) is still busy ending", f"see its log at `{settings.log_path}`")
        return console.Exit.FAILED
    console.say(f"stopped the daemon (pid {endpoints.pid})")
    return console.Exit.OK


def _gone(pid: int, settings: "config.Settings") -> bool:
    deadline = time.monotonic() + settings.shutdown_timeout + _GRACE
    while time.monotonic() < deadline:
        if not _is_alive(pid):
            return True
        time.sleep(0.02)
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is somebody else's already
    return True
