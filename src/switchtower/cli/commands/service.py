"""`tower service`: the daemon as a service of your own, which starts when you log in, or when somebody comes to its socket."""

import os
import sys
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output, table

if TYPE_CHECKING:
    from switchtower.cli.services import manager as managers

KINDS = ("systemd", "launchd")
_kind = click.option(
    "--for", "kind", type=click.Choice(KINDS), help="The service manager: systemd or launchd. By default this machine's."
)
_socket = click.option(
    "--socket-activation", is_flag=True, help="Let systemd listen, and start the daemon when somebody comes (not with launchd)."
)


@click.group(invoke_without_command=True)
@click.pass_context
def service(ctx: click.Context) -> None:
    """Run the daemon as a service of your own: a systemd user unit, or a launchd agent on macOS.

    \b
    Example:
      tower service install
      tower service status
    """
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())


@service.command(short_help="Write the service's files and start it")
@_socket
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and write nothing.")
@_kind
def install(socket_activation: bool, only_print: bool, kind: str | None) -> int:
    """Write the service's files and tell the service manager to start it, now and at each login.

    It gets the `TOWER_HOME` and the search path of this shell; every other setting belongs into the file (`tower config set`),
    and keys of models into `service.env` beside it. Where the service manager is not there, the commands to run are printed.

    \b
    Example:
      tower service install --print
      tower service install --socket-activation
    """
    from switchtower import config
    from switchtower.cli.services import manager as managers
    from switchtower.cli.services import plan as plans

    chosen = managers.of(_of_this_machine(kind), os.environ)
    if socket_activation and chosen.kind == "launchd":
        raise click.UsageError("launchd cannot do --socket-activation for us; hint: leave it out, the agent starts at login")
    plan = plans.plan(config.load(), os.environ, socket_activation=socket_activation)
    if only_print:
        for name, content in chosen.files(plan).items():
            output.write(f"# {chosen.folder / name}\n".encode() if chosen.kind == "systemd" else b"")
            output.write(content)
        return console.Exit.OK
    try:
        written = managers.write(chosen, plan)
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror}: {problem.filename}; hint: see who owns that folder") from None
    for file in written:
        console.say(f"wrote {file}")
    if left := plans.not_carried(os.environ):
        console.say(f"not part of the service: {', '.join(left)}; hint: write them with `tower config set`", "yellow")
    _tell_of_a_daemon()
    return _tell(chosen, chosen.enabling(plan))


@service.command(short_help="Stop the service and remove its files")
@_kind
def uninstall(kind: str | None) -> int:
    """Stop the service and remove its files. Sessions and settings stay.

    \b
    Example:
      tower service uninstall
    """
    from switchtower.cli.services import manager as managers

    chosen = managers.of(_of_this_machine(kind), os.environ)
    installed = chosen.installed()
    if not installed:
        console.say("the service is not installed")
        return console.Exit.OK
    code = _tell(chosen, chosen.disabling())
    for file in installed:
        file.unlink(missing_ok=True)
        console.say(f"removed {file}")
    return max(code, _tell(chosen, chosen.after_removal()))


@service.command(short_help="Say whether the service is installed and runs")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@_kind
def status(as_json: bool, kind: str | None) -> int:
    """Say whether the service is installed, whether its files are as `install` would write them now, and whether it runs.

    Exits with 0 when it is installed and with 1 when it is not.

    \b
    Example:
      tower service status --json
    """
    import msgspec

    from switchtower import config
    from switchtower.cli.services import manager as managers
    from switchtower.cli.services import plan as plans

    chosen = managers.of(_of_this_machine(kind), os.environ)
    installed = chosen.installed()
    activated = len(installed) > 1
    wanted = chosen.files(plans.plan(config.load(), os.environ, socket_activation=activated))
    current = bool(installed) and all(file.read_bytes() == wanted.get(file.name) for file in installed)
    found = {
        "kind": chosen.kind,
        "installed": bool(installed),
        "files": [str(file) for file in installed],
        "current": current,
        "socketActivation": activated,
        "state": chosen.state() if installed else None,
    }
    if as_json:
        output.line(msgspec.json.encode(found))
    else:
        rows = [
            ("service", f"{chosen.kind}, {'installed' if installed else 'not installed'}"),
            *(("file", str(file)) for file in installed),
            *([("state", str(found["state"] or "unknown"))] if installed else []),
        ]
        for row in table.fields(rows):
            output.line(console.printable(row))
    if not installed:
        console.say("hint: `tower service install` installs it")
        return console.Exit.FAILED
    if not current:
        console.say(
            "its files are not as `tower service install` would write them from this shell; hint: install it again", "yellow"
        )
    return console.Exit.OK


def _of_this_machine(kind: str | None) -> str:
    return kind or ("launchd" if sys.platform == "darwin" else "systemd")


def _tell(chosen: "managers.Manager", commands: list[list[str]]) -> int:
    from switchtower.cli.services import manager as managers

    code = console.Exit.OK
    for told in managers.tell(chosen, commands):
        if not told.ran:
            console.say(f"`{chosen.program}` is not here; hint: run `{told.command}` where it is", "yellow")
        elif told.problem is not None:
            console.fail(f"`{told.command}`: {told.problem}", "run it in a session of your own, as after logging in")
            code = console.Exit.FAILED
        else:
            console.say(f"ran {told.command}", "dim")
    return code


def _tell_of_a_daemon() -> None:
    from switchtower import config
    from switchtower.client import discover

    if pid := discover.holder(config.load()):
        console.say(
            f"a daemon runs already (pid {pid}), and the service starts once that has ended; hint: `tower stop`", "yellow"
        )
