"""`tower --help` is quick because it loads click and nothing else; each command loads only its own rooms."""

import subprocess
import sys
from pkgutil import walk_packages

import pytest

from switchtower import cli
from switchtower.cli import main

HEAVY = ["asyncio", "msgspec", "uvicorn", "starlette", "picows", "uvloop", "sqlite3", "tomllib", "dataclasses"]
OF_THE_DAEMON = {"uvicorn", "starlette", "picows", "uvloop", "sqlite3"}
OF_THE_AGENT = {
    "pydantic_ai",
    "pydantic",
    "mcp",
    "openai",
    "anthropic",
    "google.genai",
    "httpx",
}
DAEMON_PACKAGES = tuple(
    f"switchtower.{name}"
    for name in (
        "accounts",
        "cluster",
        "daemon",
        "flows",
        "host_services",
        "notifications",
        "runtime",
        "telemetry",
        "web_api",
    )
)
"""Only a process that serves sessions loads these."""
LOCAL_WORK = ("commands", "configuration", "doctor", "flows", "storage")
"""Packages of `cli` that open stores, tools or models in the command's own process."""
COMMANDS = [row.name for row in main.COMMANDS if row.name not in ("serve", "version")]
PROBE = """
import sys
from switchtower.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(",".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def list_loaded_modules(*arguments: str) -> set[str]:
    probe = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
    return set(probe.stderr.splitlines()[-1].split(","))


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",), ("version",)])
def test_help_and_version_load_no_heavy_library(arguments: tuple[str, ...]) -> None:
    assert list_loaded_modules(*arguments).isdisjoint(HEAVY)


def test_help_loads_none_of_our_other_rooms() -> None:
    ours = {name for name in list_loaded_modules("--help") if name.startswith("switchtower")}

    assert ours == {"switchtower", "switchtower.cli", "switchtower.cli.main", "switchtower.cli.console", "switchtower.cli.output"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_client_command_s_help_loads_no_protocol_and_no_daemon(command: str) -> None:
    loaded = list_loaded_modules(command, "--help")

    assert loaded.isdisjoint({"msgspec"} | OF_THE_DAEMON | OF_THE_AGENT)
    assert not {name for name in loaded if name.startswith((*DAEMON_PACKAGES, "switchtower.client"))}
    shown = {name for name in loaded if name.startswith("switchtower.presentation")}
    assert shown <= {"switchtower.presentation", "switchtower.presentation.formats"}


def test_what_a_client_command_needs_is_not_the_daemon_s() -> None:
    modules = [module.name for module in walk_packages(cli.__path__, "switchtower.cli.")]
    needed = [name for name in modules if name.count(".") == 2 or name.split(".")[2] not in LOCAL_WORK]
    probe = f"import sys, {', '.join(needed)}, switchtower.client.client; print(','.join(sys.modules))"
    loaded = set(subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout.split(","))

    assert "switchtower.client.subscription" in loaded
    assert "switchtower.cli.runs.run_watch" in loaded
    assert loaded.isdisjoint(OF_THE_DAEMON | OF_THE_AGENT)
    assert loaded.isdisjoint(DAEMON_PACKAGES)
    assert loaded.isdisjoint({f"switchtower.{package}" for package in ("engines", "models", "tools", "stores")})


def test_the_daemon_s_own_command_line_loads_no_agent_before_it_is_called() -> None:
    assert list_loaded_modules("serve", "--help").isdisjoint(OF_THE_DAEMON | OF_THE_AGENT)
