"""Git's settings in the environment of all that runs start, in a sandbox or not: repositories met by chance run nothing."""

import ast
import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import switchtower
from switchtower.engines.pty import program
from switchtower.tools.processes import commands
from switchtower.tools.sandboxes import launch, sandbox

TIMEOUT = 60
Run = Callable[[str], Coroutine[Any, Any, commands.FinishedCommand]]


@pytest.fixture(autouse=True)
def git_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/.config"))
    (tmp_path / "home/.gitconfig").write_text(
        "[user]\n\tname = T\n\temail = t@example.org\n[init]\n\tdefaultBranch = main\n"
        '[protocol "ext"]\n\tallow = always\n[protocol "file"]\n\tallow = always\n'
    )


@pytest.fixture
def run_command(tmp_path: Path) -> Run:
    async def run(command: str) -> commands.FinishedCommand:
        run_id = f"run_{uuid4().hex}"
        async with asyncio.timeout(TIMEOUT):
            finished = await commands.run_command(command, cwd=str(tmp_path / "work"), run_id=run_id, timeout_s=TIMEOUT)
            await commands.end_run(run_id)
        return finished

    return run


def write_evil_program(folder: Path) -> Path:
    path = folder / "evil.sh"
    path.write_text(f"#!/bin/sh\ntouch '{folder}/mark'\n")
    path.chmod(0o755)
    return path


BARE = (
    "mkdir -p evil/objects evil/refs && echo 'ref: refs/heads/main' > evil/HEAD &&"
    " printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = {}\\n' > evil/config"
)
HIJACKS = {
    "a bare repository in a folder": (BARE, "cd evil && git status"),
    "a repository's fsmonitor": ("git init -q && git config core.fsmonitor {}", "git status"),
    "a nested repository's fsmonitor": ("git init -q n && git -C n config core.fsmonitor {}", "git -C n status"),
    "an ext transport": ("true", "git ls-remote 'ext::{}'"),
    "an ext transport that the repository allows": (
        "git init -q && git config protocol.ext.allow always && git remote add far 'ext::{}'",
        "git fetch far",
    ),
}


@pytest.mark.parametrize("name", HIJACKS)
async def test_a_repository_that_is_met_by_chance_runs_nothing(name: str, tmp_path: Path, run_command: Run) -> None:
    program_file = write_evil_program(tmp_path)
    mark = tmp_path / "mark"
    setup, command = (words.format(program_file) for words in HIJACKS[name])
    subprocess.run(["bash", "-c", setup], cwd=tmp_path / "work", check=True)
    subprocess.run(["bash", "-c", command], cwd=tmp_path / "work", capture_output=True, check=False)
    assert mark.exists(), "it does not work without the settings either"
    mark.unlink()

    await run_command(command)

    assert not mark.exists()


async def test_ordinary_use_of_git_is_not_affected(tmp_path: Path, run_command: Run) -> None:
    finished = await run_command(
        "set -e; git init -q a; cd a; git commit -q --allow-empty -m one; git status --porcelain; cd ..;"
        " git clone -q --bare a b.git; git --git-dir=b.git log --format=%s; GIT_DIR=b.git git log --format=%s;"
        " git clone -q b.git c; cd c; git commit -q --allow-empty -m two; git push -q; git gc -q; git fetch -q;"
        " git --git-dir=../b.git log -1 --format=%s; git submodule --quiet add ../b.git s; git submodule status >/dev/null;"
        " git worktree add -q ../w; git -C ../w log -1 --format=%s; git -c safe.bareRepository=all -C ../b.git log -1 --format=%s"
    )

    assert (finished.exit_code, finished.output) == (0, "one\none\ntwo\ntwo\ntwo\n")


async def test_settings_that_the_daemon_was_given_stay(run_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "tower.test")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "mine")
    monkeypatch.setenv("GIT_CONFIG_KEY_1", "SAFE.bareRepository")
    monkeypatch.setenv("GIT_CONFIG_VALUE_1", "all")

    finished = await run_command(
        "git config tower.test; git config safe.bareRepository; git config core.fsmonitor; git config -l | wc -l"
    )

    assert finished.output.split()[:3] == ["mine", "all", "false"]


@pytest.mark.parametrize("count", ["", "x", "-1", "99999999999999", "²", "3"])
def test_a_number_that_git_would_refuse_is_replaced(count: str) -> None:
    given = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}

    added = launch.add_overrides(given)

    shown = subprocess.run(["git", "config", "--list"], env={**os.environ, **added}, capture_output=True, text=True, check=True)
    for key, value in launch.OVERRIDES.items():
        assert f"{key.lower()}={value}" in shown.stdout.lower()


async def test_a_command_that_brings_its_own_environment_has_them_too(tmp_path: Path) -> None:
    given = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    finished = await commands.run_command(
        ["git", "config", "safe.bareRepository"], cwd=str(tmp_path), run_id="run_env", timeout_s=TIMEOUT, environment=given
    )

    assert finished.output == "explicit\n"


async def test_a_program_in_a_terminal_has_them(tmp_path: Path) -> None:
    shown = b""
    async with asyncio.timeout(TIMEOUT):
        argv = ["git", "config", "core.fsmonitor"]
        async with program.TerminalProgram.start(
            argv, cwd=str(tmp_path), environment=dict(os.environ), run_id="run_pty"
        ) as started:
            while chunk := await started.read():
                shown += chunk

    assert shown.strip() == b"false"


@pytest.mark.skipif(sandbox.probe_sandbox("bubblewrap") is not None, reason="no bubblewrap here")
async def test_a_sandboxed_command_has_them(tmp_path: Path) -> None:
    finished = await commands.run_command(
        ["git", "config", "protocol.ext.allow"],
        cwd=str(tmp_path),
        run_id="run_box",
        timeout_s=TIMEOUT,
        sandbox=sandbox.choose_sandbox("bubblewrap"),
    )

    assert finished.output == "never\n"


def test_what_carries_a_runs_mark_is_started_in_one_place() -> None:
    """A module that marks a process and starts it by itself would start it without the filter and without these settings."""
    source = Path(switchtower.__file__).parent
    starters = []
    for path in source.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {
            f"{call.value.id}.{call.attr}"
            for call in calls
            if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
        }
        if called & {"marks.wrap_with_mark", "orphans.start_kept_child"}:
            starters.append(path.relative_to(source).as_posix())
            assert not called & {"subprocess.Popen", "os.posix_spawn", "asyncio.create_subprocess_exec"}, path
    assert {
        "tools/processes/commands.py",
        "tools/mcp/process.py",
        "engines/pty/program.py",
        "protocols/rep/runtime_process.py",
    } <= set(starters)
