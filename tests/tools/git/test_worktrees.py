"""A working tree of its own for a session: made, used, removed, and nothing run on the way."""

import asyncio
import os
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

from switchtower.core import errors
from switchtower.tools.git import worktrees
from switchtower.tools.snapshots.checkpoints import Checkpoints

SESSION = "sess_01JCQ8Z5T9ABCDEFGHJKMNPQRS"


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "origin", {"a.txt": "one\n", "sub/b.txt": "one\n", "run.sh": "#!/bin/sh\n"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "worktrees"


@pytest.fixture
def trap(tmp_path: Path) -> GitTrap:
    return GitTrap(tmp_path / "trap")


def list_branches(origin: Path) -> list[str]:
    return run_git(origin, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def list_worktrees(origin: Path) -> list[str]:
    return [
        line.removeprefix("worktree ")
        for line in run_git(origin, "worktree", "list", "--porcelain").splitlines()
        if "worktree " in line
    ]


async def test_a_session_gets_a_branch_and_a_folder_of_its_own(origin: Path, folder: Path) -> None:
    write(origin, {"a.txt": "uncommitted\n", "untracked.txt": "untracked\n"})
    made = await worktrees.create_worktree(str(origin), folder, SESSION)

    name = "ghjkmnpqrs"
    assert made == worktrees.Worktree(root=str(folder / name), branch=f"tower/{name}", origin=str(origin))
    files = read_tree(Path(made.root))
    assert files.pop(".git")[0] == "file"
    assert files == {"a.txt": ("file", b"one\n"), "sub/b.txt": ("file", b"one\n"), "run.sh": ("file", b"#!/bin/sh\n")}
    assert run_git(Path(made.root), "status", "--porcelain") == ""
    assert run_git(Path(made.root), "branch", "--show-current") == "tower/ghjkmnpqrs\n"
    assert run_git(origin, "branch", "--show-current") == "main\n"
    assert sorted(path.name for path in folder.iterdir()) == ["ghjkmnpqrs"]


async def test_a_subfolder_of_the_repository_is_the_same_subfolder_in_the_worktree(origin: Path, folder: Path) -> None:
    made = await worktrees.create_worktree(str(origin / "sub"), folder, SESSION)
    assert Path(made.root) == folder / "ghjkmnpqrs" / "sub"
    assert (Path(made.root) / "b.txt").read_text() == "one\n"
    assert made.origin == str(origin)

    (origin / "new/deep").mkdir(parents=True)
    other = await worktrees.create_worktree(str(origin / "new/deep"), folder, "sess_02")
    assert Path(other.root).is_dir()
    assert other.root.endswith("sess02/new/deep")


async def test_a_base_can_be_any_commit_and_nothing_else(origin: Path, folder: Path) -> None:
    run_git(origin, "tag", "start")
    write(origin, {"a.txt": "two\n"})
    run_git(origin, "commit", "--all", "--quiet", "--message", "second")
    made = await worktrees.create_worktree(str(origin), folder, SESSION, "start")
    assert (Path(made.root) / "a.txt").read_text() == "one\n"
    for wrong in ("nowhere", "--orphan", "-b", "HEAD:a.txt", "", "main..start"):
        with pytest.raises(errors.InvalidCommand, match="names no commit"):
            await worktrees.create_worktree(str(origin), folder, "sess_02", wrong)
    assert list_branches(origin) == ["main", "tower/ghjkmnpqrs"]


async def test_names_that_are_taken_are_not_taken_again(origin: Path, folder: Path) -> None:
    run_git(origin, "branch", "tower/ghjkmnpqrs")
    (folder / "ghjkmnpqrs-2").mkdir(parents=True)
    made = await worktrees.create_worktree(str(origin), folder, SESSION)
    assert (made.branch, made.root) == ("tower/ghjkmnpqrs-3", str(folder / "ghjkmnpqrs-3"))

    odd = await worktrees.create_worktree(str(origin), folder, "../..")
    assert odd.root == str(folder / "session")


async def test_a_branch_called_tower_is_in_nobodys_way(origin: Path, folder: Path) -> None:
    run_git(origin, "branch", "tower")
    assert (await worktrees.create_worktree(str(origin), folder, SESSION)).branch == "tower-ghjkmnpqrs"


async def test_without_a_repository_or_a_commit_there_is_a_remedy(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(errors.InvalidCommand, match=r"needs a git repository.*hint: make one with `git init`"):
        await worktrees.create_worktree(str(tmp_path / "plain"), folder, SESSION)
    make_repository(tmp_path / "empty")
    with pytest.raises(errors.InvalidCommand, match=r"starts from a commit.*hint: commit something"):
        await worktrees.create_worktree(str(tmp_path / "empty"), folder, SESSION)
    with pytest.raises(errors.InvalidCommand, match="there is no folder"):
        await worktrees.create_worktree(str(tmp_path / "nowhere"), folder, SESSION)
    assert not folder.exists()


async def test_without_git_there_are_no_worktrees(origin: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(errors.SandboxUnavailable, match="git is not installed; hint: install git"):
        await worktrees.create_worktree(str(origin), folder, SESSION)


async def test_nothing_that_the_repository_configures_is_run(origin: Path, folder: Path, trap: GitTrap) -> None:
    write(origin, {".gitattributes": "* filter=evil filter=evil\n"})
    run_git(origin, "add", "--all")
    run_git(origin, "commit", "--quiet", "--message", "with attributes")
    arm_traps(origin, trap.program)
    # A setting that holds only in the new working tree.
    write(origin, {"../hidden": f'[filter "evil"]\n\tsmudge = {trap.program}\n[filter "later"]\n\tsmudge = {trap.program}\n'})
    write(origin, {".git/info/attributes": "* filter=later\n"})
    run_git(origin, "config", "includeIf.onbranch:tower/**.path", str(origin.parent / "hidden"))
    trap.reset()

    made = await worktrees.create_worktree(str(origin), folder, SESSION)
    assert (Path(made.root) / "a.txt").read_text() == "one\n"
    await worktrees.remove_worktree(made.root, made.origin, force=False)
    assert trap.sprung == ""
    assert not Path(made.root).exists()

    run_git(origin, "worktree", "add", "-b", "tower/trapped", str(folder / "trapped"), check=False)
    for word in ("trap", "reference-transaction", "post-checkout"):
        assert word in trap.sprung, "the trap was not armed"


async def test_what_a_partial_clone_misses_is_not_fetched(origin: Path, folder: Path, trap: GitTrap) -> None:
    make_partial(origin, trap.program)
    missing = run_git(origin, "rev-parse", "HEAD:a.txt").strip()
    (origin / ".git/objects" / missing[:2] / missing[2:]).unlink()
    with pytest.raises(errors.SandboxUnavailable):
        await worktrees.create_worktree(str(origin), folder, SESSION)
    assert trap.sprung == ""
    assert list(folder.iterdir()) == []
    run_git(origin, "worktree", "add", str(folder / "trapped"), check=False)
    assert "nowhere.invalid" in trap.sprung, "the trap was not armed"


async def test_filters_of_the_user_still_work(
    origin: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    write(home, {".gitconfig": '[filter "shout"]\n\tsmudge = tr a-z A-Z\n\tclean = tr A-Z a-z\n'})
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    write(origin, {".gitattributes": "a.txt filter=shout\n"})
    run_git(origin, "add", "--all")
    run_git(origin, "commit", "--quiet", "--message", "with attributes")
    made = await worktrees.create_worktree(str(origin), folder, SESSION)
    assert (Path(made.root) / "a.txt").read_text() == "ONE\n"
    assert (Path(made.root) / "sub/b.txt").read_text() == "one\n"


async def test_a_clean_worktree_is_removed_with_its_branch(origin: Path, folder: Path) -> None:
    before_all = read_git_folder(origin)
    made = await worktrees.create_worktree(str(origin / "sub"), folder, SESSION)
    await worktrees.remove_worktree(made.root, made.origin, force=False)
    assert list(folder.iterdir()) == []
    assert list_branches(origin) == ["main"]
    assert list_worktrees(origin) == [str(origin)]
    assert {name: file for name, file in read_git_folder(origin).items() if name != "packed-refs"} == before_all
    await worktrees.remove_worktree(made.root, made.origin, force=False)  # it is gone already


async def test_uncommitted_work_is_removed_only_by_force(origin: Path, folder: Path) -> None:
    made = await worktrees.create_worktree(str(origin), folder, SESSION)
    write(Path(made.root), {"new.txt": "work\n"})
    with pytest.raises(errors.InvalidCommand, match=r"not committed.*hint: commit them, or remove it by force"):
        await worktrees.remove_worktree(made.root, made.origin, force=False)
    assert (Path(made.root) / "new.txt").exists()
    await worktrees.remove_worktree(made.root, made.origin, force=True)
    assert list(folder.iterdir()) == []


async def test_commits_stay_on_the_branch_when_the_worktree_goes(origin: Path, folder: Path) -> None:
    made = await worktrees.create_worktree(str(origin), folder, SESSION)
    write(Path(made.root), {"a.txt": "work\n"})
    run_git(Path(made.root), "commit", "--all", "--quiet", "--message", "work")
    await worktrees.remove_worktree(made.root, made.origin, force=False)
    assert not Path(made.root).exists()
    assert run_git(origin, "show", f"{made.branch}:a.txt") == "work\n"


async def test_what_is_no_worktree_of_the_repository_is_not_removed(origin: Path, folder: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"a.txt": "theirs\n"})
    made = await worktrees.create_worktree(str(other), folder, SESSION)
    write(tmp_path / "plain", {"a.txt": "mine\n"})
    for root in (other, tmp_path / "plain", made.root, origin):
        with pytest.raises(errors.InvalidCommand, match="is no worktree of"):
            await worktrees.remove_worktree(str(root), str(origin), force=True)
    assert (tmp_path / "plain/a.txt").exists()
    with pytest.raises(errors.InvalidCommand):
        await worktrees.remove_worktree(made.root, str(tmp_path / "plain"), force=True)
    assert Path(made.root).is_dir()


async def test_pruning_removes_what_belongs_to_no_session_and_holds_no_work(origin: Path, folder: Path) -> None:
    kept = await worktrees.create_worktree(str(origin / "sub"), folder, "sess_kept")
    stray = await worktrees.create_worktree(str(origin), folder, "sess_stray")
    working = await worktrees.create_worktree(str(origin), folder, "sess_work")
    write(Path(working.root), {"new.txt": "work\n"})
    half = await worktrees.create_worktree(str(origin), folder, "sess_half")
    (Path(half.root) / "a.txt").unlink()
    (folder / "sesshalf.unfinished").touch()  # what is left beside one when we are killed
    write(folder, {"strange/file": "whose is this?\n", "broken/file": "x\n", "broken.unfinished": ""})

    removed = await worktrees.prune_worktrees(folder, keep=[kept.root])
    assert removed == (str(folder / "broken"), half.root, stray.root)
    assert sorted(path.name for path in folder.iterdir()) == ["sesskept", "sesswork", "strange"]
    assert list_branches(origin) == ["main", kept.branch, working.branch]
    assert await worktrees.prune_worktrees(folder / "nowhere", keep=[]) == ()


async def test_a_worktree_that_was_not_finished_leaves_nothing(origin: Path, folder: Path, tmp_path: Path) -> None:
    before_all = read_git_folder(origin)
    broken = run_git(origin, "rev-parse", "HEAD:a.txt").strip()
    lost = origin / ".git/objects" / broken[:2] / broken[2:]
    lost.rename(tmp_path / "lost")
    with pytest.raises(errors.SandboxUnavailable, match="hint: see what `git worktree list` says"):
        await worktrees.create_worktree(str(origin), folder, SESSION)
    (tmp_path / "lost").rename(lost)
    assert list(folder.iterdir()) == []
    assert list_branches(origin) == ["main"]
    assert list_worktrees(origin) == [str(origin)]
    assert read_git_folder(origin) == before_all


async def test_a_cancelled_worktree_leaves_nothing(origin: Path, folder: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Git waits in the new working tree, where this setting holds, after the branch was made.
    run_git(origin, "config", "includeIf.onbranch:tower/**.path", str(pipe))
    task = asyncio.create_task(worktrees.create_worktree(str(origin), folder, SESSION))
    end = -1
    async with asyncio.timeout(60):
        while end < 0:
            try:
                end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await asyncio.sleep(0.005)  # nobody reads it yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(BrokenPipeError):
        os.write(end, b"\n")
    os.close(end)
    assert list(folder.iterdir()) == []
    assert list_branches(origin) == ["main"]


async def test_checkpoints_work_in_a_worktree_and_are_shared_with_its_origin(origin: Path, folder: Path, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "data" / "checkpoints", apart=[tmp_path / "data"])
    made = await worktrees.create_worktree(str(origin / "sub"), folder, SESSION)
    before = await checkpoints.take(made.root, SESSION, "before")
    write(Path(made.root), {"b.txt": "two\n", "new.txt": "two\n"})
    after = await checkpoints.take(made.root, SESSION, "after")
    undone = await checkpoints.restore(made.root, before=before, after=after, direction="undo")
    assert undone.files == ("b.txt", "new.txt")
    assert (Path(made.root) / "b.txt").read_text() == "one\n"
    await worktrees.remove_worktree(made.root, made.origin, force=False)
    assert run_git(origin, "cat-file", "-t", after) == "tree\n"
    await checkpoints.forget(made.root, SESSION)
    assert run_git(origin, "for-each-ref", "refs/switchtower") == ""


async def test_a_committed_link_in_a_folders_place_leads_nowhere(origin: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (origin / "way").symlink_to(tmp_path / "outside")
    run_git(origin, "add", "--all")
    run_git(origin, "commit", "--quiet", "--message", "a link")
    (origin / "way").unlink()
    (origin / "way").mkdir()
    with pytest.raises(errors.InvalidCommand, match="is a link out of the repository"):
        await worktrees.create_worktree(str(origin / "way"), folder, SESSION)
    assert list((tmp_path / "outside").iterdir()) == []
    assert list(folder.iterdir()) == []
