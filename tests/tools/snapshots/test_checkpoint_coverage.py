"""What a checkpoint covers and what it leaves alone."""

import os
from pathlib import Path

import pytest
from tests.tools.git.repositories import make_repository, read_git_folder, read_tree, run_git, write
from tests.tools.snapshots.workspaces import SESSION, MakeWorkspace

from switchtower.tools.git.process import GitUnavailable
from switchtower.tools.snapshots.checkpoints import Checkpoints
from switchtower.tools.snapshots.scan import SnapshotLimits


async def test_secrets_are_never_stored_and_never_touched(
    make_workspace: MakeWorkspace, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    secret = "hunter2-9a7c"
    workspace = make_workspace({".env": secret, "sub/.ssh/config": secret, "key.pem": secret, "plain.txt": "plain\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {".env": "changed", "sub/.ssh/config": "changed", "sub/.ssh/new": "new", "plain.txt": "changed\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    shown = await checkpoints.diff(str(workspace), before, after)
    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)

    assert undone.files == ("plain.txt",)
    assert (workspace / ".env").read_text() == "changed"
    assert (workspace / "sub/.ssh/new").read_text() == "new"
    assert "changed" in shown
    assert ".env" not in shown
    contents = read_all_objects(workspace, tmp_path / "data")
    assert "plain\n" in contents
    assert secret not in contents


def read_all_objects(workspace: Path, data: Path) -> str:
    """The content of every object that git can find, in the repository if there is one and in our stores."""
    stores = [f"--git-dir={store}" for store in data.glob("*/*") if (store / "objects").is_dir()]
    show = ("cat-file", "--batch-all-objects", "--batch")
    return run_git(workspace, *show, check=False) + "".join(run_git(workspace, store, *show) for store in stores)


async def test_ignored_files_are_not_covered_unless_they_are_named(
    make_workspace: MakeWorkspace, checkpoints: Checkpoints
) -> None:
    workspace = make_workspace({".gitignore": "*.log\nbuild/\n", "x.log": "one\n", "build/out": "one\n", "a.txt": "one\n"})
    named = ["x.log", "./build/../build/new", str(workspace / "build/out"), "../outside", "/etc/passwd", ""]
    unnamed = await checkpoints.take(str(workspace), SESSION, "unnamed-before")
    before = await checkpoints.take(str(workspace), SESSION, "before", also=named)
    write(workspace, {"x.log": "two\n", "build/out": "two\n", "build/new": "two\n", "a.txt": "two\n"})
    unnamed_after = await checkpoints.take(str(workspace), SESSION, "unnamed-after")
    after = await checkpoints.take(str(workspace), SESSION, "after", also=named)

    undone = await checkpoints.restore(str(workspace), before=unnamed, after=unnamed_after, direction="undo")
    assert undone.files == ("a.txt",)
    assert (workspace / "x.log").read_text() == "two\n"

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("a.txt", "build/new", "build/out", "x.log")
    assert (workspace / "build/out").read_text() == "one\n"
    assert not (workspace / "build/new").exists()


async def test_a_file_that_was_only_ignored_before_is_not_taken_for_a_new_one(
    make_workspace: MakeWorkspace, checkpoints: Checkpoints
) -> None:
    workspace = make_workspace({".gitignore": "data/\n*.log\n", "data/years of work": "precious\n", "logs/x.log": "precious\n"})
    write(workspace, {f"data/{number}": "precious\n" for number in range(200)})
    was = read_tree(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {".gitignore": "", "logs/new.txt": "new\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert undone.files == (".gitignore", "logs/new.txt")
    assert read_tree(workspace) == was


async def test_repositories_inside_are_left_alone(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({"a.txt": "one\n", "inner-to-be/x.txt": "one\n"})
    make_repository(workspace / "inner", {"b.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "inner/b.txt": "two\n", "inner/c.txt": "two\n", "inner-to-be/x.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    make_repository(workspace / "inner-to-be")
    was = read_git_folder(workspace / "inner")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert (undone.files, undone.skipped) == (("a.txt",), ("inner-to-be/x.txt",))
    assert (workspace / "inner/b.txt").read_text() == "two\n"
    assert (workspace / "inner/c.txt").exists()
    assert read_git_folder(workspace / "inner") == was


async def test_a_folder_that_becomes_a_repository_is_left_alone_from_then_on(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n", "inner/x.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    make_repository(workspace / "inner", {"x.txt": "two\n"})
    write(workspace, {"a.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert (undone.files, undone.skipped) == (("a.txt",), ())
    assert (workspace / "inner/x.txt").read_text() == "two\n"


async def test_submodules_are_left_alone(tmp_path: Path, checkpoints: Checkpoints) -> None:
    library = make_repository(tmp_path / "library", {"lib.txt": "lib\n"})
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    run_git(workspace, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    run_git(workspace, "commit", "--quiet", "--message", "with a submodule")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "sub/lib.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("a.txt",)
    assert (workspace / "sub/lib.txt").read_text() == "two\n"

    # In the submodule itself they work, and its objects go into its own repository.
    tree = await checkpoints.take(str(workspace / "sub"), SESSION, "before")
    assert run_git(workspace / "sub", "cat-file", "-t", tree) == "tree\n"


async def test_rubbish_is_left_out_where_no_repository_says_what_to_ignore(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = tmp_path / "workspace"
    write(
        workspace, {"a.txt": "one\n", "node_modules/x/y.js": "one\n", "web/node_modules/z.js": "one\n", ".venv/bin/python": "x"}
    )
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "node_modules/x/y.js": "two\n", "node_modules/new.js": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    assert (await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")).files == ("a.txt",)
    assert (workspace / "node_modules/new.js").exists()


async def test_large_and_special_files_are_left_out_and_never_removed(make_workspace: MakeWorkspace, data: Path) -> None:
    checkpoints = Checkpoints(data, limits=SnapshotLimits(file_bytes=1000))
    workspace = make_workspace({"grows.txt": "small\n", "shrinks.txt": "x" * 1001, "large.bin": "x" * 1001})
    os.mkfifo(workspace / "pipe")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"grows.txt": "x" * 1001, "shrinks.txt": "small\n", "large.bin": "y" * 1001})
    became = read_tree(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert undone.files == ()
    assert read_tree(workspace) == became
    redone = await checkpoints.restore(str(workspace), before=before, after=after, direction="redo", force=True)
    assert redone.files == ()
    assert read_tree(workspace) == became


async def test_our_own_folders_are_never_covered(tmp_path: Path) -> None:
    workspace = make_repository(tmp_path / "workspace", {"a.txt": "one\n"})
    checkpoints = Checkpoints(workspace / "home/data/checkpoints", apart=[workspace / "home"])
    write(workspace, {"home/journal.db": "1\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"home/journal.db": "2\n", "home/new": "2\n", "a.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    assert (await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")).files == ("a.txt",)
    assert (workspace / "home/journal.db").read_text() == "2\n"


async def test_without_a_word_about_apart_only_our_store_is_left_out(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, {"a.txt": "one\n"})
    checkpoints = Checkpoints(workspace / "store")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    after = await checkpoints.take(str(workspace), SESSION, "after")
    assert await checkpoints.diff(str(workspace), before, after) == ""
    assert before == after


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (SnapshotLimits(folder_files=3, repository_files=3), "more than 3 files"),
        (SnapshotLimits(new_bytes=1000), "more than 1000 bytes have changed"),
        (SnapshotLimits(names_left_out=5), "more than 5 files that are ignored"),
    ],
)
async def test_what_is_too_much_is_refused_with_a_remedy(
    make_workspace: MakeWorkspace, data: Path, limits: SnapshotLimits, says: str
) -> None:
    workspace = make_workspace(
        {".gitignore": "*.log\n"}
        | {f"{number}.txt": "x" * 400 for number in range(4)}
        | {f"{number}.log": "x" for number in range(6)}
    )
    with pytest.raises(GitUnavailable, match=f"{says}.*hint: let `.gitignore` name"):
        await Checkpoints(data, limits=limits).take(str(workspace), SESSION, "before")
    assert await Checkpoints(data).take(str(workspace), SESSION, "before")


async def test_folders_inside_folders_without_end_are_left_out(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({"a.txt": "one\n"})
    deep = os.open(workspace, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n"})
    undone = await checkpoints.restore(str(workspace), before=before, after=None, direction="undo")
    assert undone.files == ("a.txt",)
