"""The differences between two snapshots as a unified diff. Git writes it, from two trees that hold nothing but what differs."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from switchtower.tools.git.plumbing import git
from switchtower.tools.running.leash import CancelScope
from switchtower.tools.snapshots import objects, trees
from switchtower.tools.snapshots.objects import TreeEntry
from switchtower.tools.snapshots.snapshot import FileDifference
from switchtower.tools.snapshots.store import ObjectStore

_HOW = (
    "-r",
    "-p",
    "-M",
    "-l400",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_LARGE = "2m"
"""A larger file is shown as binary: comparing it line by line takes too long."""


def diff_snapshots(
    differences: Iterable[FileDifference], scratch: ObjectStore, folder: Path, limit_bytes: int, cancel_scope: CancelScope
) -> str:
    """Both trees go into the scratch store. What is beyond the limit is cut off, and the text says so."""
    before: trees.FolderTree = {}
    after: trees.FolderTree = {}
    for difference in differences:
        _write_file(before, difference.path, difference.before)
        _write_file(after, difference.path, difference.after)
    with tempfile.TemporaryFile(dir=folder) as file, scratch.open_checker(cancel_scope) as checker:
        pack = objects.ObjectPack(scratch.algorithm, file)
        ids = [trees.add_trees(side, set(), pack, checker) for side in (before, after)]
        scratch.write(pack, cancel_scope)
    config = ("-c", "core.quotePath=false", "-c", f"core.bigFileThreshold={_LARGE}")
    with scratch.git.start(cancel_scope, *config, "diff-tree", *_HOW, *ids) as running:
        shown = b""
        for chunk in running.read_output():
            shown += chunk
            if len(shown) > limit_bytes:
                whole_lines = shown[:limit_bytes].rpartition(b"\n")[0]
                return f"{whole_lines.decode(errors='replace')}\n[… cut at {limit_bytes} bytes …]\n"
        if running.exit_code != 0:
            raise git.GitError("git diff-tree failed")
    return shown.decode(errors="replace")


def _write_file(folder: trees.FolderTree, path: str, entry: TreeEntry | None) -> None:
    if entry is None:
        return
    *parts, name = path.split("/")
    for part in parts:
        below = folder.setdefault(part, {})
        assert isinstance(below, dict), "one side of a comparison has a file or a folder of a name, not both"
        folder = below
    folder[name] = entry
