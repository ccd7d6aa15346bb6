"""Where checkpoints are kept: in refs that nobody else notices, until their session is forgotten."""

import os
import threading
from pathlib import Path

import pytest
from tests.tools.git.repositories import make_repository, read_git_folder, run_git, write
from tests.tools.snapshots.workspaces import SESSION, MakeWorkspace

from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints


async def test_the_repository_looks_the_same_to_everybody_but_git_gc(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {f"{number}.txt": f"{number}\n" for number in range(150)})
    write(workspace, {"staged.txt": "staged\n", "0.txt": "changed\n", "untracked.txt": "untracked\n"})
    run_git(workspace, "add", "staged.txt")
    run_git(workspace, "stash", "push", "--quiet", "--keep-index")
    write(workspace, {"1.txt": "changed\n", "untracked.txt": "untracked\n"})
    before_all = read_git_folder(workspace)
    asked = ("status --porcelain", "log --all --oneline", "branch --all", "stash list", "reflog --all", "diff", "diff --cached")
    answers = [run_git(workspace, *command.split()) for command in asked]

    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {f"{number}.txt": "rewritten\n" for number in range(150)})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    await checkpoints.diff(str(workspace), before)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")

    assert read_git_folder(workspace) == before_all
    assert [run_git(workspace, *command.split()) for command in asked] == answers
    run_git(workspace, "fsck", "--strict", "--no-dangling")


async def test_checkpoints_survive_gc_and_packed_refs_until_they_are_forgotten(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "a\n"})
    write(workspace, {"a.txt": "uncommitted\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "later\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    other = await checkpoints.take(str(workspace), "sess_02", "before")

    run_git(workspace, "pack-refs", "--all")
    run_git(workspace, "gc", "--quiet", "--prune=now")
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert (workspace / "a.txt").read_text() == "uncommitted\n"

    await checkpoints.forget(str(workspace), SESSION)
    assert run_git(workspace, "for-each-ref", "--format=%(objectname)", "refs/switchtower").split() == [other]
    run_git(workspace, "gc", "--quiet", "--prune=now")
    with pytest.raises(GitUnavailable, match="gone or damaged"):
        await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert await checkpoints.diff(str(workspace), other) != ""


async def test_refs_are_neither_cloned_nor_pushed(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "a\n"})
    await checkpoints.take(str(workspace), SESSION, "before")
    run_git(tmp_path, "clone", "--quiet", str(workspace), "clone")
    run_git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    run_git(workspace, "push", "--quiet", "--all", str(tmp_path / "remote.git"))

    assert run_git(workspace, "for-each-ref", "refs/switchtower") != ""
    assert run_git(tmp_path / "clone", "for-each-ref", "refs/switchtower") == ""
    assert run_git(tmp_path / "remote.git", "for-each-ref", "refs/switchtower") == ""


async def test_labels_and_sessions_of_any_spelling_have_refs_of_their_own(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "0\n"})
    odd = ["a b", "a..b", "x.lock", "../../heads/main", "-d", "", "ü\udc80", "x" * 400, "same", "same"]
    trees = []
    for number, name in enumerate(odd):
        write(workspace, {"a.txt": f"{number}\n"})
        trees.append(await checkpoints.take(str(workspace), name, name))

    refs = run_git(workspace, "for-each-ref", "--format=%(objectname) %(refname)", "refs").splitlines()
    assert sorted(ref.split()[0] for ref in refs if "refs/switchtower/" in ref) == sorted(trees)
    assert [ref.split()[1] for ref in refs if "refs/switchtower/" not in ref] == ["refs/heads/main"]
    for name in odd:
        await checkpoints.forget(str(workspace), name)
    assert run_git(workspace, "for-each-ref", "refs/switchtower") == ""


async def test_nothing_of_ours_stays_when_the_last_session_is_forgotten(
    make_any_workspace: MakeWorkspace, checkpoints: Checkpoints, data: Path
) -> None:
    workspace = make_any_workspace({"a.txt": "a\n"})
    for session in ("sess_01", "sess_02"):
        await checkpoints.take(str(workspace), session, "before")
    await checkpoints.forget(str(workspace), "sess_01")
    assert list(data.iterdir()) != []
    await checkpoints.forget(str(workspace), "sess_02")
    assert list(data.iterdir()) == []
    await checkpoints.forget(str(workspace), "sess_03")


async def test_a_workspace_that_is_gone_can_still_be_forgotten(tmp_path: Path, checkpoints: Checkpoints) -> None:
    origin = make_repository(tmp_path / "origin", {"a.txt": "a\n"})
    run_git(origin, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    await checkpoints.take(str(tmp_path / "tree"), SESSION, "before")
    assert run_git(origin, "for-each-ref", "refs/switchtower") != ""
    run_git(origin, "worktree", "remove", "--force", str(tmp_path / "tree"))

    with pytest.raises(GitUnavailable, match="not there"):
        await checkpoints.take(str(tmp_path / "tree"), SESSION, "after")
    await checkpoints.forget(str(tmp_path / "tree"), SESSION)
    assert run_git(origin, "for-each-ref", "refs/switchtower") == ""


async def test_the_store_of_a_plain_folder_loses_what_its_sessions_have_forgotten(
    tmp_path: Path, checkpoints: Checkpoints, data: Path
) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, {"a.txt": "kept\n"})
    kept = await checkpoints.take(str(workspace), "sess_01", "before")
    write(workspace, {"large.bin": os.urandom(1_000_000)})
    await checkpoints.take(str(workspace), "sess_02", "before")
    full = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())

    await checkpoints.forget(str(workspace), "sess_02")
    assert sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) < full - 900_000
    assert "b/large.bin differ" in await checkpoints.diff(str(workspace), kept)


async def test_users_can_use_git_while_checkpoints_are_taken(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {f"{number}.txt": "x\n" for number in range(50)})
    enough = threading.Event()
    troubles: list[str] = []

    def use_git() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            write(workspace, {"theirs.txt": f"{number}\n"})
            try:
                run_git(workspace, "add", "--all")
                run_git(workspace, "commit", "--quiet", "--message", str(number))
            except AssertionError as trouble:
                troubles.append(str(trouble))

    user = threading.Thread(target=use_git)
    user.start()
    try:
        trees = [await checkpoints.take(str(workspace), SESSION, f"run_{number}") for number in range(15)]
    finally:
        enough.set()
        user.join()
    assert troubles == []
    assert run_git(workspace, "status", "--porcelain") == ""
    run_git(workspace, "fsck", "--strict", "--no-dangling")
    assert "files/theirs.txt" in run_git(workspace, "ls-tree", "-r", "--name-only", trees[-1])
