"""Bringing files back: only what the run changed, never what somebody has changed since, and never outside the workspace."""

import asyncio
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.tools.git.repositories import make_repository, read_tree, run_git, write
from tests.tools.snapshots.workspaces import SESSION

from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.snapshots import objects, restore
from switchtower.tools.snapshots.checkpoints import Checkpoints
from switchtower.tools.snapshots.restore import RestoreResult


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    write(folder, {"x.txt": "theirs\n", "deep/x.txt": "theirs\n"})
    return folder


class CheckpointedRun:
    """What a run changed, between two checkpoints."""

    def __init__(self, checkpoints: Checkpoints, workspace: Path) -> None:
        self._checkpoints = checkpoints
        self._workspace = str(workspace)
        self.before = ""
        self.after = ""

    async def start(self) -> None:
        self.before = await self._checkpoints.take(self._workspace, SESSION, "before")

    async def finish(self) -> None:
        self.after = await self._checkpoints.take(self._workspace, SESSION, "after")

    async def undo(self, *, force: bool = False) -> RestoreResult:
        return await self._checkpoints.restore(
            self._workspace, before=self.before, after=self.after, direction="undo", force=force
        )

    async def redo(self, *, force: bool = False) -> RestoreResult:
        return await self._checkpoints.restore(
            self._workspace, before=self.before, after=self.after, direction="redo", force=force
        )


@pytest.fixture
def checkpointed_run(checkpoints: Checkpoints, workspace: Path) -> CheckpointedRun:
    return CheckpointedRun(checkpoints, workspace)


async def test_what_somebody_changed_since_is_left_alone_unless_forced(
    checkpointed_run: CheckpointedRun, workspace: Path
) -> None:
    write(workspace, {"theirs.txt": "one\n", "ours.txt": "one\n", "gone.txt": "one\n", "elsewhere.txt": "one\n", "mode": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"theirs.txt": "two\n", "ours.txt": "two\n", "gone.txt": "two\n", "mode": "two\n", "new.txt": "two\n"})
    await checkpointed_run.finish()
    write(workspace, {"theirs.txt": "three\n", "new.txt": "three\n", "elsewhere.txt": "three\n"})
    (workspace / "gone.txt").unlink()
    (workspace / "mode").chmod(0o755)

    undone = await checkpointed_run.undo()
    assert undone == RestoreResult(files=("ours.txt",), skipped=("gone.txt", "mode", "new.txt", "theirs.txt"))
    assert read_tree(workspace) == {
        "theirs.txt": ("file", b"three\n"),
        "ours.txt": ("file", b"one\n"),
        "elsewhere.txt": ("file", b"three\n"),
        "mode": ("program", b"two\n"),
        "new.txt": ("file", b"three\n"),
    }

    forced = await checkpointed_run.undo(force=True)
    assert forced == RestoreResult(files=("gone.txt", "mode", "new.txt", "ours.txt", "theirs.txt"))
    assert read_tree(workspace) == {
        "theirs.txt": ("file", b"one\n"),
        "ours.txt": ("file", b"one\n"),
        "gone.txt": ("file", b"one\n"),
        "mode": ("file", b"one\n"),
        "elsewhere.txt": ("file", b"three\n"),
    }


async def test_without_an_after_what_is_there_now_counts_as_the_runs(
    checkpoints: Checkpoints, checkpointed_run: CheckpointedRun, workspace: Path
) -> None:
    write(workspace, {"a.txt": "one\n"})
    was = read_tree(workspace)
    await checkpointed_run.start()
    write(workspace, {"a.txt": "two\n", "new.txt": "two\n"})
    restored = await checkpoints.restore(str(workspace), before=checkpointed_run.before, after=None, direction="undo")
    assert restored == RestoreResult(files=("a.txt", "new.txt"))
    assert read_tree(workspace) == was


async def test_undo_twice_does_the_same_as_once(checkpointed_run: CheckpointedRun, workspace: Path) -> None:
    write(workspace, {"a.txt": "one\n", "gone.txt": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"a.txt": "two\n", "dir/new.txt": "two\n"})
    (workspace / "gone.txt").unlink()
    await checkpointed_run.finish()
    first = await checkpointed_run.undo()
    was = read_tree(workspace)
    assert await checkpointed_run.undo() == first
    assert read_tree(workspace) == was


async def test_files_become_folders_and_folders_files_both_ways(checkpointed_run: CheckpointedRun, workspace: Path) -> None:
    write(workspace, {"file": "one\n", "folder/a": "one\n", "folder/b/c": "one\n", "emptied": "one\n"})
    (workspace / "link").symlink_to("folder")
    was = read_tree(workspace)
    await checkpointed_run.start()
    for name in ("file", "link", "folder/a", "folder/b/c", "emptied"):
        (workspace / name).unlink()
    (workspace / "folder/b").rmdir()
    (workspace / "folder").rmdir()
    write(workspace, {"file/inside": "two\n", "link/inside": "two\n"})
    (workspace / "folder").symlink_to("file")
    (workspace / "emptied/only/folders").mkdir(parents=True)
    became = read_tree(workspace)
    await checkpointed_run.finish()

    await checkpointed_run.undo()
    assert read_tree(workspace) == was
    await checkpointed_run.redo()
    assert read_tree(workspace) == became


async def test_a_folder_with_somebodys_file_in_it_is_not_removed(checkpointed_run: CheckpointedRun, workspace: Path) -> None:
    write(workspace, {"place": "one\n"})
    await checkpointed_run.start()
    (workspace / "place").unlink()
    write(workspace, {"place/new.txt": "two\n"})
    await checkpointed_run.finish()
    write(workspace, {"place/theirs.txt": "three\n"})
    undone = await checkpointed_run.undo(force=True)
    assert undone == RestoreResult(files=("place/new.txt",), skipped=("place",))
    assert read_tree(workspace) == {"place/theirs.txt": ("file", b"three\n")}


async def test_permissions_stay_as_tight_as_they_were(checkpointed_run: CheckpointedRun, workspace: Path) -> None:
    write(workspace, {"private.txt": "one\n", "private.sh": "one\n", "shared.txt": "one\n", "stays.txt": "one\n"})
    for name, mode in (("private.txt", 0o600), ("private.sh", 0o700), ("shared.txt", 0o644), ("stays.txt", 0o640)):
        (workspace / name).chmod(mode)
    await checkpointed_run.start()
    for name in ("private.txt", "private.sh", "shared.txt"):
        (workspace / name).unlink()
    write(workspace, {"stays.txt": "two\n"})
    (workspace / "stays.txt").chmod(0o750)
    await checkpointed_run.finish()
    await checkpointed_run.undo()
    modes = {name: stat.S_IMODE((workspace / name).stat().st_mode) for name in ("private.txt", "private.sh", "stays.txt")}
    assert modes == {"private.txt": 0o600, "private.sh": 0o700, "stays.txt": 0o640}
    assert (workspace / "shared.txt").read_text() == "one\n"


async def test_a_file_that_cannot_be_written_is_named_and_the_others_are_restored(
    checkpointed_run: CheckpointedRun, workspace: Path
) -> None:
    write(workspace, {"a.txt": "one\n", "large.bin": b"x" * 200_000})
    await checkpointed_run.start()
    write(workspace, {"a.txt": "two\n", "large.bin": "two\n"})
    await checkpointed_run.finish()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
    try:
        undone = await checkpointed_run.undo()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert undone == RestoreResult(files=("a.txt",), failed=("large.bin: File too large",))
    assert read_tree(workspace) == {"a.txt": ("file", b"one\n"), "large.bin": ("file", b"two\n")}
    assert (await checkpointed_run.undo()).files == ("a.txt", "large.bin")


@pytest.mark.parametrize("force", [False, True])
async def test_a_folder_that_was_swapped_for_a_link_leads_nowhere(
    checkpointed_run: CheckpointedRun, workspace: Path, outside: Path, *, force: bool
) -> None:
    write(workspace, {"dir/x.txt": "one\n", "dir/gone.txt": "one\n", "dir/deep/x.txt": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"dir/x.txt": "theirs\n", "dir/new.txt": "two\n", "dir/deep/x.txt": "theirs\n"})
    (workspace / "dir/gone.txt").unlink()
    await checkpointed_run.finish()
    (workspace / "dir").rename(workspace / "away")
    (workspace / "dir").symlink_to(outside)
    theirs = read_tree(outside)

    undone = await checkpointed_run.undo(force=force)
    assert read_tree(outside) == theirs
    assert undone.skipped == ("dir/deep/x.txt", "dir/gone.txt", "dir/x.txt")
    assert undone.files == ("dir/new.txt",)  # it is not there, as wanted
    assert (workspace / "away/new.txt").read_text() == "two\n"


async def test_a_folder_that_keeps_being_swapped_for_a_link_never_leads_outside(
    checkpointed_run: CheckpointedRun, workspace: Path, outside: Path
) -> None:
    names = [f"dir/{number}.txt" for number in range(30)]
    write(workspace, dict.fromkeys(names, "one\n"))
    await checkpointed_run.start()
    write(workspace, dict.fromkeys(names, "two\n"))
    await checkpointed_run.finish()
    write(outside, dict.fromkeys((Path(name).name for name in names), "two\n"))
    theirs = read_tree(outside)
    enough = threading.Event()

    def swap() -> None:
        (workspace / "link").symlink_to(outside)
        while not enough.is_set():
            with suppress(OSError):
                (workspace / "dir").rename(workspace / "away")
            with suppress(OSError):  # a new folder may have been made in the gap
                (workspace / "link").rename(workspace / "dir")
                (workspace / "dir").rename(workspace / "link")
            shutil.rmtree(workspace / "dir", ignore_errors=True)
            with suppress(OSError):
                (workspace / "away").rename(workspace / "dir")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(3):
            await checkpointed_run.undo(force=True)
            await checkpointed_run.redo(force=True)
    finally:
        enough.set()
        swapper.join()
    assert read_tree(outside) == theirs
    await checkpointed_run.undo(force=True)
    assert {name: content for name, (_, content) in read_tree(workspace).items() if name.startswith("dir/")} == dict.fromkeys(
        names, b"one\n"
    )


async def test_a_file_that_was_swapped_for_a_link_is_replaced_and_not_followed(
    checkpointed_run: CheckpointedRun, workspace: Path, outside: Path
) -> None:
    write(workspace, {"a.txt": "one\n", "b.txt": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"a.txt": "two\n", "b.txt": "two\n"})
    await checkpointed_run.finish()
    for name in ("a.txt", "b.txt"):
        (workspace / name).unlink()
    (workspace / "a.txt").symlink_to(outside / "x.txt")
    (workspace / "b.txt").symlink_to("/no/such/thing")
    theirs = read_tree(outside)
    assert (await checkpointed_run.undo()).skipped == ("a.txt", "b.txt")
    assert (await checkpointed_run.undo(force=True)).files == ("a.txt", "b.txt")
    assert not (workspace / "a.txt").is_symlink()
    assert read_tree(outside) == theirs


async def test_whatever_else_has_taken_a_files_place_is_left_alone(checkpointed_run: CheckpointedRun, workspace: Path) -> None:
    write(workspace, {"pipe": "one\n", "folder": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"pipe": "two\n", "folder": "two\n"})
    await checkpointed_run.finish()
    for name in ("pipe", "folder"):
        (workspace / name).unlink()
    os.mkfifo(workspace / "pipe")
    write(workspace, {"folder/theirs": "three\n"})
    async with asyncio.timeout(60):  # a pipe that is opened for reading would wait for ever
        assert (await checkpointed_run.undo()).skipped == ("folder", "pipe")


DIES_IN_THE_MIDDLE = """
import asyncio, resource, signal, sys
from pathlib import Path
from switchtower.tools.snapshots.checkpoints import Checkpoints

# A file that grows beyond this ends the process then and there, in the middle of writing it.
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
data, workspace, before, after = sys.argv[1:]
asyncio.run(Checkpoints(Path(data)).restore(workspace, before=before, after=after, direction="undo"))
"""


@pytest.mark.parametrize("kind", ["plain folder", "repository"])
async def test_a_restore_that_was_killed_in_the_middle_is_completed_by_the_next(
    tmp_path: Path, checkpoints: Checkpoints, workspace: Path, checkpointed_run: CheckpointedRun, kind: str
) -> None:
    if kind == "repository":
        make_repository(workspace)
    small = {f"{number:02}.txt": f"one {number}\n" for number in range(10)}
    write(workspace, small | {"gone/05-large.bin": b"x" * 200_000, "zz.txt": "one\n"})
    was = read_tree(workspace)
    await checkpointed_run.start()
    write(workspace, dict.fromkeys(small, "two\n") | {"zz.txt": "two\n", "new/a.txt": "two\n"})
    (workspace / "gone/05-large.bin").unlink()
    (workspace / "gone").rmdir()
    became = read_tree(workspace)
    await checkpointed_run.finish()

    command = [
        sys.executable,
        "-c",
        DIES_IN_THE_MIDDLE,
        str(tmp_path / "data"),
        str(workspace),
        checkpointed_run.before,
        checkpointed_run.after,
    ]
    died = await asyncio.to_thread(subprocess.run, command, check=False, timeout=60, capture_output=True)
    assert died.returncode == -signal.SIGXFSZ, died.stderr.decode()
    halfway = read_tree(workspace)
    assert halfway not in (was, became)
    assert [name for name in halfway if name.endswith(".tmp")] != []

    after_crash = await checkpoints.take(str(workspace), SESSION, "after the crash")
    assert ".tmp" not in await checkpoints.diff(str(workspace), checkpointed_run.after, after_crash)
    undone = await checkpointed_run.undo()
    assert read_tree(workspace) == was
    assert undone == RestoreResult(files=tuple(sorted([*small, "gone/05-large.bin", "new/a.txt", "zz.txt"])))
    await checkpointed_run.redo()
    assert read_tree(workspace) == became


async def test_a_cancelled_restore_goes_to_its_end_once_it_has_begun(
    checkpointed_run: CheckpointedRun, checkpoints: Checkpoints, workspace: Path
) -> None:
    names = [f"{number:03}.txt" for number in range(40)]
    write(workspace, dict.fromkeys(names, "one\n"))
    was = read_tree(workspace)
    await checkpointed_run.start()
    write(workspace, dict.fromkeys(names, "two\n"))
    await checkpointed_run.finish()
    task = asyncio.create_task(checkpointed_run.undo())
    async with asyncio.timeout(60):
        while (workspace / names[0]).read_text() != "one\n":
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert read_tree(workspace) == was


async def test_nothing_is_touched_when_a_content_is_missing(
    checkpoints: Checkpoints, workspace: Path, checkpointed_run: CheckpointedRun
) -> None:
    make_repository(workspace, {"a.txt": "one\n"})
    write(workspace, {"b.txt": "before\n", "a.txt": "before a\n"})
    await checkpointed_run.start()
    write(workspace, {"b.txt": "after\n", "a.txt": "after a\n"})
    await checkpointed_run.finish()
    lost = run_git(workspace, "rev-parse", f"{checkpointed_run.before}:files/b.txt").strip()
    (workspace / ".git/objects" / lost[:2] / lost[2:]).unlink()
    became = read_tree(workspace)
    with pytest.raises(GitUnavailable, match="a file's content is gone"):
        await checkpointed_run.undo()
    assert read_tree(workspace) == became


async def test_a_workspace_that_is_not_there_is_said_to_be_so(checkpoints: Checkpoints, tmp_path: Path) -> None:
    with pytest.raises(GitUnavailable, match=r"the workspace `.*nowhere` is not there"):
        await checkpoints.restore(str(tmp_path / "nowhere"), before="0" * 40, after=None, direction="undo")


async def test_a_diff_shows_what_changed_and_says_when_it_is_cut(
    checkpoints: Checkpoints, checkpointed_run: CheckpointedRun, workspace: Path
) -> None:
    write(
        workspace, {"ä b.txt": "one\ntwo\n", "old name.txt": "same\n" * 20, "tool.sh": "x\n", ".gitattributes": "*.txt -diff\n"}
    )
    await checkpointed_run.start()
    write(workspace, {"ä b.txt": "one\nTWO\n", "new.bin": bytes(range(256)), "latin": "caf\xe9\n".encode("latin-1")})
    (workspace / "old name.txt").rename(workspace / "new name.txt")
    (workspace / "tool.sh").chmod(0o755)
    await checkpointed_run.finish()

    shown = await checkpoints.diff(str(workspace), checkpointed_run.before, checkpointed_run.after)
    assert shown == await checkpoints.diff(str(workspace), checkpointed_run.before)
    assert "--- a/ä b.txt" in shown
    assert "-two\n+TWO\n" in shown
    assert "rename from old name.txt\nrename to new name.txt\n" in shown
    assert "old mode 100644\nnew mode 100755\n" in shown
    assert "Binary files /dev/null and b/new.bin differ" in shown
    assert "+caf\ufffd" in shown
    back = await checkpoints.diff(str(workspace), checkpointed_run.after, checkpointed_run.before)
    assert "-TWO\n+two\n" in back
    assert await checkpoints.diff(str(workspace), checkpointed_run.after) == ""

    write(workspace, {"long.txt": "line\n" * 10_000})
    cut = await checkpoints.diff(str(workspace), checkpointed_run.after, limit_bytes=1000)
    assert cut.endswith("\n+line\n[… cut at 1000 bytes …]\n")
    assert len(cut) < 1100


async def test_a_diff_leaves_no_objects_behind(
    checkpoints: Checkpoints, checkpointed_run: CheckpointedRun, workspace: Path, tmp_path: Path
) -> None:
    make_repository(workspace, {"a.txt": "one\n"})
    await checkpointed_run.start()
    write(workspace, {"a.txt": "two\n"})
    objects = sorted((workspace / ".git/objects").rglob("*")), sorted((tmp_path / "data").rglob("*"))
    assert "+two" in await checkpoints.diff(str(workspace), checkpointed_run.before)
    assert (sorted((workspace / ".git/objects").rglob("*")), sorted((tmp_path / "data").rglob("*"))) == objects


def test_a_file_that_holds_secrets_is_not_restored_even_if_a_checkpoint_had_it(workspace: Path) -> None:
    """Rules may have become stricter since it was taken."""

    class NoReader:
        def blob(self, id: str) -> bytes:
            raise AssertionError("nothing may be read for it")

    write(workspace, {".env": "mine\n"})
    step = restore.RestoreStep(path=".env", have=None, want=objects.TreeEntry(objects.FILE, "0" * 40))
    restorer = restore.Restorer(str(workspace), algorithm="sha1", most_bytes=1000, reader=NoReader(), force=True)
    assert restorer.restore([step]) == RestoreResult(skipped=(".env",))
    assert (workspace / ".env").read_text() == "mine\n"
