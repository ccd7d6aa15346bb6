"""What the runs of a session did to its workspace, so that it can be undone and made again. Names of git trees only; no files."""

from msgspec import Struct


class WorkspaceChange(Struct, frozen=True):
    """One run's doing, as the trees before and after it. Without an `after` the run ended in a crash."""

    run_id: str
    before: str
    after: str | None = None


class Timeline(Struct, frozen=True):
    """The runs that can be undone, the last one last, and those that were undone, the last undone last."""

    done: tuple[WorkspaceChange, ...] = ()
    undone: tuple[WorkspaceChange, ...] = ()
