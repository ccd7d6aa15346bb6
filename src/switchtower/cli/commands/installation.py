"""`tower service` installs the daemon as a user service that starts at login or at the first connection, `tower completion`
prints a shell's completion script, and `tower version` the version."""

import os
import sys
from typing import TYPE_CHECKING

import click

from switchtower import __version__
from switchtower.cli import console, output, table

if TYPE_CHECKING:
    from switchtower.cli import system_service as managers


KINDS = ("systemd", "launchd")
_kind_option = click.option(
    "--manager", "kind", type=click.Choice(KINDS), help="The service manager: systemd or launchd. By default this machine's."
)
_socket_option = click.option(
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
        output.write_line(ctx.get_help())


@service.command(short_help="Write the service's files and start it")
@_socket_option
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, and write nothing.")
@_kind_option
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
    from switchtower.cli import system_service as managers

    chosen = managers.get_service_manager(_choose_manager(kind), os.environ)
    if socket_activation and chosen.kind == "launchd":
        raise click.UsageError("launchd cannot do --socket-activation for us; hint: leave it out, the agent starts at login")
    plan = managers.make_service_plan(config.load(), os.environ, socket_activation=socket_activation)
    if only_print:
        for name, content in chosen.render_files(plan).items():
            output.write(f"# {chosen.folder / name}\n".encode() if chosen.kind == "systemd" else b"")
            output.write(content)
        return console.ExitStatus.OK
    try:
        written = managers.write_files(chosen, plan)
    except OSError as problem:
        raise click.ClickException(f"{problem.strerror}: {problem.filename}; hint: see who owns that folder") from None
    for file in written:
        console.print_line(f"wrote {file}")
    if left := managers.find_dropped_settings(os.environ):
        console.print_line(f"not part of the service: {', '.join(left)}; hint: write them with `tower config set`", "yellow")
    _warn_about_daemon()
    return _run_manager_commands(chosen, chosen.build_enable(plan))


@service.command(short_help="Stop the service and remove its files")
@_kind_option
def uninstall(kind: str | None) -> int:
    """Stop the service and remove its files. Sessions and settings stay.

    \b
    Example:
      tower service uninstall
    """
    from switchtower.cli import system_service as managers

    chosen = managers.get_service_manager(_choose_manager(kind), os.environ)
    installed = chosen.list_installed()
    if not installed:
        console.print_line("the service is not installed")
        return console.ExitStatus.OK
    code = _run_manager_commands(chosen, chosen.build_disable())
    for file in installed:
        file.unlink(missing_ok=True)
        console.print_line(f"removed {file}")
    return max(code, _run_manager_commands(chosen, chosen.build_cleanup()))


@service.command(short_help="Say whether the service is installed and runs")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@_kind_option
def status(as_json: bool, kind: str | None) -> int:
    """Say whether the service is installed, whether its files are as `install` would write them now, and whether it runs.

    Exits with 0 when it is installed and with 1 when it is not.

    \b
    Example:
      tower service status --json
    """
    import msgspec

    from switchtower import config
    from switchtower.cli import system_service as managers

    chosen = managers.get_service_manager(_choose_manager(kind), os.environ)
    installed = chosen.list_installed()
    activated = len(installed) > 1
    wanted = chosen.render_files(managers.make_service_plan(config.load(), os.environ, socket_activation=activated))
    current = bool(installed) and all(file.read_bytes() == wanted.get(file.name) for file in installed)
    found = {
        "kind": chosen.kind,
        "installed": bool(installed),
        "files": [str(file) for file in installed],
        "current": current,
        "socketActivation": activated,
        "state": chosen.get_state() if installed else None,
    }
    if as_json:
        output.write_line(msgspec.json.encode(found))
    else:
        rows = [
            ("service", f"{chosen.kind}, {'installed' if installed else 'not installed'}"),
            *(("file", str(file)) for file in installed),
            *([("state", str(found["state"] or "unknown"))] if installed else []),
        ]
        for row in table.format_fields(rows):
            output.write_line(console.escape_unprintable(row))
    if not installed:
        console.print_line("hint: `tower service install` installs it")
        return console.ExitStatus.FAILED
    if not current:
        console.print_line(
            "its files are not as `tower service install` would write them from this shell; hint: install it again", "yellow"
        )
    return console.ExitStatus.OK


def _choose_manager(kind: str | None) -> str:
    return kind or ("launchd" if sys.platform == "darwin" else "systemd")


def _run_manager_commands(chosen: "managers.ServiceManager", commands: list[list[str]]) -> int:
    from switchtower.cli import system_service as managers

    code = console.ExitStatus.OK
    for told in managers.run_commands(chosen, commands):
        if not told.ran:
            console.print_line(f"`{chosen.program}` is not here; hint: run `{told.command}` where it is", "yellow")
        elif told.problem is not None:
            console.print_error(f"`{told.command}`: {told.problem}", "run it in a session of your own, as after logging in")
            code = console.ExitStatus.FAILED
        else:
            console.print_line(f"ran {told.command}", "dim")
    return code


def _warn_about_daemon() -> None:
    from switchtower import config
    from switchtower.client import discovery

    if pid := discovery.find_lock_holder(config.load()):
        console.print_line(
            f"a daemon runs already (pid {pid}), and the service starts once that has ended; hint: `tower stop`", "yellow"
        )


SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("tower", "push", "tm")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--program", type=click.Choice(PROGRAMS), default="tower", help="The command to complete: `tower`, `push` or `tm`.")
def completion(shell: str, program: str) -> int:
    """Print the completion script for a shell. Sessions and models are offered when a daemon runs; none is started for it.

    bash (4.4 or newer): put `eval "$(tower completion bash)"` into ~/.bashrc.

    zsh: put `eval "$(tower completion zsh)"` into ~/.zshrc, after `compinit`.

    fish: write it to ~/.config/fish/completions/tower.fish.

    \b
    Example:
      tower completion fish > ~/.config/fish/completions/tower.fish
      eval "$(tower completion bash)"
    """
    from click.shell_completion import BashComplete, ShellComplete, get_completion_class

    from switchtower.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    script = kind(main.tower, {}, program, f"_{program.upper()}_COMPLETE")
    # bash's own `source` would check the version of this machine's bash, which need not be the one that reads the script.
    text = ShellComplete.source(script) if isinstance(script, BashComplete) else script.source()
    output.write(text.encode())
    return console.ExitStatus.OK


@click.command()
def version() -> None:
    """Print the version.

    \b
    Example:
      tower version
    """
    output.write_line(f"switchtower {__version__}")
