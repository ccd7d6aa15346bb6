"""Where a command runs, as far as its words tell: in the workspace, or wherever a `cd` may have taken it."""

import re
from collections.abc import Iterable

from msgspec import Struct

from switchtower.core.policy import paths
from switchtower.core.policy.runs import Words

_CHANGES_FOLDER = frozenset({"cd", "chdir", "pushd", "popd"})
_MOST_FOLDERS = 4
_THROUGH_PROC = re.compile(r"/+proc/+[^/]+/+(?:task/+[^/]+/+)?(cwd|root)(?=/|$)")


class WorkingDirectories(Struct, frozen=True):
    workspace: str = ""
    bases: tuple[paths.Parts, ...] = ((),)
    """The folders of the workspace that it may stand in."""
    outside: tuple[paths.Parts, ...] = ()
    """The folders elsewhere that it may stand in, from the root of the file system."""
    astray: bool = False
    """It changes to a folder outside, or to one that is not known."""
    lost: bool = False
    """It changes to a folder that is not known."""

    @property
    def has_moved(self) -> bool:
        """Whether some of it may run in another folder than the workspace's own."""
        return self.astray or self.bases != ((),)

    def locate(self, path: str) -> list[paths.Parts] | None:
        """Where a path leads in the workspace; None when it may lead out of it."""
        if self.astray and not path.startswith("/"):
            return None
        found = self.locate_possible(path)
        return found if len(found) == len(self.bases) else None

    def locate_possible(self, path: str) -> list[paths.Parts]:
        """Where in the workspace it may lead; what may lead out of it as well is left aside."""
        located = (paths.locate_in_workspace(path, self.workspace, base) for base in self.bases)
        return [parts for parts in located if parts is not None]

    def locate_reachable(self, path: str) -> list[paths.Parts]:
        """Where in the workspace it may lead, also by a way through other folders. For rules that ask or deny: it errs
        towards too much."""
        if path.startswith("/") and (through := _THROUGH_PROC.match(path)):
            path = path[through.end() :] if through[1] == "root" else f".{path[through.end() :]}"
        found = self.locate_possible(path)
        if not path.startswith(("/", "~")) and not self.outside and not self.lost and ".." not in path:
            return found
        home = paths.make_absolute(self.workspace)
        for base in (*((*home, *base) for base in self.bases), *self.outside):
            parts = paths.make_absolute(path, base)
            if paths.is_below(parts, home):
                found.append(parts[len(home) :])
        if home and (self.lost or path.startswith("~")):
            parts = paths.make_absolute(path.lstrip("~"))
            found.extend(
                parts[at + 1 :] for at, part in enumerate(parts) if paths.normalize_name(part) == paths.normalize_name(home[-1])
            )
        return found


def track_directories(commands: Iterable[Words], workspace: str) -> WorkingDirectories:
    """Where these commands may be by the end. A `cd` may fail or stand in a subshell, so where they were counts too."""
    bases: list[paths.Parts] = [()]
    outside: list[paths.Parts] = []
    home = paths.make_absolute(workspace)
    for words in commands:
        if words[0].text not in _CHANGES_FOLDER:
            continue
        target = words[1] if len(words) == 2 and words[0].text == "cd" else None
        is_known = target is not None and target.known and not target.wild and not target.text.startswith(("-", "~"))
        if target is None or not is_known or len(bases) + len(outside) > _MOST_FOLDERS:
            return WorkingDirectories(workspace, tuple(bases), tuple(outside), astray=True, lost=True)
        entered = [paths.locate_in_workspace(target.text, workspace, base) for base in bases]
        ways = [(*home, *base) for base, changed in zip(bases, entered, strict=True) if changed is None]
        for way in (paths.make_absolute(target.text, base) for base in (*ways, *outside)):
            if paths.is_below(way, home):
                entered.append(way[len(home) :])
            outside.append(way)
        bases = list(dict.fromkeys((*bases, *(changed for changed in entered if changed is not None))))
        outside = list(dict.fromkeys(outside))
    return WorkingDirectories(workspace, tuple(bases), tuple(outside), astray=bool(outside))
