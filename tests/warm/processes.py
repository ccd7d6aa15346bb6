"""Processes of ours, started quickly: forked from a Python that has loaded much already, and otherwise like any other.

They have a pid, an environment, descriptors and an end of their own. What `/proc` shows of their command line and environment is
not theirs: a test that looks there starts its process with `subprocess`, and so does one about what is imported, and when.
"""

import array
import asyncio
import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

Loaded = Literal["libraries", "daemon", "models"]
"""What a process begins with: none of our rooms, so that it imports them by itself and late as any does; those of a daemon too;
or also what speaks with models, which takes seconds to load."""

_SERVER = Path(__file__).with_name("server.py")
_INTERPRETERS_OWN = ("PYTHON", "LC_", "LANG")
"""Variables that Python reads when it starts: a process for which they differ is started anew."""
_HARMLESS = ("PYTHONWARNINGS",)


class _Server:
    def __init__(self, loaded: Loaded) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SERVER), str(theirs.fileno()), loaded],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        message = json.dumps(request).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        with self._lock:
            self._control.sendmsg([message], rights)
            pid = self._control.recv(64)
        assert pid, "the warm Python is gone"
        return int(pid)

    def close(self) -> None:
        self._control.close()
        self._process.wait(10)


_servers: dict[Loaded, _Server] = {}
_starting = threading.Lock()


def _get_server(loaded: Loaded) -> _Server:
    with _starting:
        if loaded not in _servers:
            _servers[loaded] = _Server(loaded)
        return _servers[loaded]


def _select_interpreter_variables(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_INTERPRETERS_OWN) and name not in _HARMLESS}


class Popen(subprocess.Popen[Any]):
    """`[sys.executable, "-m", …]` or `[sys.executable, "-c", …]`, with or without `-P`; anything else is started as always."""

    def __init__(self, command: list[str], *, loaded: Loaded = "libraries", **options: Any) -> None:
        self._loaded = loaded
        self._end: int | None = None
        """Where the exit status comes from, of a process that was forked."""
        super().__init__([os.fsdecode(word) for word in command], **options)

    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *rest
    ) -> None:
        streams, start_new_session, process_group = rest[:6], *rest[-2:]
        environment = dict(os.environ if env is None else env)
        safe_path = len(args) > 1 and args[1] == "-P"
        rest_of_it = args[2:] if safe_path else args[1:]
        if (
            args[0] != sys.executable
            or rest_of_it[:1] not in (["-m"], ["-c"])
            or shell
            or preexec_fn is not None
            or process_group != -1
            or _select_interpreter_variables(environment) != _select_interpreter_variables(dict(os.environ))
        ):
            super()._execute_child(  # type: ignore[misc]
                *(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell), *rest
            )
            return
        request = {
            "command": args,
            "program": rest_of_it[:2],
            "arguments": rest_of_it[2:],
            "is_safe_path": safe_path,
            "cwd": os.fspath(cwd or Path.cwd()),
            "environment": environment,
            "descriptors": list(pass_fds),
            "new_session": bool(start_new_session),
        }
        stdin, _, _, stdout, _, stderr = streams
        given = [number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))]
        self._end, tell = os.pipe()
        try:
            self.pid = _get_server(self._loaded).fork(request, [*given, tell, *pass_fds])
        finally:
            os.close(tell)
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._end is None:
            pid, status = super()._try_wait(wait_flags)  # type: ignore[misc]
            return pid, status
        if wait_flags & os.WNOHANG and not select.select([self._end], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._end, 4)
        os.close(self._end)
        assert len(told) == 4, "the warm Python is gone"
        return self.pid, int.from_bytes(told, "little")

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._end is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def choose_preload(home: Path) -> Loaded:
    """The daemon on this home."""
    configuration = home / "config.toml"
    return "models" if configuration.exists() and "[models." in configuration.read_text() else "daemon"


async def open_streams(process: Popen) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Its stdout and stdin, both of them pipes without buffers."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


def run(
    command: list[str],
    *,
    input: Any = None,
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        ended.check_returncode()
    return ended
