"""`pi-server`: the daemon in the foreground, which speaks pi at its port and over stdin and stdout in one process."""

import gc
from functools import partial
from typing import Any

import click

from switchtower.cli import console
from switchtower.cli.commands import serve


@click.command()
@serve.add_setting_flags
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
        claimed = descriptors.claim_stdio()  # before anything else is loaded that might print
    except OSError:
        console.print_error("stdin or stdout is not open", "connect both, as a pipe does, or use `tower serve`")
        return console.ExitStatus.FAILED

    from switchtower import config

    settings = config.load(flags)
    gc.disable()  # as in `tower serve`

    from switchtower.daemon import app, home
    from switchtower.daemon.stdio import StdioDescriptors

    try:
        return app.run_daemon(settings, partial(serve.print_endpoints, settings), stdio=StdioDescriptors(*claimed))
    except app.DaemonStartError as problem:
        if isinstance(problem.__cause__, home.AlreadyRunning):
            console.print_error(problem.__cause__.message, "`tower stdio --protocol pi` talks to it")
        else:
            console.print_error(str(problem))
        return console.ExitStatus.FAILED
