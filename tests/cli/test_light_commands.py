"""Commands that look after an installation load only what they need: a test in a process of its own proves it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_imports import DAEMON_PACKAGES, OF_THE_AGENT, OF_THE_DAEMON, PROBE

from switchtower.presentation import formats


def list_loaded_modules(home: Path, *arguments: str) -> set[str]:
    environment = {"TOWER_HOME": str(home), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run([sys.executable, "-c", PROBE, *arguments], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode in (0, 1), ended.stderr
    return set(ended.stderr.splitlines()[-1].split(","))


OURS = (*DAEMON_PACKAGES, "switchtower.engines", "switchtower.tools", "switchtower.models")


@pytest.mark.parametrize(
    "arguments",
    [("config", "path"), ("config", "get", "http"), ("config", "show"), ("logs",), ("completion", "bash"), ("mcp", "path")],
    ids=" ".join,
)
def test_a_look_at_settings_or_logs_loads_no_event_loop_and_none_of_the_daemon(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/tower.log").write_text("a line\n")

    loaded = list_loaded_modules(tmp_path, *arguments)

    assert loaded.isdisjoint({"asyncio"} | OF_THE_DAEMON | OF_THE_AGENT)
    assert not {name for name in loaded if name.startswith(OURS)}


@pytest.mark.parametrize("arguments", [("journal", "verify"), ("journal", "stats"), ("backup", "/nowhere/x")], ids=" ".join)
def test_a_look_at_the_journal_loads_no_server_and_no_agent(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    loaded = list_loaded_modules(tmp_path, *arguments)

    assert "sqlite3" in loaded
    assert loaded.isdisjoint((OF_THE_DAEMON - {"sqlite3"}) | OF_THE_AGENT)
    assert not {name for name in loaded if name.startswith(OURS)}


def test_a_service_is_printed_without_the_daemon(tmp_path: Path) -> None:
    loaded = list_loaded_modules(tmp_path, "service", "install", "--print")

    assert loaded.isdisjoint({"asyncio"} | OF_THE_DAEMON | OF_THE_AGENT)


@pytest.mark.parametrize(
    ("count", "spelled"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**3, "5.0 GiB"), (10**18, "909494.7 TiB")]
)
def test_sizes_are_spelled_in_the_largest_unit(count: int, spelled: str) -> None:
    assert formats.format_size(count) == spelled
