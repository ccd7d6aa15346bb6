"""launchd's agent as a property list, and the commands that load it. Runs nothing."""

import plistlib
from collections.abc import Mapping
from pathlib import Path

from switchtower.cli.services import plan as plans

AGENT_LABEL = f"dev.{plans.SERVICE_NAME}.daemon"
AGENT_FILE = f"{AGENT_LABEL}.plist"
LAUNCHD_NAMES = (AGENT_FILE,)


def locate_launchd_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / "Library" / "LaunchAgents"


def render_launchd_agent(plan: plans.ServicePlan) -> dict[str, bytes]:
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
