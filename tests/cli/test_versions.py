"""A client and a daemon of different versions: one line on stderr with a remedy, and nothing of it on stdout."""

import json

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import ScriptedDaemon

from switchtower import __version__

OLDER = "0.0.1"
NOTICE = f"tower: the daemon has version {OLDER} and this program version {__version__}; hint: restart it with `tower restart`"


@pytest.mark.parametrize("command", [("sessions", "--json"), ("inbox", "--json"), ("status",), ("models", "--json")])
def test_a_daemon_of_another_version_is_named_once_on_stderr(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, command: tuple[str, ...]
) -> None:
    scripted_daemon.version = OLDER

    ended = tower_command(*command)

    assert ended.stderr.splitlines().count(NOTICE) == 1
    assert b"restart" not in ended.stdout


def test_json_stays_json(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.version = OLDER

    listed = json.loads(tower_command("sessions", "--json").stdout)

    assert [session["sessionId"] for session in listed] != []


def test_a_daemon_of_the_same_version_is_not_mentioned(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    assert "version" not in tower_command("sessions").stderr


def test_a_command_that_asks_over_http_names_another_version_too(tower_command: TowerCommand) -> None:
    tower_command("sessions")
    endpoints = tower_command.home / "run/endpoints.json"
    endpoints.write_text(json.dumps({**json.loads(endpoints.read_text()), "version": OLDER}))

    ended = tower_command("user", "list", "--json")

    assert ended.stderr.splitlines() == [NOTICE]
    assert ended.json == []


def test_a_version_cannot_steer_the_terminal(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.version = "1\x1b[31m\nx"

    assert r"has version 1\x1b[31m\nx and" in tower_command("sessions").stderr
