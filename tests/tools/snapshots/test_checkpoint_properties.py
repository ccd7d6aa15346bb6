"""Any edits of any tree: undo gives back exactly what was there before, redo exactly what was there after."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tools.git.repositories import make_repository, read_tree, run_git

from switchtower.tools.snapshots.checkpoints import Checkpoints

Edit = tuple[str, str, bytes]

NAMES = st.sampled_from(["a", "b", "c", "d.txt", "é", "\udcfe", "x\ny", "-"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from([b"", b"one\n", b"two\n", b"one\r\n", b"\0\xff" * 50])
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATHS, CONTENTS),
        st.tuples(st.just("program"), PATHS, CONTENTS),
        st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"../b", b"/no/such", b"\xfe"])),
        st.tuples(st.just("remove"), PATHS, st.just(b"")),
        st.tuples(st.just("folder"), PATHS, st.just(b"")),
        st.tuples(st.just("commit"), st.just(""), st.just(b"")),
    ),
    max_size=12,
)


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_room(root: Path, path: Path) -> None:
    """Whatever is in the way goes, as when a program writes a whole tree anew."""
    for parent in reversed(path.relative_to(root).parents):
        folder = root / parent
        if folder.is_symlink() or not folder.is_dir():
            clear(folder)
            folder.mkdir()
    clear(path)


def apply_edit(root: Path, what: str, name: str, content: bytes) -> None:
    path = root / name
    match what:
        case "write" | "program":
            make_room(root, path)
            path.write_bytes(content)
            path.chmod(0o755 if what == "program" else 0o644)
        case "link":
            make_room(root, path)
            path.symlink_to(os.fsdecode(content))
        case "folder":
            make_room(root, path)
            path.mkdir()
        case "remove":
            if path.parent.is_dir() and not any(parent.is_symlink() for parent in path.parents):
                clear(path)
        case "commit" if (root / ".git").is_dir():
            run_git(root, "add", "--all")
            run_git(root, "commit", "--quiet", "--allow-empty", "--message", "x")


@pytest.mark.parametrize("kind", ["plain folder", "repository"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(first=EDITS, run=EDITS, second_run=EDITS)
def test_undo_and_redo_are_exact(kind: str, first: list[Edit], run: list[Edit], second_run: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        root.mkdir()
        if kind == "repository":
            make_repository(root)
        asyncio.run(check(root, Checkpoints(Path(folder) / "data"), [first, run, second_run]))


async def check(root: Path, checkpoints: Checkpoints, rounds: list[list[Edit]]) -> None:
    workspace = str(root)
    states = []
    trees = []
    for number, edits in enumerate(rounds):
        for step in edits:
            apply_edit(root, *step)
        states.append(read_tree(root))
        trees.append(await checkpoints.take(workspace, "sess_01", str(number)))

    for now in (1, 0):
        undone = await checkpoints.restore(workspace, before=trees[now], after=trees[now + 1], direction="undo")
        assert (read_tree(root), undone.skipped, undone.failed) == (states[now], (), ())
    for now in (1, 2):
        redone = await checkpoints.restore(workspace, before=trees[now - 1], after=trees[now], direction="redo")
        assert (read_tree(root), redone.skipped, redone.failed) == (states[now], (), ())
    # All at once, from what is there now.
    await checkpoints.restore(workspace, before=trees[0], after=None, direction="undo")
    assert read_tree(root) == states[0]
    assert await checkpoints.diff(workspace, trees[0]) == ""
    assert await checkpoints.take(workspace, "sess_01", "again") == trees[0]
