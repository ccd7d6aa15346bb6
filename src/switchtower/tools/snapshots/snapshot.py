"""A snapshot as git objects, and the differences between two of them.

It is a tree of three: `files` as they were, `left-out` with the names of existing files that are not in it, and `private` with
the names of files that only their owner may read. A path that either of two snapshots left out does not count as a difference:
its content is unknown.

Git writes the differences as a unified diff, from two trees that contain nothing but the differing files.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from switchtower.tools.git import process
from switchtower.tools.processes.cancellation import CancelScope
from switchtower.tools.snapshots import objects
from switchtower.tools.snapshots.objects import ObjectReader, ObjectStore, TreeEntry
from switchtower.tools.snapshots.scan import WorkspaceScan

_FILES, _LEFT_OUT, _PRIVATE = b"files", b"left-out", b"private"


class WorkspaceSnapshot(Struct, frozen=True):
    files: str
    """The id of their tree."""
    left_out: frozenset[str]
    """The names that were left out; a folder's name ends with a slash."""
    private: frozenset[str]

    def is_covered(self, path: str) -> bool:
        """Returns whether the snapshot would contain the file if it existed."""
        slash = path.find("/")
        while slash >= 0:
            if path[: slash + 1] in self.left_out:
                return False
            slash = path.find("/", slash + 1)
        return path not in self.left_out


class FileDifference(Struct, frozen=True):
    """A file or link that differs. `None` means that it does not exist."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


def encode_snapshot(files: str, scan: WorkspaceScan, keep: Callable[[bytes], str]) -> bytes:
    """Encodes the tree of three. `keep` stores a blob and returns its id."""
    return objects.encode_tree(
        {
            _FILES: TreeEntry(objects.FOLDER, files),
            _LEFT_OUT: TreeEntry(objects.FILE, keep(_join_names(scan.left_out))),
            _PRIVATE: TreeEntry(objects.FILE, keep(_join_names(scan.private))),
        }
    )


def load_snapshot(reader: ObjectReader, id: str) -> WorkspaceSnapshot:
    top = reader.read_tree(id)
    if top.keys() != {_FILES, _LEFT_OUT, _PRIVATE}:
        raise objects.DamagedObject(f"the tree {id} is no checkpoint")
    return WorkspaceSnapshot(
        files=top[_FILES].id,
        left_out=_split_names(reader.read_blob(top[_LEFT_OUT].id)),
        private=_split_names(reader.read_blob(top[_PRIVATE].id)),
    )


def iterate_differences(reader: ObjectReader, before: WorkspaceSnapshot, after: WorkspaceSnapshot) -> Iterator[FileDifference]:
    """Yields the differences in order, folder by folder, without those that one of the two does not cover."""
    for difference in _compare_trees(reader, before.files, after.files, ""):
        if before.is_covered(difference.path) and after.is_covered(difference.path):
            yield difference


def _compare_trees(reader: ObjectReader, before: str | None, after: str | None, prefix: str) -> Iterator[FileDifference]:
    old = reader.read_tree(before) if before else {}
    new = reader.read_tree(after) if after else {}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        path = prefix + os.fsdecode(name)
        (folder_was, file_was), (folder_now, file_now) = _split_kinds(was), _split_kinds(now)
        if file_was or file_now:
            yield FileDifference(path, file_was, file_now)
        if folder_was or folder_now:
            yield from _compare_trees(reader, folder_was, folder_now, f"{path}/")


def _split_kinds(entry: TreeEntry | None) -> tuple[str | None, TreeEntry | None]:
    """Returns it as a folder and as a file; it is at most one of them."""
    return (entry.id, None) if entry and entry.mode == objects.FOLDER else (None, entry)


def _join_names(names: list[str]) -> bytes:
    return b"\0".join(os.fsencode(name) for name in sorted(names))


def _split_names(names: bytes) -> frozenset[str]:
    return frozenset(map(os.fsdecode, names.split(b"\0"))) if names else frozenset()


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
    """Writes both trees to the scratch store and compares them. The diff is truncated at the limit, with a note."""
    before: objects.FolderTree = {}
    after: objects.FolderTree = {}
    for difference in differences:
        _write_file(before, difference.path, difference.before)
        _write_file(after, difference.path, difference.after)
    with tempfile.TemporaryFile(dir=folder) as file, scratch.open_checker(cancel_scope) as checker:
        pack = objects.ObjectPack(scratch.algorithm, file)
        ids = [objects.add_trees(side, set(), pack, checker) for side in (before, after)]
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
            raise process.GitError("git diff-tree failed")
    return shown.decode(errors="replace")


def _write_file(folder: objects.FolderTree, path: str, entry: TreeEntry | None) -> None:
    if entry is None:
        return
    *parts, name = path.split("/")
    for part in parts:
        below = folder.setdefault(part, {})
        assert isinstance(below, dict), "one side of a comparison has a file or a folder of a name, not both"
        folder = below
    folder[name] = entry
