"""What each session last saw of each file, as a hash of its content. It guards a change against content that is not there
any more.

Bounded, and lost with the daemon: what is forgotten loses only the guard.
"""

import hashlib
import threading
from collections import OrderedDict

MOST_FILES = 4096
SHORT = 12
"""As many characters of a hash as a model is shown; no two versions of one file will share them by accident."""


def compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class KnownFiles:
    def __init__(self, most_files: int = MOST_FILES) -> None:
        self._digests: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._most_files = most_files
        self._lock = threading.Lock()

    def record(self, session: str, workspace: str, path: str, digest: str) -> None:
        """`path` is the file's own, links resolved: a file is the same by whatever name it was reached."""
        with self._lock:
            self._digests[session, workspace, path] = digest
            self._digests.move_to_end((session, workspace, path))
            if len(self._digests) > self._most_files:
                self._digests.popitem(last=False)

    def find_digest(self, session: str, workspace: str, path: str) -> str | None:
        with self._lock:
            return self._digests.get((session, workspace, path))
