"""systemd's user units as text, and the commands that make it take notice of them. Runs nothing."""

from collections.abc import Mapping
from pathlib import Path

from switchtower.cli.services import plan as plans

SERVICE = f"{plans.NAME}.service"
SOCKET = f"{plans.NAME}.socket"
NAMES = (SERVICE, SOCKET)


def folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config") / "systemd" / "user"


def files(plan: plans.Plan) -> dict[str, bytes]:
    """By name. With socket activation, systemd listens and starts the daemon when somebody comes."""
    return {SERVICE: _service(plan), SOCKET: _socket(plan)} if plan.socket_activation else {SERVICE: _service(plan)}


def enabling(plan: plans.Plan) -> list[list[str]]:
    return [["daemon-reload"], ["enable", "--now", SOCKET if plan.socket_activation else SERVICE]]


def disabling(installed: list[str]) -> list[list[str]]:
    return [["disable", "--now", *installed]]


def spoken(arguments: list[str]) -> str:
    return " ".join(["systemctl", "--user", *arguments])


def _service(plan: plans.Plan) -> bytes:
    environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in plan.environment.items())
    requires = f"Requires={SOCKET}\nAfter={SOCKET}\n" if plan.socket_activation else ""
    installed = f"Also={SOCKET}" if plan.socket_activation else "WantedBy=default.target"
    return f"""\
# Written by `tower service install`; `tower service uninstall` removes it.
[Unit]
Description=Switchtower, the daemon that holds coding-agent sessions
# A daemon that somebody started by hand has the home until it ends.
StartLimitIntervalSec=0
{requires}
[Service]
Type=exec
ExecStart={" ".join(_quoted(word).replace("$", "$$") for word in plan.argv)}
{environment}# Keys of models, a NAME=VALUE a line; for your eyes only (mode 0600).
EnvironmentFile=-{_specifiers(str(plan.keys_file))}
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


def _socket(plan: plans.Plan) -> bytes:
    return f"""\
# Written by `tower service install --socket-activation`; `tower service uninstall` removes it.
[Unit]
Description=Switchtower's socket

[Socket]
ListenStream={_specifiers(str(plan.socket))}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
""".encode(errors="surrogateescape")


def _quoted(word: str) -> str:
    """As one word, whatever is in it."""
    escaped = _specifiers(word).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")
