"""Objects out of a store, through a git process that stays for as long as there are questions."""

from collections.abc import Sequence

from switchtower.tools.git.plumbing import git
from switchtower.tools.running.leash import CancelScope, HelperProgram
from switchtower.tools.snapshots import objects

_CHECKS_AT_ONCE = 200
"""So few that neither side's pipe fills up while the other waits."""
_LARGEST = 256 * 1024 * 1024
"""Nothing of ours is larger. Whoever can write to the repository can put something endless in its place."""


class ObjectChecker:
    """Tells which objects a store has, in a size that can be read."""

    def __init__(self, running: HelperProgram) -> None:
        self._running = running

    def find_missing(self, ids: Sequence[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(ids), _CHECKS_AT_ONCE):
            chunk = ids[start : start + _CHECKS_AT_ONCE]
            _write_line(self._running, "".join(f"{id}\n" for id in chunk))
            for id in chunk:
                answer = self._running.stdout.readline()
                if not answer.endswith(b"\n"):
                    raise git.GitError("git cat-file ended early")
                if not _is_present(answer.split()):
                    missing.append(id)
        return missing


class ObjectReader:
    """Reads objects, and believes none that is not what its id says."""

    def __init__(self, running: HelperProgram, cancel_scope: CancelScope) -> None:
        self._running = running
        self._cancel_scope = cancel_scope

    def read_blob(self, id: str) -> bytes:
        content = self._read(id, "blob")
        if objects.compute_object_id(objects.detect_algorithm(id), "blob", content) != id:
            raise objects.DamagedObject(f"the object {id} is not what its id says")
        return content

    def read_tree(self, id: str) -> dict[bytes, objects.TreeEntry]:
        return objects.decode_tree(self._read(id, "tree"), id)

    def _read(self, id: str, kind: str) -> bytes:
        self._cancel_scope.raise_if_cancelled()
        _write_line(self._running, f"{id}\n")
        answer = self._running.stdout.readline().split()
        if len(answer) != 3 or answer[0] != id.encode():
            raise objects.DamagedObject(f"the object {id} is gone")
        size = int(answer[2])
        if size > _LARGEST:
            raise git.GitError(f"the object {id} is not ours")  # and git is about to send all of it
        content = self._running.stdout.read(size + 1)[:-1]
        if answer[1] != kind.encode() or len(content) != size:
            raise objects.DamagedObject(f"the object {id} is no {kind}")
        return content


def _is_present(answer: Sequence[bytes]) -> bool:
    """One that nobody can read is as good as gone."""
    match answer:
        case [_, b"missing"]:
            return False
        case [_, _, size]:
            return int(size) <= _LARGEST
        case _:
            return True


def _write_line(running: HelperProgram, text: str) -> None:
    try:
        running.stdin.write(text.encode())
        running.stdin.flush()
    except BrokenPipeError:
        raise git.GitError("git cat-file ended early") from None
