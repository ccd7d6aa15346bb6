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
    from switchtower.daemon.home import Endpoints

HUB_VARIABLE = "SERVER_BASE_URL"
"""relay: where a host finds its hub."""
_LINK = "switchtower.protocols.relay.link"
_OFF_UNLESS_ASKED = ("http", "pi")


@click.command()
@click.option("--name", metavar="NAME", help="The same as --host-name.")
@click.option("--rotate-token", is_flag=True, help="Make a new token for this host, say what to do at the hub, and end.")
@serve.with_flags
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
    settings = _settings({**flags, "host_name": name or flags["host_name"]}, os.environ)
    if rotate_token:
        return _rotate(settings)
    if settings.hub is None:
        raise click.UsageError(
            f"no hub is named; hint: give `--hub https://hub.example`, or set `{HUB_VARIABLE}` or the setting `hub`"
        )
    gc.disable()  # as in `tower serve`

    from switchtower.daemon import app

    def announce(endpoints: "Endpoints") -> None:
        console.say(f"switchtower {endpoints.version} is a host (pid {endpoints.pid}); Ctrl-C stops it")
        console.say(f"  socket  {endpoints.socket}")
        for label, url in (("http", endpoints.http), ("pi", endpoints.pi)):
            if url:
                console.say(f"  {label:<6}  {url}")
        console.say(f"  hub     {settings.hub}, which is being dialled")

    _tell_of_the_link(settings)
    try:
        return app.run(settings, announce)
    except app.CannotStart as problem:
        console.fail(str(problem))
        return console.Exit.FAILED


def _settings(flags: Mapping[str, object], environ: Mapping[str, str]) -> config.Settings:
    flags = {**flags, "hub": flags.get("hub") or environ.get(HUB_VARIABLE) or None}
    asked = config.load(flags, environ).asked
    return config.load({**flags, **{name: "off" for name in _OFF_UNLESS_ASKED if name not in asked}}, environ)


def _tell_of_the_link(settings: config.Settings) -> None:
    """What the link logs is what the person in front wants to know: whether the hub was reached, and why not."""
    link = logging.getLogger(_LINK)
    link.setLevel(logging.INFO)
    link.addHandler(_OnStderr(settings))


class _OnStderr(logging.Handler):
    def __init__(self, settings: config.Settings) -> None:
        super().__init__()
        self._settings = settings
        self._redactor: redact.Redactor | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._redactor is None:
            from switchtower.core import redact
            from switchtower.daemon import host_identity

            self._redactor = redact.Redactor(known=[host_identity.identity(self._settings).host_token])
        console.say(self._redactor.text(record.getMessage()), "yellow" if record.levelno >= logging.WARNING else None)


def _rotate(settings: config.Settings) -> int:
    from switchtower.daemon import host_identity

    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        host_identity.rotate(settings)
    except OSError as problem:
        console.fail(f"the new token cannot be kept: {problem.strerror}: {problem.filename}", "see who owns that folder")
        return console.Exit.FAILED
    host_id = host_identity.identity(settings).host_id
    console.say(f"{host_id} has a new token, which the hub must be told to trust: run `tower hosts rotate {host_id}` there")
    console.say("then start this host anew: one that runs still uses the old token", "dim")
    if os.environ.get("HOST_TOKEN"):
        console.say("`HOST_TOKEN` is set and goes before it; hint: unset it", "yellow")
    return console.Exit.OK
