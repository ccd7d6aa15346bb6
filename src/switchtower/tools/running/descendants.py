"""Everything below a process, held by pidfds so that it can be ended later, when parents have died and nobody could tell
any more who belonged to whom. For what the marker and the process group miss: a program that dropped both.
"""

import os
import signal

from switchtower.tools.running import proc


class Descendants:
    def __init__(self, ancestor: int) -> None:
        """The ancestor must be a child of ours that is not reaped yet, so that its pid is its own."""
        self._ancestor = ancestor
        self._pidfds: dict[int, int] = {}

    def refresh(self) -> None:
        """Adds those that are there now, also below earlier ones whose own parents are gone."""
        children: dict[int, list[int]] = {}
        for pid in proc.list_pids():
            if (parent := proc.find_parent(pid)) is not None:
                children.setdefault(parent, []).append(pid)
        parents = [self._ancestor, *self._pidfds]
        while parents:
            parent = parents.pop()
            for pid in children.get(parent, ()):
                if pid not in self._pidfds and self._hold(pid, parent):
                    parents.append(pid)

    def kill(self, timeout_s: float) -> None:
        """Kills them all and waits until they are gone, or until patience runs out."""
        proc.send_signal(self._pidfds.values(), signal.SIGKILL)
        proc.wait_for_end(self._pidfds.values(), timeout_s)

    def close(self) -> None:
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])

    def _hold(self, pid: int, parent: int) -> bool:
        """Whether it is, now that a pidfd pins it, still a child of that parent, and the parent still the one we know."""
        pidfd = proc.open_pidfd(pid)
        if pidfd is None:
            return False
        if proc.find_parent(pid) == parent and (parent == self._ancestor or not proc.wait_for_end([self._pidfds[parent]], 0)):
            self._pidfds[pid] = pidfd
            return True
        os.close(pidfd)
        return False
