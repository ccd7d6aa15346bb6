"""Where a command runs, as far as its words tell: in the workspace, or wherever a `cd` may have taken it."""

from collections.abc import Iterable

from msgspec import Struct

from switchtower.core.policy import paths
from switchtower.core.policy.runs import Words

_CHANGES_FOLDER = frozenset({"cd", "chdir", "pushd", "popd"})
_MOST_FOLDERS = 4


class Place(Struct, frozen=True):
    workspace: str = ""
    bases: tuple[paths.Parts, ...] = ((),)
    """The folders of the workspace that it may stand in."""
    astray: bool = False
    """It changes to a folder outside, or to one that is not known."""

    @property
    def has_moved(self) -> bool:
        """Whether some of it may run in another folder than the workspace's own."""
        return self.astray or self.bases != ((),)

    def locate(self, path: str) -> list[paths.Parts] | None:
        """Where a path leads in the workspace; None when it may lead out of it."""
        if self.astray and not path.startswith("/"):
            return None
        found = self.possible(path)
        return found if len(found) == len(self.bases) else None

    def possible(self, path: str) -> list[paths.Parts]:
        """Where in the workspace it may lead; what may lead out of it as well is left aside."""
        located = (paths.inside(path, self.workspace, base) for base in self.bases)
        return [parts for parts in located if parts is not None]


def after(commands: Iterable[Words], workspace: str) -> Place:
    """Where these commands may be by the end. A `cd` may fail or stand in a subshell, so where they were counts too."""
    bases: list[paths.Parts] = [()]
    for words in commands:
        if words[0].text not in _CHANGES_FOLDER:
            continue
        target = words[1] if len(words) == 2 and words[0].text == "cd" else None
        if target is None or not target.known or target.wild or target.text.startswith("-") or len(bases) > _MOST_FOLDERS:
            return Place(workspace, tuple(bases), astray=True)
        for base in tuple(bases):
            changed = paths.inside(target.text, workspace, base)
            if changed is None:
                return Place(workspace, tuple(bases), astray=True)
            if changed not in bases:
                bases.append(changed)
    return Place(workspace, tuple(bases))
