"""What a service runs and with which environment, from the settings and the shell that installs it. Pure.

Keys are not carried over: a unit file is no place for them. They go into `service.env` in the configuration folder.
"""

import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from msgspec import Struct

from switchtower import config

SERVICE_NAME = "switchtower"
CARRIED_VARIABLES = ("TOWER_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "LANG")
"""Where things are; everything else belongs into the configuration file."""
KEYS_FILE = "service.env"
_STOP_MARGIN = 10.0


class ServicePlan(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    environment: dict[str, str]
    keys_file: Path
    socket: Path
    log: Path
    stop_s: int
    """How long the daemon may take to end."""
    socket_activation: bool = False


def make_service_plan(settings: config.Settings, environ: Mapping[str, str], *, socket_activation: bool = False) -> ServicePlan:
    environment = {name: environ[name] for name in CARRIED_VARIABLES if environ.get(name)}
    if settings.home is not None:
        environment["TOWER_HOME"] = str(settings.home)
    # A service has a short search path of its own, and what sessions run would not be found.
    folders = [folder for folder in environ.get("PATH", "").split(":") if PurePath(folder).is_absolute()]
    if folders:
        environment["PATH"] = ":".join(dict.fromkeys(folders))
    return ServicePlan(
        argv=(sys.executable, "-P", "-m", "switchtower", "serve"),
        environment=environment,
        keys_file=settings.folders.config / KEYS_FILE,
        socket=settings.socket,
        log=settings.log_path,
        stop_s=int(settings.shutdown_timeout + _STOP_MARGIN),
        socket_activation=socket_activation,
    )


def find_dropped_settings(environ: Mapping[str, str]) -> list[str]:
    """Settings of this shell that the service will not have."""
    return [
        variable
        for setting in config.SETTINGS
        for variable in setting.variables
        if environ.get(variable) and variable not in CARRIED_VARIABLES
    ]
