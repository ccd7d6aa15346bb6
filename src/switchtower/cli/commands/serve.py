"""The daemon in the foreground: `tower serve`, `tower host` as a host that connects to a hub, and `pi-server`, which serves pi at
its port and over stdin and stdout in one process.

The flags are generated from the table of settings.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchtower import config
from switchtower.cli import console
from switchtower.settings.parsers import Setting
from switchtower.transports.descriptors import claim_stdio

if TYPE_CHECKING:
    from switchtower.core import redact
    from switchtower.daemon.home import DaemonEndpoints


def _read_as_setting(setting: Setting) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Returns a callback that parses a flag exactly like the variable and the file."""

    def read(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else setting.parse(text)
        except ValueError as problem:
            raise click.BadParameter(f"{problem}; hint: {setting.remedy}", ctx, parameter) from None

    return read


def add_setting_flags(command: Callable[..., int]) -> Callable[..., int]:
    """Adds a flag for every setting."""
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
    # Objects created at start-up are never garbage; `app.run` enables the collector again when it listens.
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
        if sys.stderr.isatty():  # for the user at the terminal, not for a log
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
    """Returns `tower` if the shell finds it, otherwise the path of the running program, as in a fresh clone."""
    from shutil import which

    beside = Path(sys.executable).with_name("tower")
    if which("tower") or not beside.exists():
        return "tower"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


HUB_VARIABLE = "SERVER_BASE_URL"
"""relay: the variable with the hub's address."""
_LINK_LOGGER = "switchtower.protocols.relay.link"
_OFF_BY_DEFAULT = ("http", "pi")


@click.command()
@click.option("--name", metavar="NAME", help="The same as --host-name.")
@click.option("--rotate-token", is_flag=True, help="Make a new token for this host, say what to do at the hub, and end.")
@add_setting_flags
def host(name: str | None, rotate_token: bool, **flags: Any) -> int:
    """Run the daemon in the foreground as a host: it dials the hub at --hub and keeps dialling, and nobody needs to reach it.

    Sessions of this machine then appear at the hub, and can be started and steered from there. What happens while the hub is
    away is told when it is back. HTTP and pi are off unless asked for; all flags are those of `tower serve`. The hub is --hub,
    or SERVER_BASE_URL, or the setting `hub`.

    \b
    Example:
      tower host --hub https://hub.example --name builder
      tower host --rotate-token
    """
    settings = _load_settings({**flags, "host_name": name or flags["host_name"]}, os.environ)
    if rotate_token:
        return _rotate_token(settings)
    if settings.hub is None:
        raise click.UsageError(
            f"no hub is named; hint: give `--hub https://hub.example`, or set `{HUB_VARIABLE}` or the setting `hub`"
        )
    gc.disable()  # as in `tower serve`

    from switchtower.daemon import app

    def announce(endpoints: "DaemonEndpoints") -> None:
        console.print_line(f"switchtower {endpoints.version} is a host (pid {endpoints.pid}); Ctrl-C stops it")
        console.print_line(f"  socket  {endpoints.socket}")
        for label, url in (("http", endpoints.http), ("pi", endpoints.pi)):
            if url:
                console.print_line(f"  {label:<6}  {url}")
        console.print_line(f"  hub     {settings.hub}, which is being dialled")

    _log_link_to_stderr(settings)
    try:
        return app.run_daemon(settings, announce)
    except app.DaemonStartError as problem:
        console.print_error(str(problem))
        return console.ExitStatus.FAILED


def _load_settings(flags: Mapping[str, object], environ: Mapping[str, str]) -> config.Settings:
    flags = {**flags, "hub": flags.get("hub") or environ.get(HUB_VARIABLE) or None}
    asked = config.load(flags, environ).asked
    return config.load({**flags, **{name: "off" for name in _OFF_BY_DEFAULT if name not in asked}}, environ)


def _log_link_to_stderr(settings: config.Settings) -> None:
    """Prints the link's log on stderr: it shows the user whether the hub was reached, and why not."""
    link = logging.getLogger(_LINK_LOGGER)
    link.setLevel(logging.INFO)
    link.addHandler(_StderrHandler(settings))


class _StderrHandler(logging.Handler):
    def __init__(self, settings: config.Settings) -> None:
        super().__init__()
        self._settings = settings
        self._redactor: redact.Redactor | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._redactor is None:
            from switchtower.core import redact
            from switchtower.daemon import home

            self._redactor = redact.Redactor(known=[home.load_host_identity(self._settings).host_token])
        console.print_line(
            self._redactor.redact_text(record.getMessage()), "yellow" if record.levelno >= logging.WARNING else None
        )


def _rotate_token(settings: config.Settings) -> int:
    from switchtower.daemon import home

    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.rotate_host_token(settings)
    except OSError as problem:
        console.print_error(f"the new token cannot be kept: {problem.strerror}: {problem.filename}", "see who owns that folder")
        return console.ExitStatus.FAILED
    host_id = home.load_host_identity(settings).host_id
    console.print_line(
        f"{host_id} has a new token, which the hub must be told to trust: run `tower hosts rotate {host_id}` there"
    )
    console.print_line("then start this host anew: one that runs still uses the old token", "dim")
    if os.environ.get("HOST_TOKEN"):
        console.print_line("`HOST_TOKEN` is set and goes before it; hint: unset it", "yellow")
    return console.ExitStatus.OK


@click.command()
@add_setting_flags
def pi_server(**flags: Any) -> int:
    """Run the daemon in the foreground and speak the pi protocol, at a port of this machine and over stdin and stdout.

    Ends when its input ends or when it is told to (Ctrl-C, SIGTERM or `tower stop`): clients hear of it, and work under way has
    `--shutdown-timeout` to finish. The port is PI_SERVER_PORT, or that of `--pi`; it must be free.

    \b
    Example:
      PI_SERVER_PORT=4000 pi-server
    """

    try:
        claimed = claim_stdio()  # before any other import that might print
    except OSError:
        console.print_error("stdin or stdout is not open", "connect both, as a pipe does, or use `tower serve`")
        return console.ExitStatus.FAILED

    from switchtower import config

    settings = config.load(flags)
    gc.disable()  # as in `tower serve`

    from switchtower.daemon import app, home
    from switchtower.daemon.pi import StdioDescriptors

    try:
        return app.run_daemon(settings, partial(print_endpoints, settings), stdio=StdioDescriptors(*claimed))
    except app.DaemonStartError as problem:
        if isinstance(problem.__cause__, home.AlreadyRunning):
            console.print_error(problem.__cause__.message, "`tower stdio --protocol pi` talks to it")
        else:
            console.print_error(str(problem))
        return console.ExitStatus.FAILED
