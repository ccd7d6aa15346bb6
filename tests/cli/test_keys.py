"""Keys and configuration that change while the daemon runs: `run`, `models` and `doctor` see them at once, and agree."""

import json
import stat
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.terminal import TerminalDriver

from switchtower.testing import model_script as script
from switchtower.testing.model_server import run_in_thread

KEY = "sk-very-secret-0123456789abcdef"
NEEDS_RESTART = "the daemon was started before config.toml changed: run `tower restart`"


def configure(tower: TowerCommand, url: str, *more: str, provider: str = "openai") -> None:
    lines = [
        *more,
        "[models.work]",
        f'provider = "{provider}"',
        f'base_url = "{url}"',
        'model = "m"',
        'key_env = "OPENAI_API_KEY"',
    ]
    (tower.home / "config.toml").write_text("\n".join([*lines, ""]))


def is_usable(tower: TowerCommand, **environment: str) -> dict[str, bool]:
    """What each of the three commands has to say about the model `work`."""
    models = {one["name"]: one for one in tower("models", "--json", **environment).json}
    checks = [one for one in tower("doctor", "--json", **environment).json["checks"] if one["name"] == "models"]
    run = tower("run", "--headless", "--provider", "work", "hi", **environment)
    assert KEY not in json.dumps([models, checks]) + run.stderr
    return {
        "models": models["work"]["usable"],
        "doctor": any(one["detail"].startswith("usable: work") for one in checks),
        "run": run.code == 0,
    }


def test_a_key_that_is_exported_after_the_daemons_start_is_used_at_once_and_again_after_a_restart(
    tower_command: TowerCommand,
) -> None:
    with run_in_thread(lambda _: script.reply_text("hello")) as server:
        configure(tower_command, server.url)
        assert is_usable(tower_command) == {"models": False, "doctor": False, "run": False}
        pid = tower_command.endpoints["pid"]

        assert is_usable(tower_command, OPENAI_API_KEY=KEY) == {"models": True, "doctor": True, "run": True}
        assert tower_command.endpoints["pid"] == pid
        listed = {one["name"]: one["keySource"] for one in tower_command("models", "--json").json}
        assert listed["work"] == "`OPENAI_API_KEY` of your shell", "the daemon keeps it while it lives"
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"

        restarted = tower_command("restart")
        assert restarted.code == 0, restarted.stderr
        assert tower_command.endpoints["pid"] != pid
        assert is_usable(tower_command) == {"models": False, "doctor": False, "run": False}, "it was kept in memory only"
        assert is_usable(tower_command, OPENAI_API_KEY=KEY) == {"models": True, "doctor": True, "run": True}


def test_a_model_that_is_configured_while_the_daemon_runs_can_be_used_and_removed(tower_command: TowerCommand) -> None:
    tower_command.environment["OPENAI_API_KEY"] = KEY
    (tower_command.home / "config.toml").write_text("")
    assert tower_command("run", "--headless", "--provider", "demo", "say: hi").code == 0
    with run_in_thread(lambda _: script.reply_text("hello")) as server:
        configure(tower_command, server.url, 'policy = "read-only"')
        ended = tower_command("run", "--headless", "--json", "hi")
        assert ended.code == 0, ended.stderr
        assert "model work m, policy read-only" in ended.stderr
        (tower_command.home / "config.toml").write_text("")
        refused = tower_command("run", "--headless", "--provider", "work", "hi")
        assert refused.code == 1
        assert "`work`" in refused.stderr
        assert NEEDS_RESTART not in ended.stderr + refused.stderr


def test_what_needs_a_restart_is_said_until_there_was_one(tower_command: TowerCommand) -> None:
    (tower_command.home / "config.toml").write_text("")
    assert tower_command("sessions").code == 0
    (tower_command.home / "config.toml").write_text("max_line_bytes = 70000\n")

    assert NEEDS_RESTART in tower_command("sessions").stderr
    assert any("tower restart" in (one["remedy"] or "") for one in tower_command("doctor", "--json").json["checks"])
    assert tower_command("restart").code == 0
    assert NEEDS_RESTART not in tower_command("sessions").stderr


def test_a_restart_keeps_the_options_of_the_daemon_and_its_sessions(tower_command: TowerCommand, line_with: Any) -> None:
    daemon = tower_command.start("serve", "--policy", "read-only", "--output-limit-bytes", "4096")
    line_with(daemon, "is listening")
    session = tower_command("run", "--headless", "--json", "say: hi").json["sessionId"]

    for _ in range(2):
        assert tower_command("restart").code == 0
        assert tower_command.endpoints["options"] == {"policy": "read-only", "output_limit_bytes": "4096"}

    daemon.communicate(timeout=60)
    shown = tower_command("run", "--headless", "say: hi")
    assert "policy read-only" in shown.stderr
    assert session in [one["sessionId"] for one in tower_command("sessions", "--json").json]


def test_a_restart_is_refused_while_a_run_is_active(tower_command: TowerCommand, line_with: Any) -> None:
    tower_command.environment["TOWER_DEMO_DELAY_MS"] = "200"
    started = tower_command.start("run", "--headless", "count 500")
    line_with(started, "Run started")

    refused = tower_command("restart")
    assert refused.code == 1
    assert "1 active run would end" in refused.stderr
    asked = TerminalDriver(tower_command, "restart")
    asked.wait_for("[y/N] ")
    asked.type("n")
    assert asked.end() == 1
    pid = tower_command.endpoints["pid"]
    assert tower_command("restart", "--force").code == 0
    assert tower_command.endpoints["pid"] != pid
    started.kill()
    started.communicate()


# Logging in


def test_a_key_that_is_logged_in_is_tested_stored_and_used_and_logged_out(tower_command: TowerCommand) -> None:
    with run_in_thread(lambda _: script.reply_text("OK")) as server:
        configure(tower_command, server.url)
        assert tower_command("models").code == 0, "a daemon runs"
        ended = tower_command("login", "work", stdin=f"{KEY}\n".encode())
        assert ended.code == 0, ended.stderr
        assert "stored the key of work in" in ended.stderr
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert stat.S_IMODE((tower_command.home / "keys.json").stat().st_mode) == 0o600
        assert is_usable(tower_command) == {"models": True, "doctor": True, "run": True}
        assert {one["name"]: one["keySource"] for one in tower_command("models", "--json").json}[
            "work"
        ] == "the file of `tower login`"
        assert tower_command("logout", "work").code == 0
        assert is_usable(tower_command) == {"models": False, "doctor": False, "run": False}
        assert tower_command("logout", "work").code == 1
        assert KEY not in ended.stderr + (tower_command.home / "keys.json").read_text()


def test_a_key_that_the_provider_refuses_is_not_stored(tower_command: TowerCommand) -> None:
    with run_in_thread(lambda _: script.ScriptedRefusal(401, "wrong key")) as server:
        configure(tower_command, server.url)
        ended = tower_command("login", "work", stdin=KEY.encode())
    assert ended.code == 1
    assert KEY not in ended.stderr
    assert not (tower_command.home / "keys.json").exists()
    assert tower_command("login", "work", "--no-verify", stdin=KEY.encode()).code == 0


@pytest.mark.parametrize("given", [b"", b" \n", b"two words", b"a\nb", b"\xff\xfe", b"k" * 20_000])
def test_what_is_no_key_is_refused_and_not_repeated(tower_command: TowerCommand, given: bytes) -> None:
    ended = tower_command("login", "openai", "--no-verify", stdin=given)

    assert ended.code == 64
    assert not given.strip() or given.decode(errors="replace") not in ended.stderr
    assert not (tower_command.home / "keys.json").exists()


def test_a_pasted_key_is_not_shown(tower_command: TowerCommand) -> None:
    terminal = TerminalDriver(tower_command, "login", "openai", "--no-verify")
    terminal.wait_for("(not shown): ")
    terminal.type(KEY)
    assert terminal.end() == 0
    assert KEY not in terminal.shown


def test_an_unknown_provider_cannot_be_logged_in_to(tower_command: TowerCommand) -> None:
    assert tower_command("login", "nonesuch", stdin=KEY.encode()).code == 1
    assert tower_command("login", "demo", stdin=KEY.encode()).code == 1


# The demo of an earlier set-up


def test_the_doctor_warns_of_a_pinned_demo_beside_a_usable_key(tower_command: TowerCommand) -> None:
    (tower_command.home / "config.toml").write_text('provider = "demo"\n')

    checks = tower_command("doctor", "--json", OPENAI_API_KEY=KEY).json["checks"]

    assert [one["remedy"] for one in checks if "is not used" in one["detail"]] == [
        "`tower config unset provider` lets the first usable model answer"
    ]


def test_choosing_the_demo_in_the_set_up_pins_nothing(tower_command: TowerCommand) -> None:
    assert tower_command("setup", "--yes", "--provider", "demo").code == 0

    assert "provider" not in (tower_command.home / "config.toml").read_text()


def test_the_set_up_takes_a_pasted_key(tower_command: TowerCommand) -> None:
    with run_in_thread(lambda _: script.reply_text("OK")) as server:
        configure(tower_command, server.url)
        terminal = TerminalDriver(tower_command, "setup")
        terminal.wait_for("(s skips the set-up) ")
        terminal.type("work")
        terminal.wait_for("(not shown): ")
        terminal.type(KEY)
        terminal.wait_for("(s skips the set-up) ", times=2)
        terminal.type("")
        terminal.wait_for("(s skips the set-up) ", times=3)
        terminal.type("")
        assert terminal.end() == 0
        assert KEY not in terminal.shown
        assert is_usable(tower_command) == {"models": True, "doctor": True, "run": True}
