"""launchd's agent as a property list, and the commands that load it. Runs nothing."""

import plistlib
from collections.abc import Mapping
from pathlib import Path

from switchtower.cli.services import plan as plans

LABEL = f"dev.{plans.NAME}.daemon"
FILE = f"{LABEL}.plist"
NAMES = (FILE,)


def folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / "Library" / "LaunchAgents"


def files(plan: plans.Plan) -> dict[str, bytes]:
    return {
        FILE: plistlib.dumps(
            {
                "Label": LABEL,
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


def enabling(file: Path) -> list[list[str]]:
    return [["load", "-w", str(file)]]


def disabling(file: Path) -> list[list[str]]:
    return [["unload", "-w", str(file)]]


def spoken(arguments: list[str]) -> str:
    return " ".join(["launchctl", *arguments])
