"""What `tower run` asks for: the flags, and the settings where there is no flag."""

from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import ScriptedDaemon, make_refusal


def get_start_request(tower: TowerCommand, scripted: ScriptedDaemon, *flags: str, **environment: str) -> dict[str, Any]:
    """The request for the session, without what every run says."""
    scripted.answers["start_session"] = make_refusal("INVALID_REQUEST")
    assert tower("run", "--headless", "x", *flags, **{"TOWER_PROVIDER": "auto", **environment}).code == 1
    [wish] = scripted.list_requests("start_session")
    assert wish.pop("repo")["rootPath"] == str(tower.folder.resolve())
    assert (wish.pop("mode"), wish.pop("metadata")) == ("headless", {"source": "cli"})
    return wish


USUAL = {"provider": "auto", "sandboxProvider": "auto"}


def test_without_flags_everything_is_left_to_the_daemon(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    assert get_start_request(tower_command, scripted_daemon) == USUAL


def test_each_flag_is_a_field_of_the_request(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    flags = "--provider ollama --model qwen --policy auto --sandbox bubblewrap --worktree --thinking high --preset review"
    limits = "--max-turns 3 --max-tokens 4000 --max-cost 0.5 --max-minutes 2"

    assert get_start_request(tower_command, scripted_daemon, *flags.split(), *limits.split()) == {
        "provider": "ollama",
        "model": "qwen",
        "policy": "auto",
        "sandboxProvider": "bubblewrap",
        "worktree": True,
        "preset": "review",
        "thinking": "high",
        "limits": {"maxTurns": 3, "maxTokens": 4000, "maxCost": 0.5, "maxMinutes": 2.0},
    }


@pytest.mark.parametrize(
    ("flags", "settings", "differs"),
    [
        ([], {"TOWER_POLICY": "read-only"}, {"policy": "read-only"}),
        ([], {"TOWER_POLICY": "ask"}, {}),
        (["--policy", "ask"], {"TOWER_POLICY": "read-only"}, {"policy": "ask"}),
        ([], {"TOWER_SANDBOX": "bubblewrap"}, {}),
        (["--sandbox", "local"], {"TOWER_SANDBOX": "bubblewrap"}, {"sandboxProvider": "local"}),
        ([], {"TOWER_PROVIDER": "openai", "TOWER_MODEL": "gpt"}, {"provider": "openai", "model": "gpt"}),
        (["--provider", "demo"], {"TOWER_PROVIDER": "openai", "TOWER_MODEL": "gpt"}, {"provider": "demo"}),
        (["--model", "o"], {"TOWER_PROVIDER": "openai", "TOWER_MODEL": "gpt"}, {"provider": "openai", "model": "o"}),
        ([], {"TOWER_MODEL": "gpt"}, {}),
        (["--preset", "p"], {"TOWER_PROVIDER": "openai", "TOWER_MODEL": "gpt"}, {"preset": "p"}),
        (["--preset", "p", "--model", "o"], {"TOWER_PROVIDER": "openai", "TOWER_MODEL": "g"}, {"preset": "p", "model": "o"}),
        (["--preset", "p"], {"TOWER_POLICY": "auto"}, {"preset": "p"}),
        (["--preset", "p"], {"TOWER_POLICY": "read-only"}, {"preset": "p", "policy": "read-only"}),
    ],
)
def test_a_setting_counts_where_there_is_no_flag(
    tower_command: TowerCommand,
    scripted_daemon: ScriptedDaemon,
    flags: list[str],
    settings: dict[str, str],
    differs: dict[str, Any],
) -> None:
    assert get_start_request(tower_command, scripted_daemon, *flags, **settings) == {**USUAL, **differs}
