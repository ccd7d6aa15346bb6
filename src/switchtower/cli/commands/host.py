"""`tower host`: the daemon in the foreground as a host, which dials a hub and can be worked on from there."""

import gc
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from switchtower import config
from switchtower.cli import console
from switchtower.cli.commands import serve

if TYPE_CHECKING:
    from switchtower.core import redact
    from switchtower.daemon.home import DaemonEndpoints

HUB_VARIABLE = "SERVER_BASE_URL"
"""relay: where a host finds its hub."""
_LINK_LOGGER = "switchtower.protocols.relay.link"
_OFF_BY_DEFAULT = ("http", "pi")


@click.command()
@click.option("--name", metavar="NAME", help="The same as --host-name.")
@click.option("--rotate-token", is_flag=True, help="Make a new token for this host, say what to do at the hub, and end.")
@serve.add_setting_flags
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
    """What the link logs is what the person in front wants to know: whether the hub was reached, and why not."""
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
            from switchtower.daemon import host_identity

            self._redactor = redact.Redactor(known=[host_identity.load_host_identity(self._settings).host_token])
        console.print_line(
            self._redactor.redact_text(record.getMessage()), "yellow" if record.levelno >= logging.WARNING else None
        )


def _rotate_token(settings: config.Settings) -> int:
    from switchtower.daemon import host_identity

    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        host_identity.rotate_host_token(settings)
    except OSError as problem:
        console.print_error(f"the new token cannot be kept: {problem.strerror}: {problem.filename}", "see who owns that folder")
        return console.ExitStatus.FAILED
    host_id = host_identity.load_host_identity(settings).host_id
    console.print_line(
        f"{host_id} has a new token, which the hub must be told to trust: run `tower hosts rotate {host_id}` there"
    )
    console.print_line("then start this host anew: one that runs still uses the old token", "dim")
    if os.environ.get("HOST_TOKEN"):
        console.print_line("`HOST_TOKEN` is set and goes before it; hint: unset it", "yellow")
    return console.ExitStatus.OK
