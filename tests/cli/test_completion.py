"""`tower completion`: real shells complete commands, options, sessions, models and settings."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand

from switchtower import config
from switchtower.cli import main

PROGRAM = Path(sys.executable).with_name("tower")
TRY = """
eval "$(tower completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_tower_completion tower
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    return InProcessCommand(tmp_path, monkeypatch, capfdbinary, dict(os.environ))


def make_environment(tower: TowerCommand) -> dict[str, str]:
    return {**tower.environment, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}


def complete(tower: TowerCommand, *words: str) -> tuple[list[str], str]:
    """What bash offers for the last word, and what was said beside it."""
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    ended = subprocess.run(
        [bash, "--norc", "-c", TRY, "bash", *words],
        env=make_environment(tower),
        cwd=tower.folder,
        capture_output=True,
        timeout=60,
    )
    return ended.stdout.decode().split(), ended.stderr.decode()


def test_commands_are_completed_in_the_order_of_the_help(tower_command: TowerCommand) -> None:
    assert complete(tower_command, "tower", "jour") == (["journal"], "")
    every, _ = complete(tower_command, "tower", "")
    assert every == [row.name for row in main.COMMANDS]


def test_subcommands_options_and_choices_are_completed(tower_command: TowerCommand) -> None:
    assert complete(tower_command, "tower", "config", "") == (["edit", "get", "path", "set", "show", "unset"], "")
    assert complete(tower_command, "tower", "doctor", "--") == (["--deep", "--json", "--help"], "")
    assert complete(tower_command, "tower", "completion", "") == (["bash", "zsh", "fish"], "")


def test_settings_are_completed_by_name(tower_command: TowerCommand) -> None:
    names = [setting.name for setting in config.SETTINGS if setting.in_file]

    assert complete(tower_command, "tower", "config", "get", "")[0] == names
    assert complete(tower_command, "tower", "config", "set", "log_") == (["log_level"], "")


def test_sessions_and_models_are_those_of_the_daemon_that_runs(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hi").json["sessionId"]

    offered, said = complete(shared_command, "tower", "show", session_id[:-3])

    assert (offered, said) == ([session_id], "")
    assert "last" in complete(shared_command, "tower", "attach", "")[0]
    assert complete(shared_command, "tower", "run", "--provider", "dem") == (["demo"], "")


def test_no_daemon_is_started_for_it(tower_command: TowerCommand) -> None:
    assert complete(tower_command, "tower", "show", "") == ([], "")
    assert not (tower_command.home / "run").exists()


def test_a_command_that_does_not_exist_says_nothing_into_the_prompt(tower_command: TowerCommand) -> None:
    assert complete(tower_command, "tower", "nonsense", "--")[1] == ""


def test_a_broken_configuration_says_nothing_into_the_prompt(tower_command: TowerCommand) -> None:
    (tower_command.home / "config.toml").write_text("[[[")

    assert complete(tower_command, "tower", "show", "") == ([], "")
    (tower_command.home / "config.toml").unlink()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(tower_command: TowerCommand, shell: str) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    script = {
        "zsh": 'autoload -U compinit && compinit -u && eval "$(tower completion zsh)" && print ${_comps[tower]}',
        "fish": "tower completion fish | source; complete -C 'tower jour'",
    }[shell]

    ended = subprocess.run(
        [program, "-c", script], env=make_environment(tower_command), capture_output=True, text=True, timeout=60
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "_tower_completion" in ended.stdout or "journal" in ended.stdout


@pytest.mark.parametrize(
    ("shell", "marks"), [("bash", "complete -o nosort -F"), ("zsh", "#compdef tower"), ("fish", "complete --no-files")]
)
def test_the_script_is_all_that_is_printed(in_process: InProcessCommand, shell: str, marks: str) -> None:
    ended = in_process("completion", shell)

    assert (ended.code, ended.stderr) == (0, "")
    assert marks in ended.text
    assert f"_TOWER_COMPLETE={shell}_complete" in ended.text


def test_another_name_of_the_program_can_be_completed_too(in_process: InProcessCommand) -> None:
    assert "_TM_COMPLETE=bash_complete" in in_process("completion", "bash", "--program", "tm").text


def test_an_unknown_shell_is_a_wrong_command_line(in_process: InProcessCommand) -> None:
    ended = in_process("completion", "csh")

    assert (ended.code, ended.stdout) == (64, b"")


@pytest.mark.parametrize(("shell", "words", "current"), [("zsh", "tower jour", "1"), ("fish", "tower jour", "jour")])
def test_zsh_and_fish_are_told_what_a_word_means(tower_command: TowerCommand, shell: str, words: str, current: str) -> None:
    asked = {
        **make_environment(tower_command),
        "_TOWER_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": current,
    }

    ended = subprocess.run([PROGRAM], env=asked, capture_output=True, text=True, timeout=60)

    help = next(row.help for row in main.COMMANDS if row.name == "journal")
    assert ended.stderr == ""
    assert (
        ended.stdout.split("\n")[:3] == ["plain", "journal", help]
        if shell == "zsh"
        else f"plain,journal\t{help}\n" == ended.stdout
    )


def test_completing_loads_only_what_it_offers_from(tower_command: TowerCommand) -> None:
    probe = "import sys, atexit; atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr))\n"
    probe += "from switchtower.cli.main import main; main(prog_name='tower')"
    asked = {**make_environment(tower_command), "_TOWER_COMPLETE": "bash_complete", "COMP_WORDS": "tower j", "COMP_CWORD": "1"}

    ended = subprocess.run([sys.executable, "-c", probe], env=asked, capture_output=True, text=True, timeout=60)

    assert ended.stdout == "plain,journal\n"
    assert "'switchtower.cli.commands" not in ended.stderr, "no command is loaded to be named"
    assert "'asyncio'" not in ended.stderr
