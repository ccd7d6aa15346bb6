"""Objects out of a store, through a git process that stays for as long as there are questions."""

import subprocess
from collections.abc import Sequence
from typing import IO

from switchtower.tools.git.plumbing import git
from switchtower.tools.git.plumbing.stop import Stop
from switchtower.tools.snapshots import objects

_CHECKS_AT_ONCE = 200
"""So few that neither side's pipe fills up while the other waits."""


class Checker:
    """Tells which objects a store has."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._ask, self._answer = _pipes(process)

    def missing(self, ids: Sequence[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(ids), _CHECKS_AT_ONCE):
            chunk = ids[start : start + _CHECKS_AT_ONCE]
            _say(self._ask, "".join(f"{id}\n" for id in chunk))
            for id in chunk:
                answer = self._answer.readline()
                if not answer.endswith(b"\n"):
                    raise git.Failed("git cat-file ended early")
                if answer.split() == [id.encode(), b"missing"]:
                    missing.append(id)
        return missing


class Reader:
    """Reads objects, and believes none that is not what its id says."""

    def __init__(self, process: "subprocess.Popen[bytes]", stop: Stop) -> None:
        self._ask, self._answer = _pipes(process)
        self._stop = stop

    def blob(self, id: str) -> bytes:
        content = self._read(id, "blob")
        if objects.object_id(objects.algorithm_of(id), "blob", content) != id:
            raise objects.Damaged(f"the object {id} is not what its id says")
        return content

    def tree(self, id: str) -> dict[bytes, objects.Entry]:
        return objects.decode_tree(self._read(id, "tree"), id)

    def _read(self, id: str, kind: str) -> bytes:
        self._stop.check()
        _say(self._ask, f"{id}\n")
        answer = self._answer.readline().split()
        if len(answer) != 3 or answer[0] != id.encode():
            raise objects.Damaged(f"the object {id} is gone")
        size = int(answer[2])
        content = self._answer.read(size + 1)[:-1]
        if answer[1] != kind.encode() or len(content) != size:
            raise objects.Damaged(f"the object {id} is no {kind}")
        return content


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _say(pipe: IO[bytes], text: str) -> None:
    try:
        pipe.write(text.encode())
        pipe.flush()
    except BrokenPipeError:
        raise git.Failed("git cat-file ended early") from None
