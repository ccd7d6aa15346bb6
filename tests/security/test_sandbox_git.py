"""Git in the sandbox: a corpus of ways to have it run a program for the user afterwards, and everyday work that must not
suffer from the protection."""

import asyncio
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchtower.tools.git import protected_paths
from switchtower.tools.processes import commands
from switchtower.tools.sandboxes import bubblewrap, sandbox

TIMEOUT = 60
WHY_NOT = sandbox.probe_sandbox("bubblewrap")
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")
CORPUS = tomllib.loads((Path(__file__).parent / "corpus/sandbox_git_hijacks.toml").read_text())["hijack"]

Run = Callable[..., Coroutine[Any, Any, commands.FinishedCommand]]


@pytest.fixture
def disk(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Not below `/tmp`: a sandbox has another one there. Without a blank: git would split the attacks' programs at it."""
    base = pytestconfig.rootpath / ".pytest_cache" / "sandbox"
    if base.is_relative_to("/tmp") or " " in str(base):
        base = Path(f"/var/tmp/switchtower-tests-{os.getuid()}")
    folder = base / uuid4().hex[:8]
    (folder / "home").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def git_user(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of git with a home, whose settings allow submodules from the disk."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    # Where a repository is missing, none above it is taken for it.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", f"{disk}:{disk / 'guarded'}:{disk / 'control'}")
    monkeypatch.setenv("HOME", str(disk / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(disk / "home/.config"))
    (disk / "home/.gitconfig").write_text('[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n')
    # Inside, a home below a temporary folder cannot be seen.
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "T")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")


@pytest.fixture
def run_sandboxed() -> Run:
    async def run(command: str, workspace: Path, **options: Any) -> commands.FinishedCommand:
        run_id = f"run_{uuid4().hex}"
        try:
            async with asyncio.timeout(TIMEOUT):
                return await commands.run_command(
                    command,
                    cwd=str(workspace),
                    run_id=run_id,
                    timeout_s=TIMEOUT,
                    grace_s=0.1,
                    sandbox=sandbox.choose_sandbox("bubblewrap"),
                    **options,
                )
        finally:
            commands.kill_marked(run_id)

    return run


def run_outside(command: str, cwd: Path, **variables: str) -> str:
    """As the user does it in a terminal: without a sandbox, and without anything of ours in the environment."""
    done = subprocess.run(["bash", "-c", command], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True)
    return done.stdout + done.stderr


def write_evil_program(workspace: Path) -> str:
    return str(workspace / "evil.sh")


SETUPS = {
    "ordinary": "git init -q && git add . && git commit -q -m first",
    "none": "true",
    "submodule": (
        "git init -q ../sub && git -C ../sub commit -q --allow-empty -m s && git init -q && git add . && git commit -q -m first"
        " && git submodule --quiet add ../sub sub && git commit -q -m second"
    ),
    "linked": "git init -q && git add . && git commit -q -m first && git worktree add -q wt",
    "worktree": (
        "git init -q ../main && git -C ../main commit -q --allow-empty -m first && git -C ../main worktree add -q ../w/x"
        ' && mv ../w/x/.git .git && git -C ../main worktree repair "$PWD" && git add .'
    ),
    "symlink": "git init -q && git add . && git commit -q -m first && mv .git .real && ln -s .real .git",
}


def make_workspace(folder: Path, kind: str, setup: str, mark: Path) -> Path:
    workspace = folder / "work"
    workspace.mkdir(parents=True)
    (workspace / "file").write_text("one\n")
    program = workspace / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    for step in (SETUPS[kind], setup):
        done = subprocess.run(["bash", "-c", step], cwd=workspace, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return workspace


@pytest.mark.parametrize("hijack", CORPUS, ids=lambda one: one["name"])
async def test_no_command_can_have_git_run_a_program_outside(hijack: dict[str, str], disk: Path, run_sandboxed: Run) -> None:
    kind, setup = hijack.get("kind", "ordinary"), hijack.get("setup", "true")
    trigger = hijack.get("trigger", "git status")

    mark = disk / "control-mark"
    control = make_workspace(disk / "control", kind, setup, mark)
    run_outside(hijack["attack"], control, EVIL=write_evil_program(control))
    mark.unlink(missing_ok=True)
    told = run_outside(trigger, control)
    assert mark.exists(), f"the attack does not work without a sandbox either: {told}"

    mark = disk / "mark"
    workspace = make_workspace(disk / "guarded", kind, setup, mark)
    before = snapshot(workspace / ".git")
    finished = await run_sandboxed(f"export EVIL='{write_evil_program(workspace)}'; {hijack['attack']}", workspace)
    told = run_outside(trigger, workspace)
    assert not mark.exists(), f"{finished.output}\n{told}"
    assert kind == "none" or "not a git repository" not in told
    if kind in ("ordinary", "submodule", "linked"):
        assert before <= snapshot(workspace / ".git")
    assert not (workspace / ".git/commondir").exists()


def snapshot(git_dir: Path) -> set[tuple[str, bytes]]:
    """Of what decides about programs that git runs."""
    if not git_dir.is_dir():
        return set()
    names = ("config", "config.worktree", "commondir", "gitdir")
    files = [path for path in git_dir.rglob("*") if path.is_file() and (path.name in names or path.parent.name == "hooks")]
    return {(str(path.relative_to(git_dir)), path.read_bytes()) for path in files}


# What must still work

EVERYDAY = [
    "git status --porcelain",
    "git fetch -q origin && git merge -q --ff-only origin/main",
    "git pull -q --ff-only",
    "echo x > new && git add new && git commit -q -m new",
    "echo y >> file && git commit -q -am change && git commit -q --amend -m amended",
    "git log --oneline && git show --stat && git diff HEAD~1 && git blame file && git shortlog -s HEAD && git reflog",
    "echo z >> file && git stash -q && git stash list && git stash pop -q && git checkout -q -- file",
    "git branch topic && git checkout -q topic && git switch -q main && git branch -d topic",
    "git checkout -q -b fast && echo m > m && git add m && git commit -q -m m && git checkout -q main && git merge -q fast",
    "git checkout -q -b side HEAD~1 && echo s > s && git add s && git commit -q -m s && git merge -q --no-edit main",
    "git checkout -q -b base HEAD~1 && echo b > b && git add b && git commit -q -m b && git rebase -q main",
    "git checkout -q -b pick HEAD~1 && git cherry-pick main && git revert --no-edit HEAD",
    "git tag v1 && git tag -a v2 -m v2 && git describe && git tag -d v1",
    "echo r >> file && git reset -q --hard && echo r >> file && git restore file && git rm -q --cached file && git reset -q",
    "git mv file moved && git commit -q -m moved && git mv moved file && git commit -q -m back",
    "touch junk && git clean -fdq && test ! -e junk",
    "git bisect start HEAD HEAD~1 && git bisect reset",
    "git notes add -m note && git notes show",
    "git push -q . main:refs/heads/pushed",
    "git format-patch -1 --stdout > p && git reset -q --hard HEAD~1 && git am -q p && rm p",
    "git archive HEAD | tar t > /dev/null && git grep -q one",
    "git pack-refs --all && git gc -q && git fsck && git maintenance run --quiet",
    "git worktree list && git submodule status && git config --get core.bare && git remote -v",
    "git update-index --refresh && git ls-files && git rev-parse HEAD && git cat-file -p HEAD",
    "echo q >> file && git commit -q -am q --fixup HEAD && GIT_SEQUENCE_EDITOR=: git rebase -q -i --autosquash HEAD~2",
    "git clone -q . /tmp/$$ && git -C /tmp/$$ log -1 && git -C /tmp/$$ remote add other /x && rm -rf /tmp/$$",
    "git clone -q . cloned && git -C cloned commit -q --allow-empty -m x && git -C cloned status && rm -rf cloned",
    "git init -q inner && cd inner && git commit -q --allow-empty -m x && git config user.name inner && cd .. && rm -rf inner",
    "git clone -q --bare . /tmp/$$ && git --git-dir=/tmp/$$ log -1 && git push -q /tmp/$$ main:x && rm -rf /tmp/$$",
    "git -C sub commit -q --allow-empty -m inside && git -C sub checkout -q -b topic && git add sub && git commit -q -m sub",
    "git -C wt commit -q --allow-empty -m inside && git -C wt checkout -q -b other && git -C wt status",
]


def make_repository(workspace: Path) -> Path:
    """With a remote that is ahead, a submodule and a worktree."""
    workspace.mkdir(parents=True)
    (workspace / "file").write_text("one\n")
    steps = (
        SETUPS["submodule"],
        "git clone -q --bare . .remote.git && git clone -q .remote.git ../other",
        "cd ../other && echo far > far && git add far && git commit -q -m far && git push -q",
        "git remote add origin ./.remote.git && git fetch -q && git branch -q -u origin/main && git worktree add -q wt",
        "git update-ref refs/remotes/origin/main main && printf 'wt\\n.remote.git\\n' >> .git/info/exclude",
    )
    for step in steps:
        done = subprocess.run(["bash", "-c", step], cwd=workspace, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return workspace


TIDY = "git reset -q --hard; git clean -fdq; git checkout -q main"


async def test_everyday_commands_of_git_work_inside(disk: Path, run_sandboxed: Run) -> None:
    control, repository = make_repository(disk / "control/work"), make_repository(disk / "guarded/work")
    entries = {path.name for path in (repository / ".git").iterdir()}
    failed = {}
    for command in EVERYDAY:
        done = subprocess.run(["bash", "-c", f"set -e; {command}"], cwd=control, capture_output=True, text=True)
        assert done.returncode == 0, f"{command} fails outside as well: {done.stderr}"
        finished = await run_sandboxed(f"set -e; {command}", repository)
        if finished.exit_code != 0 or "Read-only file system" in finished.output or "set aside" in finished.output:
            failed[command] = finished.output
        for workspace in (control, repository):
            run_outside(TIDY, workspace)
    assert not failed, "\n".join(f"{command}\n{output}" for command, output in failed.items())
    # Nothing of ours is left, and what git itself leaves is no repository's setting.
    left = {path.name for path in (repository / ".git").iterdir()} - entries
    assert left.isdisjoint({"commondir", "config.worktree"}), left
    # Without repetitions: two commits of one second with the same content are one object.
    shown = "git log --all --format=%s | sort -u; git branch --format='%(refname)'; git status --porcelain"
    assert run_outside(shown, repository) == run_outside(shown, control)
    assert run_outside("git fsck 2>&1 | grep -v dangling", repository) == ""


@pytest.mark.parametrize("kind", ["ordinary", "submodule", "linked", "worktree", "symlink"])
async def test_nothing_is_left_in_the_repository(kind: str, disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, kind, "true", disk / "mark")
    git_dir = Path(run_outside("git rev-parse --path-format=absolute --git-dir", workspace).strip())
    before = {str(path.relative_to(git_dir)) for path in git_dir.rglob("*")}

    finished = await run_sandboxed("git status --porcelain && ls -A $(git rev-parse --git-dir)", workspace)

    assert finished.exit_code == 0, finished.output
    assert {str(path.relative_to(git_dir)) for path in git_dir.rglob("*")} == before
    if kind != "worktree":
        assert "commondir" in finished.output


async def test_a_second_command_keeps_its_protection_when_the_first_ends(disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, "ordinary", "true", disk / "mark")
    os.mkfifo(workspace / "go")
    os.mkfifo(workspace / "ready")
    second = asyncio.create_task(run_sandboxed("echo > ready; cat go; rm -f .git/commondir; echo x > .git/commondir", workspace))
    await asyncio.to_thread((workspace / "ready").read_bytes)

    assert (await run_sandboxed("true", workspace)).exit_code == 0
    assert (workspace / ".git/commondir").read_bytes() == protected_paths.PLACEHOLDER_COMMONDIR
    assert run_outside("git status --porcelain -uno", workspace) == ""

    await asyncio.to_thread((workspace / "go").write_bytes, b"\n")
    finished = await second
    assert finished.exit_code != 0
    assert not (workspace / ".git/commondir").exists()


async def test_what_a_killed_daemon_left_is_removed_after_the_next_command(disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, "ordinary", "true", disk / "mark")
    (workspace / ".git/commondir").write_bytes(protected_paths.PLACEHOLDER_COMMONDIR)
    assert run_outside("git status --porcelain; git log --format=%s", workspace) == "first\n"

    assert (await run_sandboxed("git log --format=%s; echo x > .git/commondir", workspace)).output.startswith("first\n")

    assert not (workspace / ".git/commondir").exists()


async def test_a_command_whose_protection_cannot_be_put_in_place_does_not_run(
    disk: Path, monkeypatch: pytest.MonkeyPatch, run_sandboxed: Run
) -> None:
    workspace = make_workspace(disk, "ordinary", "true", disk / "mark")
    monkeypatch.setattr(bubblewrap, "_LOCK_TIMEOUT", 0.0)
    lock = subprocess.Popen(
        ["flock", "--exclusive", ".git", "sh", "-c", "echo locked; read x"],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert lock.stdout is not None
    assert lock.stdout.readline() == b"locked\n"

    with pytest.raises(OSError, match="locked by another process"):
        await run_sandboxed("touch ran", workspace)

    lock.communicate(b"\n")
    assert not (workspace / "ran").exists()
    assert (await run_sandboxed("touch ran", workspace)).exit_code == 0


async def test_what_is_set_aside_is_said_and_kept(disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, "none", "true", disk / "mark")

    finished = await run_sandboxed(
        "git init -q && git config core.fsmonitor ./evil.sh && git remote add origin '/a \"b\"'", workspace
    )

    assert "[set aside because git would run what it names: `.git/config`" in finished.output
    assert "fsmonitor" in (workspace / ".git/config.set-aside").read_text()
    assert run_outside("git config --list --local", workspace).count("fsmonitor") == 0
    assert run_outside("git remote get-url origin; git config core.filemode", workspace) == '/a "b"\ntrue\n'


async def test_a_harmless_new_repository_is_left_alone(disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, "none", "true", disk / "mark")

    finished = await run_sandboxed(
        "git init -q && git add . && git commit -q -m first && git remote add origin /x"
        " && git clone -q . copy && git init -q --bare b",
        workspace,
    )

    assert (finished.exit_code, finished.output) == (0, "")
    assert (
        run_outside("git log --format=%s && git -C copy log --format=%s && git -C b config core.bare", workspace)
        == "first\nfirst\ntrue\n"
    )


async def test_a_link_cannot_have_files_outside_the_workspace_set_aside(disk: Path, run_sandboxed: Run) -> None:
    """What is set aside was made by the command; a repository elsewhere stays as it is."""
    other = make_workspace(disk / "other", "ordinary", "git config core.fsmonitor ./evil.sh", disk / "mark")
    before = snapshot(other / ".git")
    workspace = make_workspace(disk / "mine", "none", "true", disk / "mark")
    links = (
        "mkdir sub bare && ln -s '{0}/.git' sub/.git && ln -s '{0}/.git' .git && ln -s '{0}' linked"
        " && ln -s '{0}/.git/config' '{0}/.git/HEAD' '{0}/.git/objects' '{0}/.git/refs' bare/"
    )

    finished = await run_sandboxed(links.format(other), workspace)

    assert finished.exit_code == 0, finished.output
    assert snapshot(other / ".git") == before
    assert not any(path.name.endswith(".set-aside") for path in (other / ".git").iterdir())


@pytest.mark.parametrize(
    "mine", ["git config user.name me", "git config core.editor vi", "git remote add r /x; git config core.pager cat"]
)
async def test_settings_that_the_user_changes_meanwhile_open_no_way(mine: str, disk: Path, run_sandboxed: Run) -> None:
    """Git replaces the file, and with it the mount over it, which the command could have waited for."""
    mark = disk / "mark"
    workspace = make_workspace(disk, "ordinary", "git config core.excludesFile x; git config alias.st status", mark)
    for name in ("go", "ready"):
        os.mkfifo(workspace / name)
    evil = write_evil_program(workspace)
    attack = f"echo > ready; cat go; printf '[core]\\n\\tfsmonitor = {evil}\\n' >> .git/config && echo written"
    running = asyncio.create_task(run_sandboxed(attack, workspace))
    await asyncio.to_thread((workspace / "ready").read_bytes)
    run_outside(mine, workspace)
    await asyncio.to_thread((workspace / "go").write_bytes, b"\n")

    finished = await running

    run_outside("git status", workspace)
    assert not mark.exists()
    if "written" in finished.output:
        assert "set aside" in finished.output
    kept = run_outside("git config --list --local", workspace)
    assert "core.excludesfile=x\nalias.st=status\n" in kept
    if "user.name" in mine:
        assert "user.name=me" in kept


async def test_settings_that_the_user_changes_meanwhile_stay(disk: Path, run_sandboxed: Run) -> None:
    workspace = make_workspace(disk, "ordinary", "git config alias.st status", disk / "mark")
    for name in ("go", "ready"):
        os.mkfifo(workspace / name)
    running = asyncio.create_task(run_sandboxed("echo > ready; cat go", workspace))
    await asyncio.to_thread((workspace / "ready").read_bytes)
    run_outside("git remote add origin /x; git config user.name me", workspace)
    await asyncio.to_thread((workspace / "go").write_bytes, b"\n")

    assert (await running).output == "\n"
    assert "alias.st=status\nremote.origin.url=/x\n" in run_outside("git config --list --local", workspace)
