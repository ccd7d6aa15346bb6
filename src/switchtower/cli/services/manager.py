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

_PATIENCE = 60.0


class Told(Struct, frozen=True):
    """A command for the service manager, and what became of it."""

    command: str
    ran: bool
    problem: str | None = None


class Manager(Protocol):
    kind: str
    program: str
    folder: Path

    def files(self, plan: plans.Plan) -> dict[str, bytes]: ...

    def installed(self) -> list[Path]: ...

    def enabling(self, plan: plans.Plan) -> list[list[str]]: ...

    def disabling(self) -> list[list[str]]: ...

    def after_removal(self) -> list[list[str]]: ...

    def spoken(self, arguments: list[str]) -> str: ...

    def argv(self, arguments: list[str]) -> list[str]: ...

    def state(self) -> str | None: ...


class Systemd:
    kind = "systemd"
    program = "systemctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = systemd.folder(environ)

    def files(self, plan: plans.Plan) -> dict[str, bytes]:
        return systemd.files(plan)

    def installed(self) -> list[Path]:
        return _there(self.folder, systemd.NAMES)

    def enabling(self, plan: plans.Plan) -> list[list[str]]:
        return systemd.enabling(plan)

    def disabling(self) -> list[list[str]]:
        return systemd.disabling([file.name for file in self.installed()])

    def after_removal(self) -> list[list[str]]:
        return [["daemon-reload"]]

    def spoken(self, arguments: list[str]) -> str:
        return systemd.spoken(arguments)

    def argv(self, arguments: list[str]) -> list[str]:
        return [self.program, "--user", *arguments]

    def state(self) -> str | None:
        return _said(self.argv(["is-active", *(file.name for file in self.installed())]))


class Launchd:
    kind = "launchd"
    program = "launchctl"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = launchd.folder(environ)

    def files(self, plan: plans.Plan) -> dict[str, bytes]:
        return launchd.files(plan)

    def installed(self) -> list[Path]:
        return _there(self.folder, launchd.NAMES)

    def enabling(self, plan: plans.Plan) -> list[list[str]]:
        return launchd.enabling(self.folder / launchd.FILE)

    def disabling(self) -> list[list[str]]:
        return launchd.disabling(self.folder / launchd.FILE)

    def after_removal(self) -> list[list[str]]:
        return []

    def spoken(self, arguments: list[str]) -> str:
        return launchd.spoken(arguments)

    def argv(self, arguments: list[str]) -> list[str]:
        return [self.program, *arguments]

    def state(self) -> str | None:
        said = _said(self.argv(["list", launchd.LABEL]))
        return None if said is None else "active" if '"PID"' in said else "inactive"


def of(kind: str, environ: Mapping[str, str]) -> Manager:
    return Launchd(environ) if kind == "launchd" else Systemd(environ)


def write(manager: Manager, plan: plans.Plan) -> list[Path]:
    """Each whole or not at all. What an earlier installation had beyond it is removed."""
    manager.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = manager.files(plan)
    for name, content in wanted.items():
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=manager.folder)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        Path(temporary).chmod(0o644)  # as these programs expect them; there is no secret in it
        Path(temporary).replace(manager.folder / name)
    for file in manager.installed():
        if file.name not in wanted:
            file.unlink()
    return [manager.folder / name for name in wanted]


def tell(manager: Manager, commands: list[list[str]]) -> list[Told]:
    """One after the other. Where the program is not there, they are only named: a person can run them."""
    if shutil.which(manager.program) is None:
        return [Told(manager.spoken(command), ran=False) for command in commands]
    told: list[Told] = []
    for command in commands:
        problem = _run(manager.argv(command))
        told.append(Told(manager.spoken(command), ran=True, problem=problem))
        if problem is not None:
            break
    return told


def _run(argv: list[str]) -> str | None:
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as problem:
        return getattr(problem, "strerror", None) or f"no end within {_PATIENCE:g} s"
    if ended.returncode == 0:
        return None
    words = " ".join(ended.stderr.decode(errors="replace").split())
    return words[:300] or f"exit code {ended.returncode}"


def _said(argv: list[str]) -> str | None:
    """What it prints, whatever its exit code; None when it is not there or prints nothing."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return " ".join(dict.fromkeys(ended.stdout.decode(errors="replace").split())) or None


def _there(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists()]
