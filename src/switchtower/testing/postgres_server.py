"""A real PostgreSQL server for tests: in a temporary folder, on a Unix socket alone, as an unprivileged user.

It is as durable as its defaults. It ends with the process that started it, however that ends.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_TIMEOUT = 60.0
_POLL = 0.005


def find_programs() -> Path | None:
    """Returns the newest of Debian's versions, or the one in the path."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parent.parent.name))
    if debian:
        return debian[-1].parent
    found = shutil.which("postgres")
    return Path(found).parent if found else None


def find_missing_reason() -> str | None:
    """Returns why no server can run here; None when one can."""
    if find_programs() is None:
        return "no PostgreSQL here; on Debian: apt-get install postgresql"
    if os.geteuid() == 0 and _postgres_user() is None:
        return "PostgreSQL does not run as root, and there is no user `postgres`"
    return None


def _postgres_user() -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return None


class PostgresServer:
    def __init__(self) -> None:
        found = find_programs()
        assert found is not None, find_missing_reason()
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="tower-pg-"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = _postgres_user()
            assert user is not None, find_missing_reason()
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._data = self.folder / "data"
        self._socket = self.folder / ".s.PGSQL.5432"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        finished = subprocess.run(
            [*self._as_user, str(self._programs / program), *arguments], cwd=self.folder, capture_output=True, timeout=_TIMEOUT
        )
        if finished.returncode:
            raise RuntimeError(f"`{program}` failed: {finished.stderr.decode(errors='replace')}")

    def make_dsn(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        """Returns when it accepts connections; after a crash, when it has recovered."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._as_user or ["setpriv"]),
                    *("--pdeathsig", "INT", str(self._programs / "postgres"), "-D", str(self._data)),
                    *("-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=200"),
                ],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2_000:]}")
            time.sleep(_POLL)

    def _is_ready(self) -> bool:
        with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.connect(str(self._socket))
            return subprocess.run([self._programs / "pg_isready", "-q", "-h", self.folder], timeout=_TIMEOUT).returncode == 0
        return False

    def stop(self) -> None:
        """Stops it as an administrator does: connections are closed, committed data is kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_TIMEOUT)
            self._process = None

    def kill(self) -> None:
        """Kills all of its processes at once, as in a power failure."""
        assert self._process is not None, "it runs"
        pid = self._process.pid
        self._process.send_signal(signal.SIGSTOP)  # it starts no new ones meanwhile
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for process in (*children, pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait(_TIMEOUT)
        self._process = None
        deadline = time.monotonic() + _TIMEOUT
        while any(Path(f"/proc/{child}").exists() and _is_alive(child) for child in children):
            assert time.monotonic() < deadline, "a killed process is gone in a moment"
            time.sleep(_POLL)

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def run_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.discard()
