"""The differences between two snapshots as a unified diff. Git writes it, from two trees that hold nothing but what differs."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from switchtower.tools.git.plumbing import git
from switchtower.tools.running.leash import Leash
from switchtower.tools.snapshots import objects, trees
from switchtower.tools.snapshots.objects import Entry
from switchtower.tools.snapshots.snapshot import Difference
from switchtower.tools.snapshots.store import Store

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


def unified(differences: Iterable[Difference], scratch: Store, folder: Path, limit_bytes: int, held: Leash) -> str:
    """Both trees go into the scratch store. What is beyond the limit is cut off, and the text says so."""
    before: trees.Folder = {}
    after: trees.Folder = {}
    for difference in differences:
        _put(before, difference.path, difference.before)
        _put(after, difference.path, difference.after)
    with tempfile.TemporaryFile(dir=folder) as file, scratch.checker(held) as checker:
        pack = objects.Pack(scratch.algorithm, file)
        ids = [trees.add(side, set(), pack, checker) for side in (before, after)]
        scratch.write(pack, held)
    config = ("-c", "core.quotePath=false", "-c", f"core.bigFileThreshold={_LARGE}")
    with scratch.git.start(held, *config, "diff-tree", *_HOW, *ids) as running:
        shown = b""
        for chunk in running.output():
            shown += chunk
            if len(shown) > limit_bytes:
                whole_lines = shown[:limit_bytes].rpartition(b"\n")[0]
                return f"{whole_lines.decode(errors='replace')}\n[… cut at {limit_bytes} bytes …]\n"
        if running.exit_code != 0:
            raise git.Failed("git diff-tree failed")
    return shown.decode(errors="replace")


def _put(folder: trees.Folder, path: str, entry: Entry | None) -> None:
    if entry is None:
        return
    *parts, name = path.split("/")
    for part in parts:
        below = folder.setdefault(part, {})
        assert isinstance(below, dict), "one side of a comparison has a file or a folder of a name, not both"
        folder = below
    folder[name] = entry
