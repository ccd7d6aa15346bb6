"""Objects out of a store, through a git process that stays for as long as there are questions."""

from collections.abc import Sequence

from switchtower.tools.git.plumbing import git
from switchtower.tools.running.leash import Leash, Program
from switchtower.tools.snapshots import objects

_CHECKS_AT_ONCE = 200
"""So few that neither side's pipe fills up while the other waits."""
_LARGEST = 256 * 1024 * 1024
"""Nothing of ours is larger. Whoever can write to the repository can put something endless in its place."""


class Checker:
    """Tells which objects a store has, in a size that can be read."""

    def __init__(self, running: Program) -> None:
        self._running = running

    def missing(self, ids: Sequence[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(ids), _CHECKS_AT_ONCE):
            chunk = ids[start : start + _CHECKS_AT_ONCE]
            _say(self._running, "".join(f"{id}\n" for id in chunk))
            for id in chunk:
                answer = self._running.stdout.readline()
                if not answer.endswith(b"\n"):
                    raise git.Failed("git cat-file ended early")
                if not _is_there(answer.split()):
                    missing.append(id)
        return missing


class Reader:
    """Reads objects, and believes none that is not what its id says."""

    def __init__(self, running: Program, held: Leash) -> None:
        self._running = running
        self._held = held

    def blob(self, id: str) -> bytes:
        content = self._read(id, "blob")
        if objects.object_id(objects.algorithm_of(id), "blob", content) != id:
            raise objects.Damaged(f"the object {id} is not what its id says")
        return content

    def tree(self, id: str) -> dict[bytes, objects.Entry]:
        return objects.decode_tree(self._read(id, "tree"), id)

    def _read(self, id: str, kind: str) -> bytes:
        self._held.check()
        _say(self._running, f"{id}\n")
        answer = self._running.stdout.readline().split()
        if len(answer) != 3 or answer[0] != id.encode():
            raise objects.Damaged(f"the object {id} is gone")
        size = int(answer[2])
        if size > _LARGEST:
            raise git.Failed(f"the object {id} is not ours")  # and git is about to send all of it
        content = self._running.stdout.read(size + 1)[:-1]
        if answer[1] != kind.encode() or len(content) != size:
            raise objects.Damaged(f"the object {id} is no {kind}")
        return content


def _is_there(answer: Sequence[bytes]) -> bool:
    """One that nobody can read is as good as gone."""
    match answer:
        case [_, b"missing"]:
            return False
        case [_, _, size]:
            return int(size) <= _LARGEST
        case _:
            return True


def _say(running: Program, text: str) -> None:
    try:
        running.stdin.write(text.encode())
        running.stdin.flush()
    except BrokenPipeError:
        raise git.Failed("git cat-file ended early") from None
