"""A client and a daemon of different versions: one line on stderr with a remedy, and nothing of it on stdout."""

import json
from typing import Any

import pytest
from tests.cli.scripted import ScriptedDaemon

from switchtower import __version__

OLDER = "0.0.1"
NOTICE = f"tower: the daemon has version {OLDER} and this program version {__version__}; hint: restart it with `tower restart`"


@pytest.mark.parametrize("command", [("sessions", "--json"), ("inbox", "--json"), ("status",), ("models", "--json")])
def test_a_daemon_of_another_version_is_named_once_on_stderr(
    tower: Any, scripted: ScriptedDaemon, command: tuple[str, ...]
) -> None:
    scripted.version = OLDER

    ended = tower(*command)

    assert ended.stderr.splitlines().count(NOTICE) == 1
    assert b"restart" not in ended.stdout


def test_json_stays_json(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.version = OLDER

    listed = json.loads(tower("sessions", "--json").stdout)

    assert [session["sessionId"] for session in listed] != []


def test_a_daemon_of_the_same_version_is_not_mentioned(tower: Any, scripted: ScriptedDaemon) -> None:
    assert "version" not in tower("sessions").stderr


def test_a_command_that_asks_over_http_names_another_version_too(tower: Any) -> None:
    tower("sessions")
    endpoints = tower.home / "run/endpoints.json"
    endpoints.write_text(json.dumps({**json.loads(endpoints.read_text()), "version": OLDER}))

    ended = tower("user", "list", "--json")

    assert ended.stderr.splitlines() == [NOTICE]
    assert ended.json == []


def test_a_version_cannot_steer_the_terminal(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.version = "1\x1b[31m\nx"

    assert r"has version 1\x1b[31m\nx and" in tower("sessions").stderr
