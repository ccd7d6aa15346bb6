"""systemd's user units as text, and the commands that make it take notice of them. Runs nothing."""

from collections.abc import Mapping
from pathlib import Path

from switchtower.cli.services import plan as plans

SERVICE_UNIT = f"{plans.SERVICE_NAME}.service"
SOCKET_UNIT = f"{plans.SERVICE_NAME}.socket"
SYSTEMD_NAMES = (SERVICE_UNIT, SOCKET_UNIT)


def locate_systemd_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config") / "systemd" / "user"


def render_systemd_units(plan: plans.ServicePlan) -> dict[str, bytes]:
    """By name. With socket activation, systemd listens and starts the daemon when somebody comes."""
    return (
        {SERVICE_UNIT: _render_service_unit(plan), SOCKET_UNIT: _render_socket_unit(plan)}
        if plan.socket_activation
        else {SERVICE_UNIT: _render_service_unit(plan)}
    )


def build_systemd_enable(plan: plans.ServicePlan) -> list[list[str]]:
    return [["daemon-reload"], ["enable", "--now", SOCKET_UNIT if plan.socket_activation else SERVICE_UNIT]]


def build_systemd_disable(installed: list[str]) -> list[list[str]]:
    return [["disable", "--now", *installed]]


def format_systemctl(arguments: list[str]) -> str:
    return " ".join(["systemctl", "--user", *arguments])


def _render_service_unit(plan: plans.ServicePlan) -> bytes:
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


def _render_socket_unit(plan: plans.ServicePlan) -> bytes:
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
    """As one word, whatever is in it."""
    escaped = _escape_specifiers(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escape_specifiers(text: str) -> str:
    return text.replace("%", "%%")
