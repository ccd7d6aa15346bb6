"""The process of an MCP server: its start and its end. It knows nothing of the messages.

The process gets its own session and a mark in its environment, as a run's commands do, so that every process it starts is found
and ended with it, even after a crash of the daemon.
"""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from switchtower.tools import concurrency
from switchtower.tools.mcp import pipes
from switchtower.tools.processes import commands, marks, orphans, proc
from switchtower.tools.sandboxes import launch

DAEMON = "TOWER_DAEMON"
"""The variable, in the environment of every process that a daemon starts, that identifies the daemon."""
MARK_PREFIX = "mcp_"
GRACE = 1.0
"""The seconds for a server to exit once its input is closed, and again after SIGTERM."""
_LAST_WAIT = 5.0
"""The seconds for killed processes to disappear: only one that is stuck in the kernel takes that long, and it dies on its way
out.
"""
_POLL = 0.02

_INHERITED = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    | {"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"}
    | {"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
)
_INHERITED_PREFIXES = ("LC_", "XDG_")


def build_server_environment(around: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Returns a server's environment: of ours only what every program needs, and the variables of its own entry. Keys and tokens
    reach a server only when its entry names them.
    """
    inherited = {
        name: value for name, value in around.items() if name.upper() in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    given = {**inherited, **own}
    given.pop(DAEMON, None)
    return {**given, DAEMON: around[DAEMON]} if DAEMON in around else given


def find_program(command: str, *, cwd: str, env: Mapping[str, str]) -> str:
    """Returns the path of the program that a server's entry names. Raises `FileNotFoundError`, also for a folder that does not
    exist.
    """
    if not Path(cwd).is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cwd)
    found = shutil.which(Path(cwd) / command if "/" in command else command, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    return str(found)


def kill_leftovers(daemon_id: str) -> int:
    """Kills the servers, and every process they started, that a daemon with this id left behind when it was killed. Returns the
    number of processes. It blocks; call it before the daemon starts its own servers.
    """
    assert daemon_id, "an empty id would match servers of nobody"
    ours = f"{DAEMON}={daemon_id}".encode()
    marked = f"{marks.RUN_VARIABLE}={MARK_PREFIX}".encode()
    runs: set[str] = set()
    for pid in proc.list_pids():
        variables = proc.read_environment(pid) or []
        if ours in variables:
            runs.update(variable.partition(b"=")[2].decode() for variable in variables if variable.startswith(marked))
    return sum(orphans.kill_marked(run) for run in runs)


def make_mark(session_id: str) -> marks.ProcessMark:
    """Makes one mark per process and not per session, so that a server can be ended without the others."""
    return marks.make_command_mark(f"{MARK_PREFIX}{session_id}_{secrets.token_hex(4)}")


class ServerProcess:
    """Raises `OSError` or `ValueError` when it cannot be started; `argv` includes the mark already. The caller that starts one
    awaits its `end`.
    """

    def __init__(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], mark: marks.ProcessMark) -> None:
        self._run_id = mark.run_id
        orphans.register_run(mark.run_id)
        ours, theirs = _open_pipes()
        try:
            self._process = orphans.start_kept_child(
                mark.run_id,
                lambda: launch.popen(
                    argv,
                    cwd=cwd,
                    env={**env, **mark.environment_variables()},
                    stdin=theirs[0],
                    stdout=theirs[1],
                    stderr=theirs[2],
                    start_new_session=True,
                ),
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.output = pipes.IncomingPipe(ours[1])
        # A server that no longer reads its input counts as ended; but its earlier output is still read.
        self.input = pipes.OutgoingPipe(ours[0], self.output.on_writer_exit)
        self.error_pipe = pipes.ErrorPipe(ours[2])
        self.exit_code: int | None = None
        """The exit code when it ended by itself; `None` when it was stopped, or still runs."""
        self._was_signalled = False
        self._exited = asyncio.Event()
        self._pidfd = proc.open_pidfd(self._process.pid)
        if self._pidfd is not None:
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    async def end(self) -> None:
        """Ends it and every process that it started: closes its input, then sends SIGTERM, then SIGKILL. It runs to its end even
        when cancelled.
        """
        await concurrency.run_to_completion(self._end())

    async def _end(self) -> None:
        try:
            # In the protocol, the end of the input asks a server to exit. A server that is blocked in a write would never read
            # it.
            self.output.discard()
            self.input.close()
            await self._wait(GRACE)
            if not self._exited.is_set():
                self._send_signal(signal.SIGTERM)
                await self._wait(GRACE)
            self._send_signal(signal.SIGKILL)
            await commands.end_run(self._run_id, grace_s=GRACE)
            await self._wait(_LAST_WAIT)
        finally:
            self._close()

    async def _wait(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._pidfd is None and not self._exited.is_set():
                    # Systems without pidfds send no notification.
                    if self._process.poll() is not None:
                        self._exited.set()
                    await asyncio.sleep(_POLL)
                await self._exited.wait()

    def _on_exit(self) -> None:
        self._forget_pidfd()
        self._exited.set()
        self.output.on_writer_exit()

    def _forget_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)

    def _send_signal(self, number: signal.Signals) -> None:
        self._was_signalled |= not self._exited.is_set()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _close(self) -> None:
        self._forget_pidfd()
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self.input, self.output, self.error_pipe):
            pipe.close()
        # The process is reaped only now: until then its pid, which is also its group's, cannot be reused.
        with suppress(subprocess.TimeoutExpired):
            exit_code = self._process.wait(timeout=_POLL)
            self.exit_code = None if self._was_signalled else exit_code
        orphans.release_child(self._process.pid)


def _open_pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Returns our ends of the three pipes, and the server's."""
    made: list[int] = []
    try:
        for _ in range(3):
            made += os.pipe()
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    in_read, in_write, out_read, out_write, error_read, error_write = made
    return (in_write, out_read, error_read), (in_read, out_write, error_write)
