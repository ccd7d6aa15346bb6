"""Files and folders that lie in a repository while a sandboxed command runs, so that mounts can lie on them, and are removed
afterwards. They change nothing for git: what they say is what git assumes without them.

Several commands may run in one repository, of several daemons. Each holds a shared lock on the folder; what the last one
finds is removed. A placeholder under a mount must stay: removing it from outside would remove the mount as well. What a
killed daemon leaves is removed after the next command.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from switchtower.tools.git.places import PLACEHOLDER_COMMONDIR, Placeholder

_LOCK_TIMEOUT = 2.0
"""For a lock that is held while placeholders are removed, which takes less than a millisecond."""
_PAUSE = 0.005

_made: set[str] = set()
"""Those that this process has put somewhere, and may remove."""
_lock = threading.Lock()


class PlaceholderHold:
    """Placeholders in their places, until `release`. Raises `OSError` when they cannot be put there."""

    def __init__(self, wanted: Iterable[Placeholder]) -> None:
        self._descriptors: dict[str, int] = {}
        self._wanted = tuple(wanted)
        try:
            for folder in sorted({os.path.dirname(one.path) for one in self._wanted}):  # noqa: PTH120
                self._descriptors[folder] = _lock_folder(folder)
            for one in self._wanted:
                _create_placeholder(one)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """To be called when everything in the sandbox has ended."""
        for folder, descriptor in self._descriptors.items():
            try:
                # Only when no other command has its mounts there.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_placeholders(one for one in self._wanted if os.path.dirname(one.path) == folder)  # noqa: PTH120
            except OSError:
                pass
            finally:
                os.close(descriptor)
        self._descriptors.clear()


def _lock_folder(folder: str) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR) or time.monotonic() > deadline:
                os.close(descriptor)
                raise OSError(error.errno, f"`{folder}` is locked by another process") from error
            time.sleep(_PAUSE)
        else:
            return descriptor


def _create_placeholder(one: Placeholder) -> None:
    if os.path.lexists(one.path):
        return
    if one.content is None:
        os.mkdir(one.path, 0o755)  # noqa: PTH102 - as git makes it
    else:
        # Whole from its first moment: git outside may look at any time.
        beside = f"{one.path}.{os.getpid()}.{threading.get_ident()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, one.content)
        finally:
            os.close(descriptor)
        os.rename(beside, one.path)  # noqa: PTH104
    with _lock:
        _made.add(one.path)


def _remove_placeholders(placeholders: Iterable[Placeholder]) -> None:
    for one in placeholders:
        with _lock:
            is_ours = one.path in _made
            _made.discard(one.path)
        with suppress(OSError):
            if one.content is None:
                if is_ours:
                    os.rmdir(one.path)  # noqa: PTH106 - git may have filled it from outside meanwhile; then it stays
            elif (is_ours or one.content == PLACEHOLDER_COMMONDIR) and Path(one.path).read_bytes() == one.content:
                os.unlink(one.path)  # noqa: PTH108
