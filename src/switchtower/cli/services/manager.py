"""The service manager of this machine: writes and removes what it reads, and tells it, when it is there, to take notice."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from switchtower.cli.services import launchd, systemd
from switchtower.cli.services import plan as plans

_COMMAND_TIMEOUT = 60.0


class ServiceCommandResult(Struct, frozen=True):
    """A command for the service manager, and what became of it."""

    command: str
    ran: bool
    problem: str | None = None


class ServiceManager(Protocol):
    kind: str
    program: str
    folder: Path

    def render_files(self, plan: plans.ServicePlan) -> dict[str, bytes]: ...

    def list_installed(self) -> list[Path]: ...

    def build_enable(self, plan: plans.ServicePlan) -> list[list[str]]: ...

    def build_disable(self) -> list[list[str]]: ...

    def build_cleanup(self) -> list[list[str]]: ...

    def format_command(self, arguments: list[str]) -> str: ...

    def build_argv(self, arguments: list[str]) -> list[str]: ...

    def get_state(self) -> str | None: ...


class SystemdManager:
    kind = "systemd"
    program = "systemctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = systemd.locate_systemd_folder(environ)

    def render_files(self, plan: plans.ServicePlan) -> dict[str, bytes]:
        return systemd.render_systemd_units(plan)

    def list_installed(self) -> list[Path]:
        return _list_existing(self.folder, systemd.SYSTEMD_NAMES)

    def build_enable(self, plan: plans.ServicePlan) -> list[list[str]]:
        return systemd.build_systemd_enable(plan)

    def build_disable(self) -> list[list[str]]:
        return systemd.build_systemd_disable([file.name for file in self.list_installed()])

    def build_cleanup(self) -> list[list[str]]:
        return [["daemon-reload"]]

    def format_command(self, arguments: list[str]) -> str:
        return systemd.format_systemctl(arguments)

    def build_argv(self, arguments: list[str]) -> list[str]:
        return [self.program, "--user", *arguments]

    def get_state(self) -> str | None:
        return _read_output(self.build_argv(["is-active", *(file.name for file in self.list_installed())]))


class LaunchdManager:
    kind = "launchd"
    program = "launchctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = launchd.locate_launchd_folder(environ)

    def render_files(self, plan: plans.ServicePlan) -> dict[str, bytes]:
        return launchd.render_launchd_agent(plan)

    def list_installed(self) -> list[Path]:
        return _list_existing(self.folder, launchd.LAUNCHD_NAMES)

    def build_enable(self, plan: plans.ServicePlan) -> list[list[str]]:
        return launchd.build_launchd_enable(self.folder / launchd.AGENT_FILE)

    def build_disable(self) -> list[list[str]]:
        return launchd.build_launchd_disable(self.folder / launchd.AGENT_FILE)

    def build_cleanup(self) -> list[list[str]]:
        return []

    def format_command(self, arguments: list[str]) -> str:
        return launchd.format_launchctl(arguments)

    def build_argv(self, arguments: list[str]) -> list[str]:
        return [self.program, *arguments]

    def get_state(self) -> str | None:
        said = _read_output(self.build_argv(["list", launchd.AGENT_LABEL]))
        return None if said is None else "active" if '"PID"' in said else "inactive"


def get_service_manager(kind: str, environ: Mapping[str, str]) -> ServiceManager:
    return LaunchdManager(environ) if kind == "launchd" else SystemdManager(environ)


def write_files(manager: ServiceManager, plan: plans.ServicePlan) -> list[Path]:
    """Each whole or not at all. What an earlier installation had beyond it is removed."""
    manager.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = manager.render_files(plan)
    for name, content in wanted.items():
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=manager.folder)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        Path(temporary).chmod(0o644)  # as these programs expect them; there is no secret in it
        Path(temporary).replace(manager.folder / name)
    for file in manager.list_installed():
        if file.name not in wanted:
            file.unlink()
    return [manager.folder / name for name in wanted]


def run_commands(manager: ServiceManager, commands: list[list[str]]) -> list[ServiceCommandResult]:
    """One after the other. Where the program is not there, they are only named: a person can run them."""
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
    """What it prints, whatever its exit code; None when it is not there or prints nothing."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return " ".join(dict.fromkeys(ended.stdout.decode(errors="replace").split())) or None


def _list_existing(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists()]
