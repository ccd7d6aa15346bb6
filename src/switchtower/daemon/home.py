"""The daemon's home on disk: one daemon a home, and where clients find it.

The lock is the kernel's, so a crash releases it: a pid file or a socket that a dead daemon left is never in the way.
"""

import fcntl
import os
import secrets
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.daemon import private_files

LOCK_TRIES = 5
LOCK_PAUSE = 0.02


class AlreadyRunning(Exception):
    """Another daemon holds this home."""

    def __init__(self, run_dir: Path, pid: str) -> None:
        self.message = f"a daemon is already running for {run_dir} (pid {pid})"
        super().__init__(f"{self.message}; hint: `tower stop` ends it")


class DaemonEndpoints(Struct, frozen=True):
    """Where the daemon can be reached, as `endpoints.json` tells local clients. The token is the owner's."""

    pid: int
    socket: str
    http: str | None
    pi: str | None
    """The WebSocket of the pi protocol's own port."""
    pi_socket: str | None = msgspec.field(name="piSocket")
    hostd_socket: str | None
    """The Unix socket of the host's own HTTP."""
    token: str
    version: str
    started_at_ms: int
    file_state: str = ""
    """As `config.Settings.file_state` was at the start: clients see by it whether a change of the file needs a restart."""
    options: dict[str, str] = {}
    """The flags of its command line, for a restart."""
    listening: dict[str, str] = {}
    """What the ports `http` and `pi` are bound to, such as `0.0.0.0:8787`."""


class DaemonHome:
    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._lock_fd: int | None = None

    def claim(self) -> None:
        """Takes the lock, or says who has it."""
        settings = self._settings
        for folder in (settings.run_dir, settings.data_dir, settings.log_path.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock_fd = os.open(settings.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _try_lock(lock_fd):
            holder = os.pread(lock_fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock_fd)
            raise AlreadyRunning(settings.run_dir, holder)
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, str(os.getpid()).encode(), 0)
        self._lock_fd = lock_fd

    def load_owner_token(self) -> str:
        """The owner's token: made once, so that a page stays logged in over a restart."""
        return private_files.read_or_create_private(self._settings.data_dir / "owner.token", lambda: secrets.token_urlsafe(32))

    def write_endpoints(self, endpoints: DaemonEndpoints) -> None:
        private_files.write_private(self._settings.pid_path, str(endpoints.pid).encode())
        private_files.write_private(self._settings.endpoints_path, msgspec.json.format(msgspec.json.encode(endpoints)))

    def release(self) -> None:
        if self._lock_fd is None:
            return
        for path in (self._settings.endpoints_path, self._settings.pid_path):
            path.unlink(missing_ok=True)
        os.close(self._lock_fd)
        self._lock_fd = None


def _try_lock(lock_fd: int) -> bool:
    """Takes the lock. A client that only looks who holds it has it for an instant too, so one refusal is not the last word."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
        else:
            return True
    return False
