"""Where a provider's key comes from: a variable, or a command that prints it. Keys pass through here and are never shown."""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping

from switchtower.core import errors
from switchtower.models import entries

TIMEOUT = 10.0
_GLANCE = 0.01
"""How often to look whether it has ended, or whether nobody waits for it any more."""
LONGEST = 16_384
"""Bytes of a command's output; a key is shorter, and a command that runs wild is not waited for."""


def read_key(entry: entries.ProviderEntry, environ: Mapping[str, str]) -> str | None:
    return next((value for name in entry.key_variables if (value := environ.get(name, "").strip())), None)


async def request_key(entry: entries.ProviderEntry, environ: Mapping[str, str], timeout_s: float = TIMEOUT) -> str:
    """`from_command` on a thread. When this is cancelled, so is the command."""
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(run_key_command, entry, environ, timeout_s, given_up=given_up)
    finally:
        given_up.set()


def run_key_command(
    entry: entries.ProviderEntry, environ: Mapping[str, str], timeout: float = TIMEOUT, *, given_up: threading.Event | None = None
) -> str:
    """Runs the entry's command and takes the first line it prints. Blocks. Raises `ProviderNotConfigured`, also soon after
    it is given up.

    Nothing of what it printed is repeated in an error: it may be the key, or half of it.
    """
    given_up = given_up or threading.Event()
    setting = f"`key_command` of `[models.{entry.name}]`"
    try:
        process = subprocess.Popen(  # noqa: S603
            entry.key_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no command"
        raise _make_refusal(entry, f"the {setting} cannot be run: {reason}") from None
    try:
        problem, output = _read_output(process, time.monotonic() + timeout, given_up)
    finally:
        # The whole group, while the process is not yet reaped and the group surely its own: it may have left others behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        exit_code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if problem is None and exit_code != 0:
        problem = f"ended with exit code {exit_code}"
    key = output.decode("ascii", "replace").strip().partition("\n")[0].strip()
    if problem is None and not (key and key.isascii() and key.isprintable()):
        problem = "printed no key"
    if problem is not None:
        raise _make_refusal(entry, f"the {setting} {problem}")
    return key


def _read_output(process: "subprocess.Popen[bytes]", deadline: float, given_up: threading.Event) -> tuple[str | None, bytes]:
    """What it printed up to its end, or why that was not waited for."""
    assert process.stdout is not None
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and not given_up.is_set():
            if not selector.select(_GLANCE):
                continue
            piece = os.read(process.stdout.fileno(), LONGEST)
            output += piece
            if len(output) > LONGEST:
                return "printed more than a key", b""
            if not piece:
                break
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline or given_up.is_set():
            return "did not end in time", b""
        time.sleep(_GLANCE)
    return None, output


def _make_refusal(entry: entries.ProviderEntry, detail: str) -> errors.ProviderNotConfigured:
    return errors.ProviderNotConfigured(f"`{entry.name}`: {detail}", hint="run it in a terminal and see what it prints")
