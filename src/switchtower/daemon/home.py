"""The daemon's home on disk: one daemon per home, the files by which clients find it, and this machine's identity for hubs.

The lock is the kernel's, so a crash releases it: a pid file or a socket that a dead daemon left never blocks a start. The
identity is an id and a token, made once and readable only by the owner. The environment takes precedence.
"""

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.settings.sources import ConfigError
from switchtower.tools import atomic_write

LOCK_TRIES = 5
LOCK_PAUSE = 0.02


class AlreadyRunning(Exception):
    """Another daemon holds this home."""

    def __init__(self, run_dir: Path, pid: str) -> None:
        self.message = f"a daemon is already running for {run_dir} (pid {pid})"
        super().__init__(f"{self.message}; hint: `tower stop` ends it")


class DaemonEndpoints(Struct, frozen=True):
    """The addresses of the daemon, which `endpoints.json` gives to local clients. The token is the owner's."""

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
    """The value of `config.Settings.file_state` at the start: with it clients see whether a change of the file needs a
    restart."""
    options: dict[str, str] = {}
    """The flags of its command line, for a restart."""
    listening: dict[str, str] = {}
    """The addresses that the ports `http` and `pi` are bound to, such as `0.0.0.0:8787`."""


class DaemonHome:
    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings
        self._lock_fd: int | None = None

    def claim(self) -> None:
        """Takes the lock, or raises with the process that holds it."""
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
        """Returns the owner's token: it is made once, so that a page stays logged in over a restart."""
        return atomic_write.read_or_create_private(self._settings.data_dir / "owner.token", lambda: secrets.token_urlsafe(32))

    def write_endpoints(self, endpoints: DaemonEndpoints) -> None:
        atomic_write.write_private(self._settings.pid_path, str(endpoints.pid).encode())
        atomic_write.write_private(self._settings.endpoints_path, msgspec.json.format(msgspec.json.encode(endpoints)))

    def release(self) -> None:
        if self._lock_fd is None:
            return
        for path in (self._settings.endpoints_path, self._settings.pid_path):
            path.unlink(missing_ok=True)
        os.close(self._lock_fd)
        self._lock_fd = None


def _try_lock(lock_fd: int) -> bool:
    """Takes the lock. A client that only checks for a holder also holds it for an instant, so one failure is not final."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
        else:
            return True
    return False


MAX_ID_LENGTH = 128


class HostIdentity(Struct, frozen=True):
    host_id: str
    host_token: str

    def __repr__(self) -> str:
        return f"HostIdentity(host_id={self.host_id!r})"


def load_host_identity(settings: config.Settings, environ: Mapping[str, str] = os.environ) -> HostIdentity:
    kept = _read_identity(settings.host_file)
    host_id = settings.host_id or kept.host_id
    if not host_id.strip():
        raise ConfigError("host_id", "the settings", "is blank", hint="choose another one, or none: then one is made")
    if len(host_id) > MAX_ID_LENGTH:
        raise ConfigError("host_id", "the settings", f"is longer than {MAX_ID_LENGTH}", hint="choose a shorter one")
    return HostIdentity(host_id, environ.get("HOST_TOKEN") or kept.host_token)


def rotate_host_token(settings: config.Settings) -> None:
    """Makes a new token under the old id. The hub has to be set to trust it: `tower hosts rotate`."""
    host_id = load_host_identity(settings, {}).host_id
    atomic_write.write_private(settings.host_file, msgspec.json.encode(HostIdentity(host_id, secrets.token_urlsafe(32))))


def get_host_name(settings: config.Settings) -> str:
    return settings.host_name or socket.gethostname().partition(".")[0] or "host"


def _read_identity(path: Path) -> HostIdentity:
    try:
        kept = msgspec.json.decode(atomic_write.read_or_create_private(path, _make_identity), type=HostIdentity)
        if kept.host_id and kept.host_token:
            return kept
        problem = "the id or the token is empty"
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        problem = str(broken)
    raise ConfigError("host.json", f"`{path}`", f"cannot be read: {problem}", hint="remove the file: a new one is made")


def _make_identity() -> str:
    made = HostIdentity(f"host_{secrets.token_hex(8)}", secrets.token_urlsafe(32))
    return msgspec.json.encode(made).decode()
