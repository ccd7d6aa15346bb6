"""All that can be done with one workspace's snapshots. One at a time: whoever calls it holds the workspace's lock."""

import shutil
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from switchtower.tools.git.plumbing import discovery, git
from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running.leash import Leash
from switchtower.tools.snapshots import differ, objects, snapshot, store
from switchtower.tools.snapshots.limits import Limits
from switchtower.tools.snapshots.restoring import Restored, Restorer, Step
from switchtower.tools.snapshots.taker import Taker

_MOST_IN_A_NAME = 100
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits}_-".encode())


class Keeper(Struct, frozen=True):
    root: str
    """The workspace, links resolved."""
    folder: Path
    """Where we keep what we need for it."""
    apart: frozenset[str]
    limits: Limits
    held: Leash

    def take(self, session_id: str, label: str, also: Sequence[str]) -> str:
        with _explained():
            taker, place = self._opened()
            mark = self._sessions / _as_name(session_id)
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            id = taker.take(place, also=also)
            # The id is part of the name: a label that is used twice loses nothing.
            place.keep(f"{_as_name(session_id)}/{_as_name(label)}-{id[:12]}", id, self.held)
            return id

    def steps(self, before: str, after: str | None, *, redo: bool) -> list[Step]:
        """What has to be done to get from `after` to `before`, or the other way round."""
        with _explained(), self._compared(before, after) as (place, old, new, differences):
            wanted = new if redo else old
            steps = [
                Step(
                    path=difference.path,
                    have=difference.before if redo else difference.after,
                    want=difference.after if redo else difference.before,
                    private=difference.path in wanted.private,
                )
                for difference in differences
            ]
            with place.checker(self.held) as checker:
                if checker.missing([step.want.id for step in steps if step.want]):
                    raise objects.Damaged("a file's content is gone")
            return steps

    def restore(self, steps: Sequence[Step], *, force: bool) -> Restored:
        with _explained():
            _, place = self._opened()
            with place.reader(self.held) as reader:
                return Restorer(
                    self.root, algorithm=place.algorithm, most_bytes=self.limits.file_bytes, reader=reader, force=force
                ).restore(steps)

    def diff(self, before: str, after: str | None, limit_bytes: int) -> str:
        with _explained(), self._compared(before, after) as (place, _, _, differences):
            return differ.unified(differences, place, self.folder, limit_bytes, self.held)

    def forget(self, session_id: str) -> None:
        """Drops what the session has kept here, and with the last session all that we have of the workspace."""
        with _explained():
            for place in store.all_in(self.folder):
                place.drop(_as_name(session_id), self.held)
            with suppress(FileNotFoundError):
                (self._sessions / _as_name(session_id)).unlink()
            if not any(self._sessions.glob("*")):
                shutil.rmtree(self.folder, ignore_errors=True)
            elif own := store.own_in(self.folder):
                own.clean(self.held)

    @property
    def _sessions(self) -> Path:
        """A mark for each session that has checkpoints here."""
        return self.folder / "sessions"

    def _opened(self) -> tuple[Taker, store.Store]:
        if not Path(self.root).is_dir():
            raise Unavailable(f"the workspace `{self.root}` is not there", hint="put the folder back where it was")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        where = discovery.find(self.root, self.held)
        taker = Taker(self.root, self.folder, where, self.apart, self.limits, self.held)
        return taker, store.open_for(where, self.folder)

    @contextmanager
    def _compared(
        self, before: str, after: str | None
    ) -> Iterator[tuple[store.Store, snapshot.Snapshot, snapshot.Snapshot, list[snapshot.Difference]]]:
        """Both snapshots and what differs, with a store that can be written to for the while. Without an `after` it is the
        workspace as it is now."""
        taker, place = self._opened()
        for id in (before, after):
            if id is not None and (not objects.is_id(id) or objects.algorithm_of(id) != place.algorithm):
                raise objects.Damaged(f"`{id[:12]}` is no checkpoint of this workspace")
        with place.scratch(self.folder) as scratch:
            now = taker.take(scratch, remember=False) if after is None else after
            with scratch.reader(self.held) as reader:
                old, new = snapshot.load(reader, before), snapshot.load(reader, now)
                differences = list(snapshot.differences(reader, old, new))
            yield scratch, old, new, differences


@contextmanager
def _explained() -> Iterator[None]:
    """Turns what can go wrong into one thing that callers understand."""
    try:
        yield
    except objects.Damaged as damage:
        raise Unavailable(
            f"the checkpoint is gone or damaged: {damage}",
            hint="checkpoints live in the repository's `.git` folder and go with it",
        ) from damage
    except git.Failed as failure:
        raise Unavailable(f"git failed: {failure}", hint="see what `git fsck` says in the workspace") from failure
    except OSError as error:
        about = f"{error.strerror or error}: `{error.filename}`" if error.filename else str(error)
        raise Unavailable(about, hint="see whether the disk is full and who may write there") from error


def _as_name(text: str) -> str:
    """A part of a ref's name, and a file's: letters, digits, `_` and `-` as they are, all else spelled out."""
    name = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in text.encode(errors="replace"))
    return name if 0 < len(name) <= _MOST_IN_A_NAME else "=" + sha256(text.encode(errors="replace")).hexdigest()[:32]
