"""A Python that has loaded much, and becomes another program for whoever asks: it forks, and the child runs that one.

It may hold no thread and no open file, or the children would have them too.
"""

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

LIBRARIES = (
    *("asyncio", "click", "ctypes", "dataclasses", "difflib", "email.utils", "encodings.idna", "hmac", "html", "json", "locale"),
    *("logging.handlers", "msgspec", "pathlib", "picows", "secrets", "shlex", "sqlite3", "subprocess", "tempfile", "tomllib"),
    *("typing", "urllib.parse", "uvicorn.config", "uvicorn.protocols.http.h11_impl", "uvloop"),
)
DAEMON = (
    "switchtower.cli.commands.serve",
    "switchtower.daemon.app",
    "switchtower.daemon.agent_parts",
    "switchtower.transports.http",
)
MODELS = ("mcp", "openai", "pydantic_ai.direct", "pydantic_ai.models.openai", "pydantic_ai.providers.openai")

LOADED = {"libraries": LIBRARIES, "daemon": LIBRARIES + DAEMON, "models": LIBRARIES + DAEMON + MODELS}

MOST_BYTES = 1 << 20
ABOVE_ALL = 400
"""Descriptors are put here while those below are given their numbers."""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns in the child, with what it is to become, and in the server when nobody can ask any more."""
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in waiting.poll():
            if ready in children:
                pid, tell = children.pop(ready)
                waiting.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                os.write(tell, status.to_bytes(4, "little"))
                os.close(tell)
                continue
            asked, given, _, _ = socket.recv_fds(control, MOST_BYTES, 32)
            if not asked:
                return None
            pid = os.fork()
            if pid == 0:
                control.detach()
                request: dict[str, Any] = json.loads(asked)
                _take_over(given, request["descriptors"])
                return request
            watch, tell = os.pidfd_open(pid), given[3]
            children[watch] = (pid, tell)
            waiting.register(watch, select.POLLIN)
            for fd in (*given[:3], *given[4:]):
                os.close(fd)
            control.send(str(pid).encode())


def _take_over(given: list[int], passed: list[int]) -> None:
    """The streams, and what else was passed on under its old number. Nothing else stays open: not even who tells the end."""
    wanted = [*zip(given[:3], range(3), strict=True), *zip(given[4:], passed, strict=True)]
    moved = [(fcntl.fcntl(fd, fcntl.F_DUPFD, ABOVE_ALL), number) for fd, number in wanted]
    os.closerange(3, ABOVE_ALL)
    for fd, number in moved:
        os.dup2(fd, number)
        os.close(fd)


def become(request: dict[str, Any]) -> None:
    """Runs `-m module …` or `-c code …` as Python does."""
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old: io.TextIOWrapper = getattr(sys, name)
        # The bytes below read and write the same numbers as before; only what the terminal decides is decided again.
        raw = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115
        lines = name == "stderr" or os.isatty(fd)
        new = io.TextIOWrapper(raw, old.encoding, old.errors, newline="\n" if mode == "w" else None, line_buffering=lines)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    how, what = request["program"]
    if not request["is_safe_path"]:
        sys.path.insert(0, str(Path.cwd()) if how == "-m" else "")
    sys.argv = [how, *request["arguments"]]
    sys.orig_argv = request["command"]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in LOADED[sys.argv[2]]:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a thread would be missing in the children"
    gc.collect()
    gc.freeze()
    request = serve(control)
    if request is None:
        return
    code: object = None
    try:
        become(request)
    except SystemExit as ending:
        code = ending.code
        if not isinstance(code, int | None):
            raise
    leave(code or 0)


def leave(code: int) -> None:
    """All that Python does at its end, but for taking apart what was loaded, which takes longer than most of our commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python has its own way with a stream that cannot be written
    os._exit(code & 0xFF)


main()
