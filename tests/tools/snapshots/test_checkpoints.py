"""Checkpoints in real folders and real repositories: what is kept, what is not, and that nobody else notices."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.git.repositories import git, insides, repository, state, write

from switchtower.tools.running import orphans
from switchtower.tools.snapshots import stats
from switchtower.tools.snapshots.checkpoints import Checkpoints, Limits, Unavailable

SESSION = "sess_01"
MakeWorkspace = Callable[[dict[str, str | bytes]], Path]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def checkpoints(data: Path) -> Checkpoints:
    return Checkpoints(data)


def make(kind: str, tmp_path: Path, files: dict[str, str | bytes]) -> Path:
    """A workspace of that kind, with the files in it."""
    workspace = tmp_path / "workspace"
    match kind:
        case "plain folder":
            workspace.mkdir()
        case "repository":
            repository(workspace, {"committed.txt": "committed\n"})
        case "subfolder of a repository":
            repository(tmp_path / "above", {"committed.txt": "above\n", "sub/committed.txt": "committed\n"})
            workspace = tmp_path / "above" / "sub"
        case "repository without commits":
            repository(workspace)
        case "worktree":
            repository(tmp_path / "origin", {"committed.txt": "committed\n"})
            git(tmp_path / "origin", "worktree", "add", "--quiet", str(workspace))
        case _:
            raise AssertionError(kind)
    write(workspace, files)
    return workspace


@pytest.fixture(params=["plain folder", "repository"])
def make_workspace(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorkspace:
    return partial(make, request.param, tmp_path)


@pytest.fixture(params=["plain folder", "repository", "subfolder of a repository", "repository without commits", "worktree"])
def make_any_workspace(request: pytest.FixtureRequest, tmp_path: Path) -> MakeWorkspace:
    return partial(make, request.param, tmp_path)


async def test_a_run_is_undone_and_made_again_in_any_kind_of_workspace(
    make_any_workspace: MakeWorkspace, checkpoints: Checkpoints
) -> None:
    workspace = make_any_workspace({"a.txt": "one\n", "dir/b.txt": "two\n", "gone.txt": "three\n", "tool": "#!/bin/sh\n"})
    (workspace / "link").symlink_to("a.txt")
    was = state(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "run_1-before")

    write(workspace, {"a.txt": "ONE\n", "new/deep/c.txt": "four\n"})
    (workspace / "gone.txt").unlink()
    (workspace / "tool").chmod(0o755)
    (workspace / "link").unlink()
    (workspace / "link").symlink_to("dir/b.txt")
    became = state(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "run_1-after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert state(workspace) == was
    assert undone.files == ("a.txt", "gone.txt", "link", "new/deep/c.txt", "tool")
    assert (undone.skipped, undone.failed) == ((), ())
    assert not (workspace / "new").exists()

    redone = await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert state(workspace) == became
    assert redone.files == undone.files


async def test_a_checkpoint_of_a_subfolder_leaves_the_rest_of_the_repository_alone(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    top = repository(tmp_path / "top", {"above.txt": "above\n", "sub/inside.txt": "inside\n"})
    before = await checkpoints.take(str(top / "sub"), SESSION, "before")
    write(top, {"above.txt": "changed\n", "sub/inside.txt": "changed\n"})
    after = await checkpoints.take(str(top / "sub"), SESSION, "after")

    assert (await checkpoints.restore(str(top / "sub"), before=before, after=after, direction="undo")).files == ("inside.txt",)
    assert state(top) == {"above.txt": ("file", b"changed\n"), "sub/inside.txt": ("file", b"inside\n")}


async def test_the_repository_looks_the_same_to_everybody_but_git_gc(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {f"{number}.txt": f"{number}\n" for number in range(150)})
    write(workspace, {"staged.txt": "staged\n", "0.txt": "changed\n", "untracked.txt": "untracked\n"})
    git(workspace, "add", "staged.txt")
    git(workspace, "stash", "push", "--quiet", "--keep-index")
    write(workspace, {"1.txt": "changed\n", "untracked.txt": "untracked\n"})
    before_all = insides(workspace)
    asked = ("status --porcelain", "log --all --oneline", "branch --all", "stash list", "reflog --all", "diff", "diff --cached")
    answers = [git(workspace, *command.split()) for command in asked]

    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {f"{number}.txt": "rewritten\n" for number in range(150)})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    await checkpoints.diff(str(workspace), before)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")

    assert insides(workspace) == before_all
    assert [git(workspace, *command.split()) for command in asked] == answers
    git(workspace, "fsck", "--strict", "--no-dangling")


async def test_checkpoints_survive_gc_and_packed_refs_until_they_are_forgotten(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "a\n"})
    write(workspace, {"a.txt": "uncommitted\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "later\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    other = await checkpoints.take(str(workspace), "sess_02", "before")

    git(workspace, "pack-refs", "--all")
    git(workspace, "gc", "--quiet", "--prune=now")
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert (workspace / "a.txt").read_text() == "uncommitted\n"

    await checkpoints.forget(str(workspace), SESSION)
    assert git(workspace, "for-each-ref", "--format=%(objectname)", "refs/switchtower").split() == [other]
    git(workspace, "gc", "--quiet", "--prune=now")
    with pytest.raises(Unavailable, match="gone or damaged"):
        await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert await checkpoints.diff(str(workspace), other) != ""


async def test_refs_are_neither_cloned_nor_pushed(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "a\n"})
    await checkpoints.take(str(workspace), SESSION, "before")
    git(tmp_path, "clone", "--quiet", str(workspace), "clone")
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    git(workspace, "push", "--quiet", "--all", str(tmp_path / "remote.git"))

    assert git(workspace, "for-each-ref", "refs/switchtower") != ""
    assert git(tmp_path / "clone", "for-each-ref", "refs/switchtower") == ""
    assert git(tmp_path / "remote.git", "for-each-ref", "refs/switchtower") == ""


async def test_labels_and_sessions_of_any_spelling_have_refs_of_their_own(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "0\n"})
    odd = ["a b", "a..b", "x.lock", "../../heads/main", "-d", "", "ü\udc80", "x" * 400, "same", "same"]
    trees = []
    for number, name in enumerate(odd):
        write(workspace, {"a.txt": f"{number}\n"})
        trees.append(await checkpoints.take(str(workspace), name, name))

    refs = git(workspace, "for-each-ref", "--format=%(objectname) %(refname)", "refs").splitlines()
    assert sorted(ref.split()[0] for ref in refs if "refs/switchtower/" in ref) == sorted(trees)
    assert [ref.split()[1] for ref in refs if "refs/switchtower/" not in ref] == ["refs/heads/main"]
    for name in odd:
        await checkpoints.forget(str(workspace), name)
    assert git(workspace, "for-each-ref", "refs/switchtower") == ""


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
    origin = repository(tmp_path / "origin", {"a.txt": "a\n"})
    git(origin, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    await checkpoints.take(str(tmp_path / "tree"), SESSION, "before")
    assert git(origin, "for-each-ref", "refs/switchtower") != ""
    git(origin, "worktree", "remove", "--force", str(tmp_path / "tree"))

    with pytest.raises(Unavailable, match="not there"):
        await checkpoints.take(str(tmp_path / "tree"), SESSION, "after")
    await checkpoints.forget(str(tmp_path / "tree"), SESSION)
    assert git(origin, "for-each-ref", "refs/switchtower") == ""


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


async def test_bytes_are_kept_as_they_are_on_disk_whatever_git_would_make_of_them(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    workspace = repository(tmp_path / "workspace")
    git(workspace, "config", "core.autocrlf", "true")
    write(workspace, {".gitattributes": "*.txt text eol=crlf\n*.u16 working-tree-encoding=UTF-16\n*.id ident\n"})
    files: dict[str, str | bytes] = {
        "dos.txt": b"one\r\ntwo\r\n",
        "mixed.txt": b"one\r\ntwo\n",
        "wide.u16": "wide\n".encode("utf-16"),
        "tagged.id": b"$Id: left alone $\n",
        "binary": bytes(range(256)),
    }
    write(workspace, files)
    git(workspace, "add", "--all")
    git(workspace, "commit", "--quiet", "--message", "first")
    was = state(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, dict.fromkeys(files, "changed\n"))
    after = await checkpoints.take(str(workspace), SESSION, "after")

    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert state(workspace) == was
    assert git(workspace, "status", "--porcelain") == ""


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
    was = state(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {f"{name}/{name}": "two\n" for name in names})
    became = state(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert state(workspace) == was
    assert len(undone.files) == len(names)
    assert "��/��" in undone.files  # whoever is told reads text
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert state(workspace) == became


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
    contents = all_objects(workspace, tmp_path / "data")
    assert "plain\n" in contents
    assert secret not in contents


def all_objects(workspace: Path, data: Path) -> str:
    """The content of every object that git can find, in the repository if there is one and in our stores."""
    stores = [f"--git-dir={store}" for store in data.glob("*/*") if (store / "objects").is_dir()]
    show = ("cat-file", "--batch-all-objects", "--batch")
    return git(workspace, *show, check=False) + "".join(git(workspace, store, *show) for store in stores)


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
    was = state(workspace)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {".gitignore": "", "logs/new.txt": "new\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert undone.files == (".gitignore", "logs/new.txt")
    assert state(workspace) == was


async def test_repositories_inside_are_left_alone(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({"a.txt": "one\n", "inner-to-be/x.txt": "one\n"})
    repository(workspace / "inner", {"b.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "inner/b.txt": "two\n", "inner/c.txt": "two\n", "inner-to-be/x.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    repository(workspace / "inner-to-be")
    was = insides(workspace / "inner")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert (undone.files, undone.skipped) == (("a.txt",), ("inner-to-be/x.txt",))
    assert (workspace / "inner/b.txt").read_text() == "two\n"
    assert (workspace / "inner/c.txt").exists()
    assert insides(workspace / "inner") == was


async def test_a_folder_that_becomes_a_repository_is_left_alone_from_then_on(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "one\n", "inner/x.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    repository(workspace / "inner", {"x.txt": "two\n"})
    write(workspace, {"a.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert (undone.files, undone.skipped) == (("a.txt",), ())
    assert (workspace / "inner/x.txt").read_text() == "two\n"


async def test_submodules_are_left_alone(tmp_path: Path, checkpoints: Checkpoints) -> None:
    library = repository(tmp_path / "library", {"lib.txt": "lib\n"})
    workspace = repository(tmp_path / "workspace", {"a.txt": "one\n"})
    git(workspace, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    git(workspace, "commit", "--quiet", "--message", "with a submodule")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n", "sub/lib.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("a.txt",)
    assert (workspace / "sub/lib.txt").read_text() == "two\n"

    # In the submodule itself they work, and its objects go into its own repository.
    tree = await checkpoints.take(str(workspace / "sub"), SESSION, "before")
    assert git(workspace / "sub", "cat-file", "-t", tree) == "tree\n"


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
    checkpoints = Checkpoints(data, limits=Limits(file_bytes=1000))
    workspace = make_workspace({"grows.txt": "small\n", "shrinks.txt": "x" * 1001, "large.bin": "x" * 1001})
    os.mkfifo(workspace / "pipe")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"grows.txt": "x" * 1001, "shrinks.txt": "small\n", "large.bin": "y" * 1001})
    became = state(workspace)
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo", force=True)
    assert undone.files == ()
    assert state(workspace) == became
    redone = await checkpoints.restore(str(workspace), before=before, after=after, direction="redo", force=True)
    assert redone.files == ()
    assert state(workspace) == became


async def test_our_own_folders_are_never_covered(tmp_path: Path) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "one\n"})
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
        (Limits(folder_files=3, repository_files=3), "more than 3 files"),
        (Limits(new_bytes=1000), "more than 1000 bytes have changed"),
        (Limits(names_left_out=5), "more than 5 files that are ignored"),
    ],
)
async def test_what_is_too_much_is_refused_with_a_remedy(
    make_workspace: MakeWorkspace, data: Path, limits: Limits, says: str
) -> None:
    workspace = make_workspace(
        {".gitignore": "*.log\n"}
        | {f"{number}.txt": "x" * 400 for number in range(4)}
        | {f"{number}.log": "x" for number in range(6)}
    )
    with pytest.raises(Unavailable, match=f"{says}.*hint: let `.gitignore` name"):
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


async def test_without_git_there_are_no_checkpoints(
    tmp_path: Path, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "workspace", {"a.txt": "a\n"})
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(Unavailable, match="git is not installed; hint: install git"):
        await checkpoints.take(str(tmp_path / "workspace"), SESSION, "before")


@pytest.mark.parametrize("where", [".git", ".git/hooks", "../bare.git"])
async def test_a_repositorys_own_folder_is_no_workspace(tmp_path: Path, checkpoints: Checkpoints, where: str) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "a\n"})
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    with pytest.raises(Unavailable, match="repository's own store"):
        await checkpoints.take(str(workspace / where), SESSION, "before")


@pytest.mark.parametrize("tree", ["", "HEAD", "--help", "0" * 40, "0" * 64, "g" * 40])
async def test_what_is_no_checkpoint_is_refused(make_workspace: MakeWorkspace, checkpoints: Checkpoints, tree: str) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    with pytest.raises(Unavailable, match="gone or damaged"):
        await checkpoints.restore(str(workspace), before=tree, after=None, direction="undo")
    with pytest.raises(Unavailable, match="gone or damaged"):
        await checkpoints.diff(str(workspace), tree)


async def test_a_tree_of_the_repository_itself_is_no_checkpoint(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "a\n"})
    tree = git(workspace, "rev-parse", "HEAD^{tree}").strip()
    with pytest.raises(Unavailable, match="is no checkpoint"):
        await checkpoints.diff(str(workspace), tree)


async def test_a_repository_of_sha256_has_checkpoints_of_sha256(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "one\n"}, "--object-format=sha256")
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "two\n"} | {f"{number}.txt": "x" for number in range(150)})
    after = await checkpoints.take(str(workspace), SESSION, "after")
    assert len(before) == 64
    assert "+two" in await checkpoints.diff(str(workspace), before, after)
    await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert state(workspace) == {"a.txt": ("file", b"one\n")}
    git(workspace, "fsck", "--strict", "--no-dangling")


async def test_a_folder_that_becomes_a_repository_on_the_way_can_still_be_undone(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    workspace = tmp_path / "workspace"
    write(workspace, {"a.txt": "one\n", "target/x": "rubbish\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    repository(workspace, {"a.txt": "two\n", "b.txt": "two\n"})
    after = await checkpoints.take(str(workspace), SESSION, "after")

    undone = await checkpoints.restore(str(workspace), before=before, after=after, direction="undo")
    assert undone.files == ("a.txt", "b.txt")
    assert state(workspace) == {"a.txt": ("file", b"one\n"), "target/x": ("file", b"rubbish\n")}
    assert git(workspace, "log", "--oneline") != ""

    # And the other way round, as long as its objects are still there.
    (workspace / ".git/HEAD").rename(workspace / ".git/HEAD.away")
    await checkpoints.restore(str(workspace), before=before, after=after, direction="redo")
    assert (workspace / "b.txt").read_text() == "two\n"


async def test_users_can_use_git_while_checkpoints_are_taken(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {f"{number}.txt": "x\n" for number in range(50)})
    enough = threading.Event()
    troubles: list[str] = []

    def use_git() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            write(workspace, {"theirs.txt": f"{number}\n"})
            try:
                git(workspace, "add", "--all")
                git(workspace, "commit", "--quiet", "--message", str(number))
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
    assert git(workspace, "status", "--porcelain") == ""
    git(workspace, "fsck", "--strict", "--no-dangling")
    assert "files/theirs.txt" in git(workspace, "ls-tree", "-r", "--name-only", trees[-1])


async def test_checkpoints_of_one_workspace_wait_for_each_other(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    trees = await asyncio.gather(*(checkpoints.take(str(workspace), f"sess_{number}", "before") for number in range(6)))
    assert len(set(trees)) == 1
    await asyncio.gather(*(checkpoints.forget(str(workspace), f"sess_{number}") for number in range(6)))


async def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path, checkpoints: Checkpoints) -> None:
    workspace = repository(tmp_path / "workspace", {"a.txt": "one\n"})
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
    assert "a.txt" not in stats.load(kept / "stats", "sha1").files


async def test_a_workspace_without_files_has_a_checkpoint_too(make_workspace: MakeWorkspace, checkpoints: Checkpoints) -> None:
    workspace = make_workspace({})
    (workspace / "committed.txt").unlink(missing_ok=True)
    before = await checkpoints.take(str(workspace), SESSION, "before")
    write(workspace, {"a.txt": "one\n"})
    assert (await checkpoints.restore(str(workspace), before=before, after=None, direction="undo")).files == ("a.txt",)
    if (workspace / ".git").exists():
        git(workspace, "fsck", "--strict", "--no-dangling")


async def test_an_object_that_was_lost_is_stored_again(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """What is remembered about a file is worth nothing when its content has gone from the store."""
    workspace = repository(tmp_path / "workspace", {"committed.txt": "c\n"})
    write(workspace, {"a.txt": "one\n", "dir/b.txt": "one\n"})
    before = await checkpoints.take(str(workspace), SESSION, "before")
    await wait_until_settled(workspace)
    await checkpoints.take(str(workspace), "sess_02", "before")  # remembers the files
    for ref in git(workspace, "for-each-ref", "--format=%(refname)", "refs/switchtower").split():
        git(workspace, "update-ref", "-d", ref)
    git(workspace, "gc", "--quiet", "--prune=now")
    assert "missing" in git(workspace, "cat-file", "--batch-check", input=before.encode())

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
    async with asyncio.timeout(10):
        while True:
            probe.touch()
            if probe.stat().st_ctime > newest + 1.1:
                break
            await asyncio.sleep(0.05)
    probe.unlink()


class Stuck:
    """A repository that keeps git waiting: its configuration includes a pipe into which nobody writes."""

    def __init__(self, workspace: Path, pipe: Path) -> None:
        os.mkfifo(pipe)
        git(workspace, "config", "include.path", str(pipe))
        self._pipe = pipe
        self._end = -1

    async def is_reached(self) -> None:
        """Git reads the pipe now."""
        async with asyncio.timeout(10):
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
def stuck(tmp_path: Path) -> Stuck:
    return Stuck(repository(tmp_path / "workspace", {"a.txt": "a\n"}), tmp_path / "pipe")


async def test_a_cancelled_checkpoint_leaves_no_process(tmp_path: Path, checkpoints: Checkpoints, stuck: Stuck) -> None:
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before"))
    await stuck.is_reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stuck.is_over()


async def test_a_checkpoint_that_takes_too_long_is_given_up(tmp_path: Path, data: Path, stuck: Stuck) -> None:
    checkpoints = Checkpoints(data, limits=Limits(seconds=0.5))
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before"))
    await stuck.is_reached()
    with pytest.raises(Unavailable, match=r"it took longer than 0.5 seconds; hint: let `\.gitignore`"):
        await task
    stuck.is_over()


async def test_a_waiting_git_carries_its_runs_mark_so_that_it_is_found_after_a_crash(
    tmp_path: Path, checkpoints: Checkpoints, stuck: Stuck
) -> None:
    run_id = f"run_{uuid4().hex}"
    task = asyncio.create_task(checkpoints.take(str(tmp_path / "workspace"), SESSION, "before", run_id=run_id))
    await stuck.is_reached()
    assert await asyncio.to_thread(orphans.any_marked, run_id)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await asyncio.to_thread(orphans.any_marked, run_id)


async def test_what_a_killed_daemon_left_is_swept_up(make_workspace: MakeWorkspace, checkpoints: Checkpoints, data: Path) -> None:
    workspace = make_workspace({"a.txt": "a\n"})
    await checkpoints.take(str(workspace), SESSION, "before")
    (kept,) = data.iterdir()
    write(kept, {"scratch-x/pack/pack-1.pack": "half", "stats": b"rubbish"})
    await checkpoints.take(str(workspace), SESSION, "after")
    assert not (kept / "scratch-x").exists()
