"""Checkpoints that cannot be had, take too long, are cancelled or are cut off by a crash."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.git.repositories import make_repository, run_git, write
from tests.tools.snapshots.workspaces import SESSION, MakeWorkspace

from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.processes import orphans
from switchtower.tools.snapshots.checkpoints import Checkpoints
from switchtower.tools.snapshots.scan import SnapshotLimits


async def test_without_git_there_are_no_checkpoints(
    tmp_path: Path, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "workspace", {"a.txt": "a\n"})
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(GitUnavailable, match="git is not installed; hint: install git"):
        await checkpoints.take(str(tmp_path / "workspace"), SESSION, "before")


@pytest.mark.parametrize("where", [".git", ".git/hooks", "../bare.git"])
async def test_a_repositorys_own_folder_is_no_workspace(tmp_path: Path, checkpoints: Checkpoints, where: str) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "a\n"})
    run_git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    with pytest.raises(GitUnavailable, match="repository's own store"):
        await checkpoints.take(str(workspace / where), SESSION, "before")


@pytest.mark.parametrize("tree", ["", "HEAD", "--help", "0" * 40, "0" * 64, "g" * 40])
async def test_what_is_no_checkpoint_is_refused(make_workspace: MakeWorkspace, checkpoints: Checkpoints, tree: str) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    with pytest.raises(GitUnavailable, match="gone or damaged"):
        await checkpoints.restore(str(workspace), before=tree, after=None, direction="undo")
    with pytest.raises(GitUnavailable, match="gone or damaged"):
        await checkpoints.diff(str(workspace), tree)


async def test_a_tree_of_the_repository_itself_is_no_checkpoint(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "a\n"})
    tree = run_git(workspace, "rev-parse", "HEAD^{tree}").strip()
    with pytest.raises(GitUnavailable, match="is no checkpoint"):
        await checkpoints.diff(str(workspace), tree)


class StuckCheckpoints:
    """A repository that keeps git waiting: its configuration includes a pipe into which nobody writes."""

    def __init__(self, workspace: Path, pipe: Path) -> None:
        os.mkfifo(pipe)
        run_git(workspace, "config", "include.path", str(pipe))
        self._pipe = pipe
        self._end = -1

    async def is_reached(self) -> None:
        """Git reads the pipe now."""
        async with asyncio.timeout(60):
            while self._end < 0:
                with suppress(OSError):  # nobody reads it yet
                    self._end = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
                await asyncio.sleep(0.005)

    def is_over(self) -> None:
        """Nobody reads the pipe any more."""
        with pytest.raises(BrokenPipeError):
            os.write(self._end, b"\n")
        os.close(self._end)


@pytest.fixture
def stuck_checkpoints(tmp_path: Path) -> StuckCheckpoints:
    return StuckCheckpoints(make_repository(tmp_path / "workspace", {"a.txt": "a\n"}), tmp_path / "pipe")


async def test_a_cancelled_checkpoint_leaves_no_process(
    tmp_path: Path, checkpoints: Checkpoints, stuck_checkpoints: StuckCheckpoints
) -> None:
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before"))
    await stuck_checkpoints.is_reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stuck_checkpoints.is_over()


async def test_a_checkpoint_that_takes_too_long_is_given_up(
    tmp_path: Path, data: Path, stuck_checkpoints: StuckCheckpoints
) -> None:
    checkpoints = Checkpoints(data, limits=SnapshotLimits(seconds=0.5))
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before"))
    await stuck_checkpoints.is_reached()
    with pytest.raises(GitUnavailable, match=r"it took longer than 0.5 seconds; hint: let `\.gitignore`"):
        await task
    stuck_checkpoints.is_over()


async def test_a_waiting_git_carries_its_runs_mark_so_that_it_is_found_after_a_crash(
    tmp_path: Path, checkpoints: Checkpoints, stuck_checkpoints: StuckCheckpoints
) -> None:
    run_id = f"run_{uuid4().hex}"
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before", run_id=run_id))
    await stuck_checkpoints.is_reached()
    assert await asyncio.to_thread(orphans.has_marked_processes, run_id)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await asyncio.to_thread(orphans.has_marked_processes, run_id)


async def test_what_a_killed_daemon_left_is_swept_up(make_workspace: MakeWorkspace, checkpoints: Checkpoints, data: Path) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    await checkpoints.take(str(workspace), SESSION, "before")
    (kept,) = data.iterdir()
    write(kept, {"scratch-x/pack/pack-1.pack": "half", "stats": b"rubbish"})
    await checkpoints.take(str(workspace), SESSION, "after")
    assert not (kept / "scratch-x").exists()
