"""`tower run --headless --approve RULE`, as a CI job uses it: the daemon judges the rule, and a denial ends the run."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.cli.conftest import TowerCommand

from switchtower.testing import model_script as script
from switchtower.testing.model_server import run_in_thread

DENIED, WRONG_USAGE = 3, 64


@pytest.fixture(scope="module")
def tower_command() -> Iterator[TowerCommand]:
    started = TowerCommand()
    subprocess.run(["git", "init", "-q"], cwd=started.folder, check=True)
    (started.folder / "a.txt").write_text("foo\n")
    (started.folder / "Makefile").write_text("test:\n\t@echo tested\n")
    (started.folder / "evil.mk").write_text("test:\n\t@touch PWNED\n")
    yield started
    started.remove()


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("run:make *", "make -f evil.mk test"),
        ("run:make *", "make -fevil.mk test"),
        ("run:git *", "git -c alias.x='!touch PWNED' x"),
        ("run:git *", "git -c core.fsmonitor='touch PWNED' status"),
        ("run:git *", "git grep --open='touch PWNED #' foo"),
        ("run", "touch x; rm -rf x; touch PWNED"),
    ],
)
def test_a_rule_lets_nothing_run_that_it_does_not_name(tower_command: TowerCommand, rule: str, command: str) -> None:
    ended = tower_command("run", "--headless", f"run: {command}", "--approve", rule)

    assert not (tower_command.folder / "PWNED").exists()
    assert ended.code != 0


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("run:make test", "run: make test"),
        ("run:make *", "run: make -j4 test"),
        ("run:git *", "run: git status --short"),
        ("write_file:notes.txt", "write notes.txt: x"),
        ("write", "write notes.txt: y"),
        ("exec", "run: make test"),
    ],
)
def test_a_rule_lets_run_what_it_names(tower_command: TowerCommand, rule: str, text: str) -> None:
    assert tower_command("run", "--headless", text, "--approve", rule).code == 0


HIDDEN = [
    ("run:echo *", 'echo "-----BEGIN PRIVATE KEY-----\n"; touch PWNED; echo "-----END PRIVATE KEY-----"'),
    ("run:make *", 'make test DB_PASSWORD="a1$(touch PWNED)"'),
]


@pytest.mark.parametrize(("rule", "command"), HIDDEN)
def test_what_redaction_would_hide_is_judged_too(tower_command: TowerCommand, rule: str, command: str) -> None:
    """A model server chooses the command: what a person writes is redacted before the demo model reads it."""
    with run_in_thread([script.reply_call("run", command=command), script.reply_text("done")]) as server:
        models = f'[models.fake]\nprovider = "openai"\nmodel = "m"\nbase_url = "{server.url}"\nkey_env = "FAKE_KEY"\n'
        own = TowerCommand()
        try:
            (own.home / "config.toml").write_text(models)
            (own.folder / "Makefile").write_text("test:\n\t@echo tested\n")
            ended = own("run", "--headless", "go", "--provider", "fake", "--approve", rule, FAKE_KEY="sk-test-0123456789abcdefgh")

            assert not (own.folder / "PWNED").exists()
            assert server.requests
            assert ended.code != 0
        finally:
            own.remove()


def test_what_no_rule_names_is_denied(tower_command: TowerCommand) -> None:
    assert tower_command("run", "--headless", "run: make test", "--approve", "write").code == DENIED


def test_always_approves_every_question_and_says_so(tower_command: TowerCommand) -> None:
    ended = tower_command("run", "--headless", "run: touch gone; rm -rf gone", "--approve", "always")

    assert ended.code == 0
    assert "every question of this run is approved" in ended.stderr


def test_a_typo_is_refused_with_a_suggestion(tower_command: TowerCommand) -> None:
    ended = tower_command("run", "--headless", "run: make test", "--approve", "foo:bar")

    assert ended.code == WRONG_USAGE
    assert "no kind or tool is called `foo`; kinds are exec" in ended.stderr
