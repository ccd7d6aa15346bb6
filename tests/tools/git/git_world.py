"""Real git repositories for tests, with none of this machine's configuration, and some that nobody should trust."""

import os
import subprocess
from pathlib import Path

import pytest

HOSTILE = """#!/bin/sh
touch "{ran}"
cat
"""

CONFIGURATION = """
[user]
    name = Tester
    email = tester@example.invalid
[init]
    defaultBranch = main
"""


def isolate_git_configuration(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    home.mkdir(exist_ok=True)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (home / ".gitconfig").write_text(CONFIGURATION)


class GitSandbox:
    """A repository and a way to find out whether anything in it was run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        self.ran = folder / "ran"
        self.script = folder / "hostile.sh"
        self.script.write_text(HOSTILE.format(ran=self.ran))
        self.script.chmod(0o755)
        self.root.mkdir()
        self.run_git("init", "-q")

    def run_git(self, *args: str, cwd: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(["git", *args], cwd=cwd or self.root, check=check, capture_output=True)
        return done.stdout.decode(errors="surrogateescape")

    def write(self, path: str, content: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def commit(self, **files: str) -> None:
        for path, content in files.items():
            self.write(path.replace("__", "/"), content)
        self.run_git("add", "--all", "--force")
        self.run_git("commit", "-q", "--allow-empty", "-m", "a commit")

    def list_subjects(self) -> list[str]:
        return self.run_git("log", "--format=%s").splitlines()
