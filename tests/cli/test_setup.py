"""`tower setup`: at a terminal and from a script. The key goes to the provider and nowhere else."""

import stat
import sys
import tomllib
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.terminal import TerminalDriver

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread

KEY = "sk-very-secret-0123456789"


def configure(tower: TowerCommand, server: ModelServer) -> None:
    tower.environment["WORK_KEY"] = KEY
    (tower.home / "config.toml").write_text(
        f'# mine\n[models.work]\nprovider = "openai"\nbase_url = "{server.url}"\nmodel = "scripted"\nkey_env = "WORK_KEY"\n'
    )


def read_config(tower: TowerCommand) -> dict[str, Any]:
    file = tower.home / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return tomllib.loads(file.read_text())


def test_a_script_chooses_tests_and_writes(tower_command: TowerCommand) -> None:
    with run_in_thread([script.reply_text("OK")]) as server:
        configure(tower_command, server)
        ended = tower_command("setup", "--yes", "--provider", "work", "--policy", "auto", "--json")

    assert ended.code == 0, ended.stderr
    assert ended.json == {
        "file": str(tower_command.home / "config.toml"),
        "provider": "work",
        "model": "scripted",
        "policy": "auto",
        "tested": True,
    }
    assert (read_config(tower_command)["provider"], read_config(tower_command)["policy"]) == ("work", "auto")
    assert "model" not in read_config(tower_command), "the entry's own"
    assert (tower_command.home / "config.toml").read_text().startswith("# mine\n") or "# mine" in (
        tower_command.home / "config.toml"
    ).read_text()
    assert "it answers" in ended.stderr
    assert KEY not in ended.stderr + ended.stdout.decode() + (tower_command.home / "config.toml").read_text()
    assert not (tower_command.home / "run").exists(), "no daemon was started for it"


def test_what_was_written_is_what_the_daemon_starts_with(tower_command: TowerCommand) -> None:
    answers = [script.reply_text("OK"), script.reply_text("hello from work")]
    with run_in_thread(answers) as server:
        configure(tower_command, server)
        assert tower_command("setup", "--yes").code == 0

        assert tower_command("run", "--headless", "hi").stdout == b"hello from work\n"


def test_a_key_that_is_refused_writes_nothing(tower_command: TowerCommand) -> None:
    with run_in_thread([script.ScriptedRefusal(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")]) as server:
        configure(tower_command, server)
        before = (tower_command.home / "config.toml").read_text()
        ended = tower_command("setup", "--yes", "--provider", "work", "--json")

    assert (ended.code, ended.stdout) == (1, b"")
    assert "API key refused; hint: check `WORK_KEY`" in ended.stderr
    assert "`--no-verify`" in ended.stderr
    assert (tower_command.home / "config.toml").read_text() == before
    assert KEY not in ended.stderr


def test_without_a_test_nobody_is_called(tower_command: TowerCommand) -> None:
    def refuse(_: script.ReceivedRequest) -> script.ScriptedAnswer:
        return script.ScriptedRefusal(404)

    with run_in_thread(refuse) as server:
        configure(tower_command, server)
        ended = tower_command("setup", "--yes", "--provider", "work", "--model", "other", "--no-verify", "--json")
        assert all(not received.dialect for received in server.requests)

    assert (ended.code, ended.json["tested"]) == (0, False)
    assert read_config(tower_command)["model"] == "other"


def test_with_nothing_found_it_is_the_demo(tower_command: TowerCommand) -> None:
    ended = tower_command("setup", "--yes", "--provider", "demo")

    assert ended.code == 0
    assert read_config(tower_command) == {"policy": "ask"}, "a key that is set later counts"
    assert "not usable yet: anthropic, " in ended.stderr


def test_a_provider_that_cannot_be_used_says_what_it_lacks(tower_command: TowerCommand) -> None:
    ended = tower_command("setup", "--provider", "openai", "--yes")
    unknown = tower_command("setup", "--provider", "nonesuch", "--yes")

    assert (ended.code, unknown.code) == (1, 1)
    lack = "`OPENAI_API_KEY` is not set; hint: set it in your shell, or run `tower login openai`"
    assert ended.stderr == f"tower: `openai` cannot be used: {lack}\n"
    assert unknown.stderr.startswith("tower: `nonesuch` was not found; hint: use one of ")
    assert not (tower_command.home / "config.toml").exists()


@pytest.mark.parametrize("arguments", [[], ["--policy", "some"], ["--provider", ""], ["--no-verify"]])
def test_without_a_terminal_or_with_nonsense_it_is_wrong_usage(tower_command: TowerCommand, arguments: list[str]) -> None:
    ended = tower_command("setup", *arguments)

    assert ended.code == 64
    assert "hint: " in ended.stderr
    assert not (tower_command.home / "config.toml").exists()


def test_a_file_that_cannot_be_read_is_said_before_anything_is_asked(tower_command: TowerCommand) -> None:
    (tower_command.home / "config.toml").write_text("polcy = 1\n")

    ended = tower_command("setup", "--yes")

    assert ended.code == 1
    assert "did you mean `policy`?" in ended.stderr


def test_a_variable_that_goes_before_the_file_is_named(tower_command: TowerCommand) -> None:
    ended = tower_command("setup", "--yes", "--provider", "demo", TOWER_POLICY="auto")

    assert "`TOWER_POLICY` is set, and goes before the file" in ended.stderr


# At the terminal


def test_questions_are_answered_by_name_by_number_or_by_enter(tower_command: TowerCommand) -> None:
    with run_in_thread([script.reply_text("OK")]) as server:
        configure(tower_command, server)
        terminal = TerminalDriver(tower_command, "setup", NO_COLOR="1")
        terminal.wait_for("provider [work] (s skips the set-up) ")
        assert "in the configuration file" in terminal.shown
        terminal.type("1")
        terminal.wait_for("model [scripted] (s skips the set-up) ")
        terminal.type("")
        terminal.wait_for("policy [ask] (s skips the set-up) ")
        assert "it asks nobody about anything" in terminal.shown
        terminal.type("whatever")
        terminal.wait_for("it is none of read-only, ask, auto, yolo")
        terminal.type("auto")
        assert terminal.end() == 0

    assert (read_config(tower_command)["provider"], read_config(tower_command)["policy"]) == ("work", "auto")
    assert KEY not in terminal.shown


def test_a_key_that_is_refused_can_be_tried_again(tower_command: TowerCommand) -> None:
    with run_in_thread([script.ScriptedRefusal(401, "no", code="invalid_api_key"), script.reply_text("OK")]) as server:
        configure(tower_command, server)
        terminal = TerminalDriver(
            tower_command, "setup", "--provider", "work", "--model", "scripted", "--policy", "ask", NO_COLOR="1"
        )
        terminal.wait_for("choose anew [C] ")
        assert "API key refused" in terminal.shown
        assert "provider" not in read_config_or_empty(tower_command)
        terminal.type("t")
        assert terminal.end() == 0

    assert read_config(tower_command)["provider"] == "work"
    assert "it answers" in terminal.shown


def read_config_or_empty(tower: TowerCommand) -> dict[str, Any]:
    return tomllib.loads((tower.home / "config.toml").read_text())


def test_a_failed_test_can_be_passed_over_or_another_chosen(tower_command: TowerCommand) -> None:
    refusal = script.ScriptedRefusal(401, "no", code="invalid_api_key")
    with run_in_thread([refusal, refusal]) as server:
        configure(tower_command, server)
        terminal = TerminalDriver(
            tower_command, "setup", "--provider", "work", "--model", "scripted", "--policy", "ask", NO_COLOR="1"
        )
        terminal.wait_for("choose anew [C] ")
        terminal.type("")
        terminal.wait_for("provider [work] (s skips the set-up) ")
        terminal.type("work")
        terminal.wait_for("model [scripted] (s skips the set-up) ")
        terminal.type("")
        terminal.wait_for("choose anew [C] ", times=2)
        terminal.type("w")
        assert terminal.end() == 0

    assert read_config(tower_command)["provider"] == "work"


def test_it_can_be_skipped_and_that_is_remembered(tower_command: TowerCommand) -> None:
    terminal = TerminalDriver(tower_command, "setup", NO_COLOR="1")
    terminal.wait_for("(s skips the set-up) ")
    terminal.type("s")

    assert terminal.end() == 0
    assert read_config(tower_command) == {}
    assert "skipped; hint: `tower setup` begins it again" in terminal.shown


@pytest.mark.parametrize("leave", ["interrupt", "end"])
def test_who_leaves_changes_nothing(tower_command: TowerCommand, leave: str) -> None:
    terminal = TerminalDriver(tower_command, "setup", NO_COLOR="1")
    terminal.wait_for("(s skips the set-up) ")
    if leave == "interrupt":
        terminal.interrupt()
    else:
        terminal.press(b"\x04")

    assert terminal.end() == 2
    assert "nothing was changed" in terminal.shown
    assert not (tower_command.home / "config.toml").exists()


def test_yes_at_a_terminal_asks_nothing(tower_command: TowerCommand) -> None:
    terminal = TerminalDriver(tower_command, "setup", "--yes", "--provider", "demo", NO_COLOR="1")

    assert terminal.end() == 0
    assert "provider" not in read_config(tower_command)


class _FirstStartRun:
    """What opens the terminal UI, up to there."""

    def __init__(self, tower: TowerCommand) -> None:
        self.folder, self.effective_environment = tower.folder, tower.environment

    def build_command(self) -> list[str]:
        program = (
            "import sys; from switchtower import config; from switchtower.cli.commands import setup;"
            "sys.exit(setup.run_first_setup(config.load()))"
        )
        return [sys.executable, "-P", "-c", program]


def test_a_first_start_asks_once_and_never_again(tower_command: TowerCommand) -> None:
    terminal = TerminalDriver(_FirstStartRun(tower_command), NO_COLOR="1")
    terminal.wait_for("this is the first start here")
    terminal.wait_for("(s skips the set-up) ")
    terminal.type("s")
    assert terminal.end() == 0

    again = TerminalDriver(_FirstStartRun(tower_command), NO_COLOR="1")

    assert (again.end(), again.shown) == (0, "")
