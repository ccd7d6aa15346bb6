"""The daemon as a service of systemd or launchd: it renders the unit files, writes or removes them, and runs the service
manager's commands.

Keys are not copied into a unit file; they belong in `service.env` in the configuration folder.
"""

import os
import plistlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Protocol

from msgspec import Struct

from switchtower import config

SERVICE_NAME = "switchtower"
CARRIED_VARIABLES = ("TOWER_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "LANG")
"""Variables that locate folders; every other setting belongs in the configuration file."""
KEYS_FILE = "service.env"
_STOP_MARGIN = 10.0


class ServicePlan(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    environment: dict[str, str]
    keys_file: Path
    socket: Path
    log: Path
    stop_s: int
    """Seconds that the daemon may take to stop."""
    socket_activation: bool = False


def make_service_plan(settings: config.Settings, environ: Mapping[str, str], *, socket_activation: bool = False) -> ServicePlan:
    environment = {name: environ[name] for name in CARRIED_VARIABLES if environ.get(name)}
    if settings.home is not None:
        environment["TOWER_HOME"] = str(settings.home)
    # A service has a short search path by default, on which the programs of sessions would not be found.
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
    """Lists the settings of this shell that the service will not have."""
    return [
        variable
        for setting in config.SETTINGS
        for variable in setting.variables
        if environ.get(variable) and variable not in CARRIED_VARIABLES
    ]


SERVICE_UNIT = f"{SERVICE_NAME}.service"
SOCKET_UNIT = f"{SERVICE_NAME}.socket"
SYSTEMD_NAMES = (SERVICE_UNIT, SOCKET_UNIT)


def locate_systemd_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config") / "systemd" / "user"


def render_systemd_units(plan: ServicePlan) -> dict[str, bytes]:
    """Renders the units by name. With socket activation, systemd listens and starts the daemon at the first connection."""
    return (
        {SERVICE_UNIT: _render_service_unit(plan), SOCKET_UNIT: _render_socket_unit(plan)}
        if plan.socket_activation
        else {SERVICE_UNIT: _render_service_unit(plan)}
    )


def build_systemd_enable(plan: ServicePlan) -> list[list[str]]:
    return [["daemon-reload"], ["enable", "--now", SOCKET_UNIT if plan.socket_activation else SERVICE_UNIT]]


def build_systemd_disable(installed: list[str]) -> list[list[str]]:
    return [["disable", "--now", *installed]]


def format_systemctl(arguments: list[str]) -> str:
    return " ".join(["systemctl", "--user", *arguments])


def _render_service_unit(plan: ServicePlan) -> bytes:
    environment = "".join(f"Environment={_quote_word(f'{name}={value}')}\n" for name, value in plan.environment.items())
    requires = f"Requires={SOCKET_UNIT}\nAfter={SOCKET_UNIT}\n" if plan.socket_activation else ""
    installed = f"Also={SOCKET_UNIT}" if plan.socket_activation else "WantedBy=default.target"
    return f"""\
# Written by `tower service install`; `tower service uninstall` removes it.
[Unit]
Description=Switchtower, the daemon that holds coding-agent sessions
# A daemon that somebody started by hand has the home until it ends.
StartLimitIntervalSec=0
{requires}
[Service]
Type=exec
ExecStart={" ".join(_quote_word(word).replace("$", "$$") for word in plan.argv)}
{environment}# Keys of models, a NAME=VALUE a line; for your eyes only (mode 0600).
EnvironmentFile=-{_escape_specifiers(str(plan.keys_file))}
WorkingDirectory=/
UMask=0077
LimitCORE=0
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec={plan.stop_s}
# Of all sessions together. A process that takes all memory ends alone, and the daemon continues.
TasksMax=4096
MemoryHigh=80%
OOMPolicy=continue

[Install]
{installed}
""".encode(errors="surrogateescape")


def _render_socket_unit(plan: ServicePlan) -> bytes:
    return f"""\
# Written by `tower service install --socket-activation`; `tower service uninstall` removes it.
[Unit]
Description=Switchtower's socket

[Socket]
ListenStream={_escape_specifiers(str(plan.socket))}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
""".encode(errors="surrogateescape")


def _quote_word(word: str) -> str:
    """Quotes any text as one word."""
    escaped = _escape_specifiers(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escape_specifiers(text: str) -> str:
    return text.replace("%", "%%")


AGENT_LABEL = f"dev.{SERVICE_NAME}.daemon"
AGENT_FILE = f"{AGENT_LABEL}.plist"
LAUNCHD_NAMES = (AGENT_FILE,)


def locate_launchd_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / "Library" / "LaunchAgents"


def render_launchd_agent(plan: ServicePlan) -> dict[str, bytes]:
    return {
        AGENT_FILE: plistlib.dumps(
            {
                "Label": AGENT_LABEL,
                "ProgramArguments": [*plan.argv],
                "EnvironmentVariables": plan.environment,
                "WorkingDirectory": "/",
                "Umask": 0o077,
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": plan.stop_s,
                "StandardErrorPath": str(plan.log),
                "StandardOutPath": str(plan.log),
                "ProcessType": "Interactive",
            },
            sort_keys=False,
        )
    }


def build_launchd_enable(file: Path) -> list[list[str]]:
    return [["load", "-w", str(file)]]


def build_launchd_disable(file: Path) -> list[list[str]]:
    return [["unload", "-w", str(file)]]


def format_launchctl(arguments: list[str]) -> str:
    return " ".join(["launchctl", *arguments])


_COMMAND_TIMEOUT = 60.0


class ServiceCommandResult(Struct, frozen=True):
    """A command for the service manager, and its result."""

    command: str
    ran: bool
    problem: str | None = None


class ServiceManager(Protocol):
    kind: str
    program: str
    folder: Path

    def render_files(self, plan: ServicePlan) -> dict[str, bytes]: ...

    def list_installed(self) -> list[Path]: ...

    def build_enable(self, plan: ServicePlan) -> list[list[str]]: ...

    def build_disable(self) -> list[list[str]]: ...

    def build_cleanup(self) -> list[list[str]]: ...

    def format_command(self, arguments: list[str]) -> str: ...

    def build_argv(self, arguments: list[str]) -> list[str]: ...

    def get_state(self) -> str | None: ...


class SystemdManager:
    kind = "systemd"
    program = "systemctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = locate_systemd_folder(environ)

    def render_files(self, plan: ServicePlan) -> dict[str, bytes]:
        return render_systemd_units(plan)

    def list_installed(self) -> list[Path]:
        return _list_existing(self.folder, SYSTEMD_NAMES)

    def build_enable(self, plan: ServicePlan) -> list[list[str]]:
        return build_systemd_enable(plan)

    def build_disable(self) -> list[list[str]]:
        return build_systemd_disable([file.name for file in self.list_installed()])

    def build_cleanup(self) -> list[list[str]]:
        return [["daemon-reload"]]

    def format_command(self, arguments: list[str]) -> str:
        return format_systemctl(arguments)

    def build_argv(self, arguments: list[str]) -> list[str]:
        return [self.program, "--user", *arguments]

    def get_state(self) -> str | None:
        return _read_output(self.build_argv(["is-active", *(file.name for file in self.list_installed())]))


class LaunchdManager:
    kind = "launchd"
    program = "launchctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = locate_launchd_folder(environ)

    def render_files(self, plan: ServicePlan) -> dict[str, bytes]:
        return render_launchd_agent(plan)

    def list_installed(self) -> list[Path]:
        return _list_existing(self.folder, LAUNCHD_NAMES)

    def build_enable(self, plan: ServicePlan) -> list[list[str]]:
        return build_launchd_enable(self.folder / AGENT_FILE)

    def build_disable(self) -> list[list[str]]:
        return build_launchd_disable(self.folder / AGENT_FILE)

    def build_cleanup(self) -> list[list[str]]:
        return []

    def format_command(self, arguments: list[str]) -> str:
        return format_launchctl(arguments)

    def build_argv(self, arguments: list[str]) -> list[str]:
        return [self.program, *arguments]

    def get_state(self) -> str | None:
        said = _read_output(self.build_argv(["list", AGENT_LABEL]))
        return None if said is None else "active" if '"PID"' in said else "inactive"


def get_service_manager(kind: str, environ: Mapping[str, str]) -> ServiceManager:
    return LaunchdManager(environ) if kind == "launchd" else SystemdManager(environ)


def write_files(manager: ServiceManager, plan: ServicePlan) -> list[Path]:
    """Writes each file atomically, and removes files of an earlier installation that are no longer needed."""
    manager.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = manager.render_files(plan)
    for name, content in wanted.items():
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=manager.folder)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        Path(temporary).chmod(0o644)  # the mode that the service managers expect; the files contain no secret
        Path(temporary).replace(manager.folder / name)
    for file in manager.list_installed():
        if file.name not in wanted:
            file.unlink()
    return [manager.folder / name for name in wanted]


def run_commands(manager: ServiceManager, commands: list[list[str]]) -> list[ServiceCommandResult]:
    """Runs the commands in order. Without the service manager it only lists them, so that the user can run them."""
    if shutil.which(manager.program) is None:
        return [ServiceCommandResult(manager.format_command(command), ran=False) for command in commands]
    told: list[ServiceCommandResult] = []
    for command in commands:
        problem = _run_command(manager.build_argv(command))
        told.append(ServiceCommandResult(manager.format_command(command), ran=True, problem=problem))
        if problem is not None:
            break
    return told


def _run_command(argv: list[str]) -> str | None:
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as problem:
        return getattr(problem, "strerror", None) or f"no end within {_COMMAND_TIMEOUT:g} s"
    if ended.returncode == 0:
        return None
    words = " ".join(ended.stderr.decode(errors="replace").split())
    return words[:300] or f"exit code {ended.returncode}"


def _read_output(argv: list[str]) -> str | None:
    """Returns the output, whatever the exit code; None when the program is not installed or prints nothing."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return " ".join(dict.fromkeys(ended.stdout.decode(errors="replace").split())) or None


def _list_existing(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists()]
