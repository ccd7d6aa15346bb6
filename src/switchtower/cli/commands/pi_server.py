"""`pi-server`: the daemon in the foreground, which speaks pi at its port and over stdin and stdout in one process."""

import gc
from functools import partial
from typing import Any

import click

from switchtower.cli import console
from switchtower.cli.commands import serve


@click.command()
@serve.with_flags
def pi_server(**flags: Any) -> int:
    """Run the daemon in the foreground and speak the pi protocol, at a port of this machine and over stdin and stdout.

    Ends when its input ends or when it is told to (Ctrl-C, SIGTERM or `tower stop`): clients hear of it, and work under way has
    `--shutdown-timeout` to finish. The port is PI_SERVER_PORT, or that of `--pi`; it must be free.

    \b
    Example:
      PI_SERVER_PORT=4000 pi-server
    """
    from switchtower.transports import descriptors

    try:
        claimed = descriptors.claim()  # before anything else is loaded that might print
    except OSError:
        console.fail("stdin or stdout is not open", "connect both, as a pipe does, or use `tower serve`")
        return console.Exit.FAILED

    from switchtower import config

    settings = config.load(flags)
    gc.disable()  # as in `tower serve`

    from switchtower.daemon import app, home
    from switchtower.daemon.stdio import Descriptors

    try:
        return app.run(settings, partial(serve.announce, settings), stdio=Descriptors(*claimed))
    except app.CannotStart as problem:
        if isinstance(problem.__cause__, home.AlreadyRunning):
            console.fail(problem.__cause__.message, "`tower stdio --protocol pi` talks to it")
        else:
            console.fail(str(problem))
        return console.Exit.FAILED
