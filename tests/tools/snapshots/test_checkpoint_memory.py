"""What is remembered between checkpoints, so that not every file is read again: never at the price of a change unseen."""

import asyncio
import os
import time
from pathlib import Path

from tests.tools.git.repositories import make_repository, run_git, write
from tests.tools.snapshots.workspaces import SESSION, MakeWorkspace

from switchtower.tools.snapshots import scan
from switchtower.tools.snapshots.checkpoints import Checkpoints


async def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    file = workspace / "a.txt"
    os.utime(file, ns=(0, 0))
    await wait_until_settled(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    file.write_text("two\n")
    os.utime(file, ns=(0, 0))
    assert "+two" in await checkpoints.diff(str(workspace), before)


async def test_a_file_that_changed_a_moment_ago_is_read_again_the_next_time(
    make_workspace: MakeWorkspace, checkpoints: Checkpoints, data: Path
) -> None:
    """Two changes in one tick of the clock look the same from outside."""
    workspace = make_workspace({"a.txt": "one\n"})
    far_ahead = time.time_ns() + 3600 * 1_000_000_000
    os.utime(workspace / "a.txt", ns=(far_ahead, far_ahead))
    await checkpoints.take(str(workspace), SESSION, "before")
    (kept,) = data.iterdir()
    assert "a.txt" not in scan.load_known(kept / "stats", "sha1").files


async def test_an_object_that_was_lost_is_stored_again(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """What is remembered about a file is worth nothing when its content has gone from the store."""
    workspace = make_repository(tmp_path / "workspace", {"committed.txt": "c\n"})
    write(workspace, {"a.txt": "one\n", "dir/b.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    await wait_until_settled(workspace)
    await checkpoints.take(str(workspace), "sess_02", "before")  # remembers the files
    for ref in run_git(workspace, "for-each-ref", "--format=%(refname)", "refs/switchtower").split():
        run_git(workspace, "update-ref", "-d", ref)
    run_git(workspace, "gc", "--quiet", "--prune=now")
    assert "missing" in run_git(workspace, "cat-file", "--batch-check", input=before.encode())

    again = await checkpoints.take(str(workspace), SESSION, "again")
    assert again == before
    write(workspace, {"a.txt": "two\n", "dir/b.txt": "two\n"})
    undone = await checkpoints.restore(str(workspace), before=again, after=None, direction="undo")
    assert undone.files == ("a.txt", "dir/b.txt")
    assert (workspace / "dir/b.txt").read_text() == "one\n"


async def wait_until_settled(workspace: Path) -> None:
    """Only files that have not changed for a moment are remembered."""
    newest = max(path.stat().st_ctime for path in workspace.rglob("*"))
    probe = workspace / ".git" / "probe"
    async with asyncio.timeout(60):
        while True:
            probe.touch()
            if probe.stat().st_ctime > newest + 1.1:
                break
            await asyncio.sleep(0.05)
    probe.unlink()
