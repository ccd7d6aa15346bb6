"""The process of an MCP server: its start and its end. It knows nothing of the messages.

The process gets its own session and a mark in its environment, as a run's commands do, so that every process it starts is found
and ended with it, even after a crash of the daemon.

The pipes of a server's process. They are bounded on every side: a line has a maximum length, lines must be consumed before
more is read, a write waits for space, and only both ends of the error stream are kept."""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from switchtower.tools import concurrency, safe_text
from switchtower.tools.processes import commands, marks, orphans, proc
from switchtower.tools.sandboxes import launch

LONGEST_LINE = 8 * 1024 * 1024
KEEP_OF_LONG = 4 * 1024
"""The bytes that are kept of the start and of the end of an overlong line."""
_CHUNK = 64 * 1024
_MOST_UNSENT = 64 * 1024
_KEEP_BYTES = 8 * 1024
_BREATH = 0.02
"""The seconds between two full reads of an error stream: a server that floods it has to wait."""


class OverlongLine(bytes):
    """The start and the end of a line that was too long to keep."""


class LineBuffer:
    """Splits a stream of bytes into lines."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._open = bytearray()
        self._head: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._add(piece)
            lines.append(bytes(self._open) if self._head is None else OverlongLine(self._head + self._open[-KEEP_OF_LONG:]))
            self._open.clear()
            self._head = None
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._open += piece
        if len(self._open) > self._longest:
            if self._head is None:
                self._head = bytes(self._open[:KEEP_OF_LONG])
            del self._open[:-KEEP_OF_LONG]


class _Pipe:
    """One end of a pipe, watched by the event loop while there is something to wait for."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)

    def _watch(self, read: Callable[[], None]) -> None:
        if not self._closed:
            self._loop.add_reader(self._descriptor, read)

    def _read_chunk(self) -> bytes | None:
        """Returns the available bytes; an empty value at the end of the stream; `None` when the caller has to wait."""
        try:
            return os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""


class IncomingPipe(_Pipe):
    """The server's output, line by line. More is read only when all lines have been taken."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._lines = LineBuffer()
        self._ready: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._no_more_comes = False

    async def read_line(self) -> bytes | None:
        """Returns the next line; `None` when there will be none."""
        while not self._ready and not self._over:
            if self._no_more_comes:
                self._read()
            else:
                self._news.clear()
                self._watch(self._read)
                await self._news.wait()
        return self._ready.popleft() if self._ready else None

    def on_writer_exit(self) -> None:
        """Marks the current content of the pipe as the last, even if a process that the writer started still holds it open."""
        self._no_more_comes = True
        self._news.set()

    def discard(self) -> None:
        """Discards all further output, so that the writer does not block."""
        self._over = True
        self._news.set()
        self._watch(self._drop)

    def _read(self) -> None:
        chunk = self._read_chunk()
        if chunk:
            self._ready += self._lines.feed(chunk)
        elif chunk == b"" or self._no_more_comes:
            self._over = True
        if self._ready or self._over:
            self._loop.remove_reader(self._descriptor)
            self._news.set()

    def _drop(self) -> None:
        if self._read_chunk() == b"":
            self._loop.remove_reader(self._descriptor)


class OutgoingPipe(_Pipe):
    """The server's input. A started line is always sent completely, even when its writer is cancelled."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        """`on_broken` is called when the server has closed its input, even while no write waits."""
        super().__init__(descriptor)
        self._on_broken = on_broken
        self._unsent = bytearray()
        self._room = asyncio.Event()
        self.broken = False

    async def write(self, line: bytes) -> None:
        """Waits for space in the pipe. Raises `BrokenPipeError` when the server accepts no more."""
        while len(self._unsent) >= _MOST_UNSENT and not self.broken and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self.broken or self._closed:
            raise BrokenPipeError
        self._unsent += line
        self._send()
        if self.broken:
            raise BrokenPipeError

    def close(self) -> None:
        super().close()
        self._room.set()

    def _send(self) -> None:
        try:
            del self._unsent[: os.write(self._descriptor, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
            self._unsent.clear()
            self._on_broken()
        if self._unsent:
            self._loop.add_writer(self._descriptor, self._send)
        else:
            self._loop.remove_writer(self._descriptor)
        if len(self._unsent) < _MOST_UNSENT:
            self._room.set()


class ErrorPipe(_Pipe):
    """The server's error stream, and output lines that are not messages."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._kept = safe_text.HeadAndTail(_KEEP_BYTES)
        self._watch(self._read)

    def add(self, text: bytes) -> None:
        self._kept.add(text)

    def render(self) -> str:
        return self._kept.render()

    def close(self) -> None:
        if not self._closed:
            # Its last output may still be in the pipe, when the loop was too busy to read it.
            self.add(self._read_chunk() or b"")
        super().close()

    def _read(self) -> None:
        chunk = self._read_chunk()
        if chunk is None:
            return
        self.add(chunk)
        if not chunk:
            self._loop.remove_reader(self._descriptor)
        elif len(chunk) == _CHUNK:
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(_BREATH, self._watch, self._read)


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
        self.output = IncomingPipe(ours[1])
        # A server that no longer reads its input counts as ended; but its earlier output is still read.
        self.input = OutgoingPipe(ours[0], self.output.on_writer_exit)
        self.error_pipe = ErrorPipe(ours[2])
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
