"""`tower serve`: the daemon in the foreground. Its flags are the settings, made from their table."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchtower import config
from switchtower.cli import console

if TYPE_CHECKING:
    from switchtower.daemon.home import DaemonEndpoints


def _read_as_setting(setting: config.Setting) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A flag is read exactly as the variable and the file are."""

    def read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else setting.parse(text)
        except ValueError as problem:
            raise click.BadParameter(f"{problem}; hint: {setting.remedy}", ctx, parameter) from None

    return read


def add_setting_flags(command: Callable[..., int]) -> Callable[..., int]:
    """A flag for every setting."""
    for setting in reversed(config.SETTINGS):
        default = "" if setting.default is None else f"  [default: {setting.default}]"
        if setting.is_switch:
            flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
            command = click.option(flag, setting.name, default=None, help=setting.help)(command)
        else:
            command = click.option(
                setting.flag,
                setting.name,
                callback=_read_as_setting(setting),
                metavar=setting.metavar,
                help=setting.help + default,
            )(command)
    return command


@click.command()
@add_setting_flags
def serve(**flags: Any) -> int:
    """Run the daemon in the foreground until it is stopped (Ctrl-C, SIGTERM or `tower stop`).

    Each flag is also a key of the configuration file and a TOWER_* variable; a flag wins over the variable, the variable over
    the file.

    \b
    Example:
      tower serve --http 127.0.0.1:0 --log-level debug
      TOWER_HOME=/tmp/try tower serve
    """
    settings = config.load(flags)
    # Nothing that starting makes is ever garbage; `app.run` turns the collector on again when it listens.
    gc.disable()

    from switchtower.daemon import app

    try:
        return app.run_daemon(settings, partial(print_endpoints, settings))
    except app.DaemonStartError as problem:
        console.print_error(str(problem))
        return console.ExitStatus.FAILED


def print_endpoints(settings: config.Settings, endpoints: "DaemonEndpoints") -> None:
    from switchtower.cli import reachability

    reached = reachability.describe_reachability(
        http=endpoints.http, pi=endpoints.pi, listening=endpoints.listening, public_url=settings.public_url
    )
    console.print_line(f"switchtower {endpoints.version} is listening (pid {endpoints.pid}); Ctrl-C stops it")
    console.print_line(f"  socket  {endpoints.socket}")
    if endpoints.http:
        console.print_line(f"  http    {endpoints.http}")
        if sys.stderr.isatty():  # for the one who sits there, and for no log
            console.print_line(f"  log in  {reached.http or endpoints.http}/?token={endpoints.token}")
    if reached.http:
        console.print_line(f"  others  {reached.http}")
    if endpoints.pi:
        console.print_line(f"  pi      {reached.pi or endpoints.pi}")
    if reached.warning:
        console.print_line(f"warning: {reached.warning}", "yellow")
        console.print_line(f"hint: {reachability.TLS_REMEDY}")
    console.print_line(f'try this in another terminal: {_find_program_name()} run --headless --provider demo "read README.md"')


def _find_program_name() -> str:
    """`tower` where the shell finds it; otherwise the way to the one that runs, as in a fresh clone."""
    from shutil import which

    beside = Path(sys.executable).with_name("tower")
    if which("tower") or not beside.exists():
        return "tower"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
