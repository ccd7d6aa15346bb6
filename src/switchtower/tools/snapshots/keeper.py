"""All that can be done with one workspace's snapshots. One at a time: whoever calls it holds the workspace's lock."""

import shutil
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from switchtower.tools.git.plumbing import discovery, git
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running.leash import CancelScope
from switchtower.tools.snapshots import differ, objects, snapshot, store
from switchtower.tools.snapshots.limits import SnapshotLimits
from switchtower.tools.snapshots.restoring import RestoreResult, Restorer, RestoreStep
from switchtower.tools.snapshots.taker import SnapshotTaker

_MOST_IN_A_NAME = 100
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}_-".encode())


class WorkspaceSnapshots(Struct, frozen=True):
    root: str
    """The workspace, links resolved."""
    folder: Path
    """Where we keep what we need for it."""
    apart: frozenset[str]
    limits: SnapshotLimits
    cancel_scope: CancelScope

    def take(self, session_id: str, label: str, also: Sequence[str]) -> str:
        with _translate_errors():
            taker, place = self._open_store()
            mark = self._sessions / _to_name(session_id)
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            id = taker.take(place, also=also)
            # The id is part of the name: a label that is used twice loses nothing.
            place.keep(f"{_to_name(session_id)}/{_to_name(label)}-{id[:12]}", id, self.cancel_scope)
            return id

    def plan_restore(self, before: str, after: str | None, *, redo: bool) -> list[RestoreStep]:
        """What has to be done to get from `after` to `before`, or the other way round."""
        with _translate_errors(), self._open_comparison(before, after) as (place, old, new, differences):
            wanted = new if redo else old
            steps = [
                RestoreStep(
                    path=difference.path,
                    have=difference.before if redo else difference.after,
                    want=difference.after if redo else difference.before,
                    private=difference.path in wanted.private,
                )
                for difference in differences
            ]
            with place.open_checker(self.cancel_scope) as checker:
                if checker.find_missing([step.want.id for step in steps if step.want]):
                    raise objects.DamagedObject("a file's content is gone")
            return steps

    def restore(self, steps: Sequence[RestoreStep], *, force: bool) -> RestoreResult:
        with _translate_errors():
            _, place = self._open_store()
            with place.open_reader(self.cancel_scope) as reader:
                return Restorer(
                    self.root, algorithm=place.algorithm, most_bytes=self.limits.file_bytes, reader=reader, force=force
                ).restore(steps)

    def diff(self, before: str, after: str | None, limit_bytes: int) -> str:
        with _translate_errors(), self._open_comparison(before, after) as (place, _, _, differences):
            return differ.diff_snapshots(differences, place, self.folder, limit_bytes, self.cancel_scope)

    def forget(self, session_id: str) -> None:
        """Drops what the session has kept here, and with the last session all that we have of the workspace."""
        with _translate_errors():
            for place in store.list_stores(self.folder):
                place.drop(_to_name(session_id), self.cancel_scope)
            with suppress(FileNotFoundError):
                (self._sessions / _to_name(session_id)).unlink()
            if not any(self._sessions.glob("*")):
                shutil.rmtree(self.folder, ignore_errors=True)
            elif own := store.find_own_store(self.folder):
                own.clean(self.cancel_scope)

    @property
    def _sessions(self) -> Path:
        """A mark for each session that has checkpoints here."""
        return self.folder / "sessions"

    def _open_store(self) -> tuple[SnapshotTaker, store.ObjectStore]:
        if not Path(self.root).is_dir():
            raise GitUnavailable(f"the workspace `{self.root}` is not there", hint="put the folder back where it was")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        where = discovery.find_verified_repository(self.root, self.cancel_scope)
        taker = SnapshotTaker(self.root, self.folder, where, self.apart, self.limits, self.cancel_scope)
        return taker, store.open_store(where, self.folder)

    @contextmanager
    def _open_comparison(
        self, before: str, after: str | None
    ) -> Iterator[
        tuple[store.ObjectStore, snapshot.WorkspaceSnapshot, snapshot.WorkspaceSnapshot, list[snapshot.FileDifference]]
    ]:
        """Both snapshots and what differs, with a store that can be written to for the while. Without an `after` it is the
        workspace as it is now."""
        taker, place = self._open_store()
        for id in (before, after):
            if id is not None and (not objects.is_id(id) or objects.detect_algorithm(id) != place.algorithm):
                raise objects.DamagedObject(f"`{id[:12]}` is no checkpoint of this workspace")
        with place.open_scratch(self.folder) as scratch:
            now = taker.take(scratch, remember=False) if after is None else after
            with scratch.open_reader(self.cancel_scope) as reader:
                old, new = snapshot.load_snapshot(reader, before), snapshot.load_snapshot(reader, now)
                differences = list(snapshot.iterate_differences(reader, old, new))
            yield scratch, old, new, differences


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turns what can go wrong into one thing that callers understand."""
    try:
        yield
    except objects.DamagedObject as damage:
        raise GitUnavailable(
            f"the checkpoint is gone or damaged: {damage}",
            hint="checkpoints live in the repository's `.git` folder and go with it",
        ) from damage
    except git.GitError as failure:
        raise GitUnavailable(f"git failed: {failure}", hint="see what `git fsck` says in the workspace") from failure
    except OSError as error:
        about = f"{error.strerror or error}: `{error.filename}`" if error.filename else str(error)
        raise GitUnavailable(about, hint="see whether the disk is full and who may write there") from error


def _to_name(text: str) -> str:
    """A part of a ref's name, and a file's: letters, digits, `_` and `-` as they are, all else spelled out."""
    name = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in text.encode(errors="replace"))
    return name if 0 < len(name) <= _MOST_IN_A_NAME else "=" + sha256(text.encode(errors="replace")).hexdigest()[:32]
