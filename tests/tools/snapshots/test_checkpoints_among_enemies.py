"""Repositories that have git run programs, and checkpoints that do not let them. Each trap is shown to be armed."""

import os
import shutil
import stat
import subprocess
import zlib
from pathlib import Path

import pytest
from tests.tools.git.repositories import (
    GitTrap,
    arm_traps,
    make_partial,
    make_repository,
    read_git_folder,
    read_tree,
    run_git,
    write,
)
from tests.tools.snapshots.workspaces import SESSION

from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints


@pytest.fixture
def trap(tmp_path: Path) -> GitTrap:
    return GitTrap(tmp_path / "trap")


async def use_all(checkpoints: Checkpoints, workspace: Path) -> None:
    """Everything that checkpoints can do."""
    was = read_tree(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "new.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    assert "+two" in await checkpoints.diff(str(workspace), before)
    assert "+two" in await checkpoints.diff(str(workspace), before, after)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert read_tree(workspace) == was
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    await checkpoints.restore(str(workspace), before=before, after=None, direction="undo")
    assert read_tree(workspace) == was
    await checkpoints.forget(str(workspace), SESSION)


async def test_nothing_that_a_repository_configures_is_run(tmp_path: Path, checkpoints: Checkpoints, trap: GitTrap) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n", "b.txt": "one\n"})
    arm_traps(workspace, trap.program)
    (workspace / "b.txt").write_text("stale\n")
    before_all = read_git_folder(workspace)

    await use_all(checkpoints, workspace)
    write(workspace, {f"many/{number}.txt": f"{number}\n" for number in range(150)})
    await checkpoints.take(str(workspace), SESSION, "many")  # so many that git makes a pack of them

    assert trap.sprung == ""
    assert read_git_folder(workspace) == before_all
    for command, word in (("add --all", "trap"), ("update-ref refs/heads/other HEAD", "reference-transaction"), ("diff", "trap")):
        trap.reset()
        run_git(workspace, *command.split(), check=False)
        assert word in trap.sprung, f"the trap for `git {command}` was not armed"


async def test_a_missing_object_is_not_fetched_by_a_command_of_the_repository(
    tmp_path: Path, checkpoints: Checkpoints, trap: GitTrap
) -> None:
    """In a partial clone git fetches what it misses, with whatever program the configuration names."""
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n", "dir/b.txt": "one\n"})
    make_partial(workspace, trap.program)
    missing = run_git(workspace, "rev-parse", "HEAD:dir").strip()
    (workspace / ".git/objects" / missing[:2] / missing[2:]).unlink()

    await use_all(checkpoints, workspace)
    with pytest.raises(GitUnavailable):
        await checkpoints.diff(str(workspace), "1" * 40)

    assert trap.sprung == ""
    run_git(workspace, "cat-file", "-p", "1" * 40, check=False)
    assert "nowhere.invalid" in trap.sprung, "the trap was not armed"


async def test_a_program_called_git_in_the_workspace_is_not_taken_for_git(
    tmp_path: Path, checkpoints: Checkpoints, trap: GitTrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `.` in the search path the daemon finds git as `./git`, which is another one in the workspace."""
    real = shutil.which("git")
    assert real is not None
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    (workspace / "git").symlink_to(trap.program)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(real)
    monkeypatch.chdir(tmp_path / "bin")
    with monkeypatch.context() as path:
        path.setenv("PATH", f".:{os.environ['PATH']}")
        assert shutil.which("git") == "./git"
        before = await checkpoints.take(str(workspace), SESSION, "before")
        assert await checkpoints.diff(str(workspace), before) == ""
    assert trap.sprung == ""
    subprocess.run(["./git", "status"], cwd=workspace, check=True)
    assert trap.sprung != "", "the trap was not armed"


async def test_git_variables_of_the_daemon_lead_nowhere(
    tmp_path: Path, checkpoints: Checkpoints, trap: GitTrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = make_repository(tmp_path / "stranger", {"theirs.txt": "theirs\n"})
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    before_all = read_git_folder(stranger), sorted((stranger / ".git/objects").rglob("*"))
    for name, value in {
        "GIT_DIR": str(stranger / ".git"),
        "GIT_WORK_TREE": str(stranger),
        "GIT_INDEX_FILE": str(stranger / ".git/index"),
        "GIT_OBJECT_DIRECTORY": str(stranger / ".git/objects"),
        "GIT_EXTERNAL_DIFF": str(trap.program),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(trap.program),
        "GIT_NAMESPACE": "elsewhere",
        "GIT_LITERAL_PATHSPECS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    await use_all(checkpoints, workspace)
    tree = await checkpoints.take(str(workspace), SESSION, "before")
    assert run_git(workspace, "cat-file", "-t", tree) == "tree\n"
    assert (read_git_folder(stranger), sorted((stranger / ".git/objects").rglob("*"))) == before_all
    assert trap.sprung == ""


async def test_a_working_tree_that_the_configuration_puts_elsewhere_is_not_looked_at(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    write(tmp_path / "victim", {"theirs.txt": "theirs\n"})
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    run_git(workspace, "config", "core.worktree", str(tmp_path / "victim"))
    await use_all(checkpoints, workspace)
    tree = await checkpoints.take(str(workspace), SESSION, "before")
    assert read_tree(tmp_path / "victim") == {"theirs.txt": ("file", b"theirs\n")}
    # It counts as a plain folder, so its files are in a store of ours.
    assert not (workspace / ".git/objects" / tree[:2] / tree[2:]).exists()


async def test_a_pointer_to_a_strangers_repository_is_not_followed(tmp_path: Path, checkpoints: Checkpoints) -> None:
    stranger = make_repository(tmp_path / "stranger", {"theirs.txt": "theirs\n"})
    before_all = sorted(path for path in (stranger / ".git").rglob("*"))
    workspace = tmp_path / "workspace"
    write(workspace, {"a.txt": "one\n", ".git": f"gitdir: {stranger}/.git\n"})
    await use_all(checkpoints, workspace)
    assert sorted(path for path in (stranger / ".git").rglob("*")) == before_all


@pytest.mark.parametrize("name", [".gitignore", "sub/.gitignore", ".git/info/exclude", ".git/config", ".git/HEAD", ".git/index"])
async def test_rubbish_in_files_that_git_reads_breaks_nothing(tmp_path: Path, checkpoints: Checkpoints, name: str) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n", "sub/b.txt": "one\n"})
    write(workspace, {name: os.urandom(2000)})
    try:
        await checkpoints.take(str(workspace), SESSION, "before")
    except GitUnavailable as reason:
        assert reason.hint is not None  # noqa: PT017 - some rubbish can be worked with and some cannot


async def test_links_are_kept_as_links_and_never_followed(tmp_path: Path, checkpoints: Checkpoints) -> None:
    write(tmp_path / "outside", {"theirs.txt": "theirs-4711\n", "dir/x.txt": "theirs-4711\n"})
    workspace = make_repository(tmp_path / "workspace", {"dir/x.txt": "one\n", "a.txt": "one\n"})
    (workspace / "file").symlink_to(tmp_path / "outside/theirs.txt")
    (workspace / "folder").symlink_to(tmp_path / "outside")
    (workspace / "dangling").symlink_to("/no/such/thing")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    # A folder that git tracks files in becomes a link to a folder with the same names outside.
    (workspace / "dir/x.txt").unlink()
    (workspace / "dir").rmdir()
    (workspace / "dir").symlink_to(tmp_path / "outside/dir")
    after = await checkpoints.take(str(workspace), SESSION, "after")

    contents = run_git(workspace, "cat-file", "--batch-all-objects", "--batch")
    assert "theirs-4711" not in contents
    shown = run_git(workspace, "ls-tree", "-r", f"{before}:files")
    assert [line.split("\t")[1] for line in shown.splitlines() if line.startswith("120000")] == ["dangling", "file", "folder"]

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("dir", "dir/x.txt")
    assert (workspace / "dir/x.txt").read_text() == "one\n"
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert (workspace / "dir").is_symlink()
    assert read_tree(tmp_path / "outside") == {"theirs.txt": ("file", b"theirs-4711\n"), "dir/x.txt": ("file", b"theirs-4711\n")}


@pytest.mark.parametrize("victim", ["blob", "tree", "left-out"])
async def test_objects_that_were_tampered_with_are_not_believed(tmp_path: Path, checkpoints: Checkpoints, victim: str) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n", "b.txt": "one\n"})
    write(workspace, {"a.txt": "before-2\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "after\n", "b.txt": "after\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    name = {"blob": f"{before}:files/a.txt", "tree": f"{before}:files", "left-out": f"{before}:left-out"}[victim]
    replace_object(workspace, run_git(workspace, "rev-parse", name).strip())

    if victim == "blob":
        undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
        assert undone.files == ("b.txt",)
        assert undone.failed[0].startswith("a.txt: the object")
    else:
        with pytest.raises(GitUnavailable, match="gone or damaged"):
            await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert (workspace / "a.txt").read_text() == "after\n"


async def test_an_object_without_end_is_not_read(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """Whoever can write to the repository can put a few bytes there that unpack to any length."""
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    write(workspace, {"a.txt": "before\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "after\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    for name in ("files/a.txt", "left-out"):
        endless = run_git(workspace, "rev-parse", f"{before}:{name}").strip()
        file = workspace / ".git/objects" / endless[:2] / endless[2:]
        was = file.read_bytes()
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
        file.write_bytes(zlib.compress(b"blob %d\0" % 2**40 + bytes(1000)))

        with pytest.raises(GitUnavailable):
            await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
        assert (workspace / "a.txt").read_text() == "after\n"
        file.write_bytes(was)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert (workspace / "a.txt").read_text() == "before\n"


def replace_object(workspace: Path, id: str) -> None:
    """Puts another object's content in the place of this one, as somebody who can write to the repository could."""
    other = run_git(workspace, "hash-object", "-w", "--stdin", input=b"evil\n").strip()
    tree = run_git(workspace, "mktree", input=f"100644 blob {other}\tx\n".encode()).strip()
    kind = run_git(workspace, "cat-file", "-t", id).strip()
    source, target = (workspace / ".git/objects" / name[:2] / name[2:] for name in (tree if kind == "tree" else other, id))
    target.chmod(stat.S_IRUSR | stat.S_IWUSR)
    target.write_bytes(source.read_bytes())
