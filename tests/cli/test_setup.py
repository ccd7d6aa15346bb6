"""`tower setup`: at a terminal and from a script. The key goes to the provider and nowhere else."""

import stat
import sys
import tomllib
from typing import Any

import pytest
from tests.cli.terminal import Terminal

from switchtower.testing import model_server_script as script
from switchtower.testing.model_server import ModelServer, in_thread

KEY = "sk-very-secret-0123456789"


def configure(tower: Any, server: ModelServer) -> None:
    tower.environment["WORK_KEY"] = KEY
    (tower.home / "config.toml").write_text(
        f'# mine\n[models.work]\nprovider = "openai"\nbase_url = "{server.url}"\nmodel = "scripted"\nkey_env = "WORK_KEY"\n'
    )


def written(tower: Any) -> dict[str, Any]:
    file = tower.home / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return tomllib.loads(file.read_text())


def test_a_script_chooses_tests_and_writes(tower: Any) -> None:
    with in_thread([script.say("OK")]) as server:
        configure(tower, server)
        ended = tower("setup", "--yes", "--provider", "work", "--policy", "auto", "--json")

    assert ended.code == 0, ended.stderr
    assert ended.json == {
        "file": str(tower.home / "config.toml"),
        "provider": "work",
        "model": "scripted",
        "policy": "auto",
        "tested": True,
    }
    assert (written(tower)["provider"], written(tower)["policy"]) == ("work", "auto")
    assert "model" not in written(tower), "the entry's own"
    assert (tower.home / "config.toml").read_text().startswith("# mine\n") or "# mine" in (tower.home / "config.toml").read_text()
    assert "it answers" in ended.stderr
    assert KEY not in ended.stderr + ended.stdout.decode() + (tower.home / "config.toml").read_text()
    assert not (tower.home / "run").exists(), "no daemon was started for it"


def test_what_was_written_is_what_the_daemon_starts_with(tower: Any) -> None:
    answers = [script.say("OK"), script.say("hello from work")]
    with in_thread(answers) as server:
        configure(tower, server)
        assert tower("setup", "--yes").code == 0

        assert tower("run", "--headless", "hi").stdout == b"hello from work\n"


def test_a_key_that_is_refused_writes_nothing(tower: Any) -> None:
    with in_thread([script.Refusal(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")]) as server:
        configure(tower, server)
        before = (tower.home / "config.toml").read_text()
        ended = tower("setup", "--yes", "--provider", "work", "--json")

    assert (ended.code, ended.stdout) == (1, b"")
    assert "API key refused; hint: check `WORK_KEY`" in ended.stderr
    assert "`--no-test`" in ended.stderr
    assert (tower.home / "config.toml").read_text() == before
    assert KEY not in ended.stderr


def test_without_a_test_nobody_is_called(tower: Any) -> None:
    def refuse(_: script.Received) -> script.Answer:
        return script.Refusal(404)

    with in_thread(refuse) as server:
        configure(tower, server)
        ended = tower("setup", "--yes", "--provider", "work", "--model", "other", "--no-test", "--json")
        assert all(not received.dialect for received in server.requests)

    assert (ended.code, ended.json["tested"]) == (0, False)
    assert written(tower)["model"] == "other"


def test_with_nothing_found_it_is_the_demo(tower: Any) -> None:
    ended = tower("setup", "--yes", "--provider", "demo")

    assert ended.code == 0
    assert written(tower) == {"policy": "ask"}, "a key that is set later counts"
    assert "not usable yet: anthropic, " in ended.stderr


def test_a_provider_that_cannot_be_used_says_what_it_lacks(tower: Any) -> None:
    ended = tower("setup", "--provider", "openai", "--yes")
    unknown = tower("setup", "--provider", "nonesuch", "--yes")

    assert (ended.code, unknown.code) == (1, 1)
    lack = "`OPENAI_API_KEY` is not set; hint: set it in your shell, or run `tower login openai`"
    assert ended.stderr == f"tower: `openai` cannot be used: {lack}\n"
    assert unknown.stderr.startswith("tower: `nonesuch` was not found; hint: use one of ")
    assert not (tower.home / "config.toml").exists()


@pytest.mark.parametrize("arguments", [[], ["--policy", "some"], ["--provider", ""], ["--no-test"]])
def test_without_a_terminal_or_with_nonsense_it_is_wrong_usage(tower: Any, arguments: list[str]) -> None:
    ended = tower("setup", *arguments)

    assert ended.code == 64
    assert "hint: " in ended.stderr
    assert not (tower.home / "config.toml").exists()


def test_a_file_that_cannot_be_read_is_said_before_anything_is_asked(tower: Any) -> None:
    (tower.home / "config.toml").write_text("polcy = 1\n")

    ended = tower("setup", "--yes")

    assert ended.code == 1
    assert "did you mean `policy`?" in ended.stderr


def test_a_variable_that_goes_before_the_file_is_named(tower: Any) -> None:
    ended = tower("setup", "--yes", "--provider", "demo", TOWER_POLICY="auto")

    assert "`TOWER_POLICY` is set, and goes before the file" in ended.stderr


# At the terminal


def test_questions_are_answered_by_name_by_number_or_by_enter(tower: Any) -> None:
    with in_thread([script.say("OK")]) as server:
        configure(tower, server)
        terminal = Terminal(tower, "setup", NO_COLOR="1")
        terminal.until("provider [work] (s skips the set-up) ")
        assert "in the configuration file" in terminal.shown
        terminal.type("1")
        terminal.until("model [scripted] (s skips the set-up) ")
        terminal.type("")
        terminal.until("policy [ask] (s skips the set-up) ")
        assert "it asks nobody about anything" in terminal.shown
        terminal.type("whatever")
        terminal.until("it is none of read-only, ask, auto, yolo")
        terminal.type("auto")
        assert terminal.end() == 0

    assert (written(tower)["provider"], written(tower)["policy"]) == ("work", "auto")
    assert KEY not in terminal.shown


def test_a_key_that_is_refused_can_be_tried_again(tower: Any) -> None:
    with in_thread([script.Refusal(401, "no", code="invalid_api_key"), script.say("OK")]) as server:
        configure(tower, server)
        terminal = Terminal(tower, "setup", "--provider", "work", "--model", "scripted", "--policy", "ask", NO_COLOR="1")
        terminal.until("choose anew [C] ")
        assert "API key refused" in terminal.shown
        assert "provider" not in written_or_empty(tower)
        terminal.type("t")
        assert terminal.end() == 0

    assert written(tower)["provider"] == "work"
    assert "it answers" in terminal.shown


def written_or_empty(tower: Any) -> dict[str, Any]:
    return tomllib.loads((tower.home / "config.toml").read_text())


def test_a_failed_test_can_be_passed_over_or_another_chosen(tower: Any) -> None:
    refusal = script.Refusal(401, "no", code="invalid_api_key")
    with in_thread([refusal, refusal]) as server:
        configure(tower, server)
        terminal = Terminal(tower, "setup", "--provider", "work", "--model", "scripted", "--policy", "ask", NO_COLOR="1")
        terminal.until("choose anew [C] ")
        terminal.type("")
        terminal.until("provider [work] (s skips the set-up) ")
        terminal.type("work")
        terminal.until("model [scripted] (s skips the set-up) ")
        terminal.type("")
        terminal.until("choose anew [C] ", times=2)
        terminal.type("w")
        assert terminal.end() == 0

    assert written(tower)["provider"] == "work"


def test_it_can_be_skipped_and_that_is_remembered(tower: Any) -> None:
    terminal = Terminal(tower, "setup", NO_COLOR="1")
    terminal.until("(s skips the set-up) ")
    terminal.type("s")

    assert terminal.end() == 0
    assert written(tower) == {}
    assert "skipped; hint: `tower setup` begins it again" in terminal.shown


@pytest.mark.parametrize("leave", ["interrupt", "end"])
def test_who_leaves_changes_nothing(tower: Any, leave: str) -> None:
    terminal = Terminal(tower, "setup", NO_COLOR="1")
    terminal.until("(s skips the set-up) ")
    if leave == "interrupt":
        terminal.interrupt()
    else:
        terminal.press(b"\x04")

    assert terminal.end() == 2
    assert "nothing was changed" in terminal.shown
    assert not (tower.home / "config.toml").exists()


def test_yes_at_a_terminal_asks_nothing(tower: Any) -> None:
    terminal = Terminal(tower, "setup", "--yes", "--provider", "demo", NO_COLOR="1")

    assert terminal.end() == 0
    assert "provider" not in written(tower)


class _FirstStart:
    """What opens the terminal UI, up to there."""

    def __init__(self, tower: Any) -> None:
        self.folder, self.effective_environment = tower.folder, tower.environment

    def command(self) -> list[str]:
        program = (
            "import sys; from switchtower import config; from switchtower.cli.commands import setup;"
            "sys.exit(setup.at_first_start(config.load()))"
        )
        return [sys.executable, "-P", "-c", program]


def test_a_first_start_asks_once_and_never_again(tower: Any) -> None:
    terminal = Terminal(_FirstStart(tower), NO_COLOR="1")
    terminal.until("this is the first start here")
    terminal.until("(s skips the set-up) ")
    terminal.type("s")
    assert terminal.end() == 0

    again = Terminal(_FirstStart(tower), NO_COLOR="1")

    assert (again.end(), again.shown) == (0, "")
