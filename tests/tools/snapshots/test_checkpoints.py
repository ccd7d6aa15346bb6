"""Checkpoints in real folders and real repositories: whatever a run changed there is taken back and made again."""

import asyncio
from pathlib import Path

from tests.tools.git.repositories import make_repository, read_tree, run_git, write
from tests.tools.snapshots.workspaces import SESSION, MakeWorkspace

from switchtower.tools.snapshots.checkpoints import Checkpoints


async def test_a_run_is_undone_and_made_again_in_any_kind_of_workspace(
    make_any_workspace: MakeWorkspace, checkpoints: Checkpoints
) -> None:
    workspace = make_any_workspace({"a.txt": "one\n", "dir/b.txt": "two\n", "gone.txt": "three\n", "tool": "#!/bin/sh\n"})
    (workspace / "link").symlink_to("a.txt")
    was = read_tree(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "run_1-before")

    write(workspace, {"a.txt": "ONE\n", "new/deep/c.txt": "four\n"})
    (workspace / "gone.txt").unlink()
    (workspace / "tool").chmod(0o755)
    (workspace / "link").unlink()
    (workspace / "link").symlink_to("dir/b.txt")
    became = read_tree(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "run_1-after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert read_tree(workspace) == was
    assert undone.files == ("a.txt", "gone.txt", "link", "new/deep/c.txt", "tool")
    assert (undone.skipped, undone.failed) == ((), ())
    assert not (workspace / "new").exists()

    redone = await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert read_tree(workspace) == became
    assert redone.files == undone.files


async def test_a_checkpoint_of_a_subfolder_leaves_the_rest_of_the_repository_alone(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    top = make_repository(tmp_path / "top", {"above.txt": "above\n", "sub/inside.txt": "inside\n"})
    before = await checkpoints.take(str(top / "sub"), SESSION, "before")
    write(top, {"above.txt": "changed\n", "sub/inside.txt": "changed\n"})
    after = await checkpoints.take(str(top / "sub"), SESSION, "after")

    assert (await checkpoints.restore(str(top / "sub"), before=before, after=after, direction="undo")).files == ("inside.txt",)
    assert read_tree(top) == {"above.txt": ("file", b"changed\n"), "sub/inside.txt": ("file", b"inside\n")}


async def test_bytes_are_kept_as_they_are_on_disk_whatever_git_would_make_of_them(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    workspace = make_repository(tmp_path / "workspace")
    run_git(workspace, "config", "core.autocrlf", "true")
    write(workspace, {".gitattributes": "*.txt text eol=crlf\n*.u16 working-tree-encoding=UTF-16\n*.id ident\n"})
    files: dict[str, str | bytes] = {
        "dos.txt": b"one\r\ntwo\r\n",
        "mixed.txt": b"one\r\ntwo\n",
        "wide.u16": "wide\n".encode("utf-16"),
        "tagged.id": b"$Id: left alone $\n",
        "binary": bytes(range(256)),
    }
    write(workspace, files)
    run_git(workspace, "add", "--all")
    run_git(workspace, "commit", "--quiet", "--message", "first")
    was = read_tree(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, dict.fromkeys(files, "changed\n"))
    after = await checkpoints.take(str(workspace), SESSION, "after")

    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert read_tree(workspace) == was
    assert run_git(workspace, "status", "--porcelain") == ""


async def test_names_may_hold_anything_that_the_system_allows(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    names = [
        "new\nline",
        "tab\tand\rreturn",
        'quo"te',
        "back\\slash",
        " spaces ",
        "-rf",
        "*?[",
        "ü",
        "\udcff\udcfe",
        "x" * 255,
        ":(top)",
    ]
    workspace = make_workspace({f"{name}/{name}": "one\n" for name in names})
    was = read_tree(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {f"{name}/{name}": "two\n" for name in names})
    became = read_tree(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert read_tree(workspace) == was
    assert len(undone.files) == len(names)
    assert "��/��" in undone.files  # whoever is told reads text
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert read_tree(workspace) == became


async def test_a_repository_of_sha256_has_checkpoints_of_sha256(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"}, "--object-format=sha256")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n"} | {f"{number}.txt": "x" for number in range(150)})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    assert len(before) == 64
    assert "+two" in await checkpoints.diff(str(workspace), before, after)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert read_tree(workspace) == {"a.txt": ("file", b"one\n")}
    run_git(workspace, "fsck", "--strict", "--no-dangling")


async def test_a_folder_that_becomes_a_repository_on_the_way_can_still_be_undone(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, {"a.txt": "one\n", "target/x": "rubbish\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    make_repository(workspace, {"a.txt": "two\n", "b.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("a.txt", "b.txt")
    assert read_tree(workspace) == {"a.txt": ("file", b"one\n"), "target/x": ("file", b"rubbish\n")}
    assert run_git(workspace, "log", "--oneline") != ""

    # And the other way round, as long as its objects are still there.
    (workspace / ".git/HEAD").rename(workspace / ".git/HEAD.away")
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert (workspace / "b.txt").read_text() == "two\n"


async def test_checkpoints_of_one_workspace_wait_for_each_other(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    trees = await asyncio.gather(*(checkpoints.take(str(workspace), f"sess_{number}", "before") for number in range(6)))
    assert len(set(trees)) == 1
    await asyncio.gather(*(checkpoints.forget(str(workspace), f"sess_{number}") for number in range(6)))


async def test_a_workspace_without_files_has_a_checkpoint_too(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({})
    (workspace / "committed.txt").unlink(missing_ok=True)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "one\n"})
    assert (await checkpoints.restore(str(workspace), before=before, after=None, direction="undo")).files == ("a.txt",)
    if (workspace / ".git").exists():
        run_git(workspace, "fsck", "--strict", "--no-dangling")
