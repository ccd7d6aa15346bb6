"""Finds the daemon for the given settings, starts one when none is running, and retries while a daemon restarts.

Many commands may try to start the daemon at the same moment: the one that holds the starter's lock starts it, the others wait
until it answers.
"""

import asyncio
import errno
import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchtower import __version__, config
from switchtower.client import errors
from switchtower.client.connection import DaemonConnection
from switchtower.protocols.push import extension_messages, messages
from switchtower.settings.sources import ConfigError, describe_home_error

RECONNECT_TIMEOUT = 15.0
"""Seconds that a lost daemon may take to return."""

Result = TypeVar("Result")


async def retry_while_away(attempt: Callable[[], Awaitable[Result]], *, timeout: float, retry_refusals: bool = False) -> Result:
    """Retries until `timeout` while the daemon is unreachable, then raises the last error. With `retry_refusals` it also retries
    requests that the daemon refused as retryable."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    pause = 0.01
    while True:
        try:
            return await attempt()
        except (errors.DaemonUnreachable, errors.ConnectionLost, errors.RequestFailed) as problem:
            if isinstance(problem, errors.RequestFailed) and not (retry_refusals and problem.retryable):
                raise
            if clock() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)


START_TIMEOUT = 30.0
ANSWER_TIMEOUT = 5.0
_LOG = logging.getLogger("switchtower.client")
"""Warnings of this logger are for the user: a command prints them on stderr, the terminal UI shows them as a notice."""
PROVIDER_VARIABLE_SUFFIXES = ("_API_KEY", "_BASE_URL", "_HOST")
"""The suffixes of all environment variables that configure providers."""
_POLL = 0.02
_TAIL_LINES = 8


class EndpointsFile(Struct, frozen=True):
    """The contents of `endpoints.json`, in which a running daemon describes itself."""

    pid: int
    socket: str
    http: str | None = None
    pi: str | None = None
    token: str | None = None
    version: str | None = None
    started_at_ms: int | None = None
    file_state: str | None = None
    """A fingerprint of the configuration file; None if the daemon does not report it."""
    options: dict[str, str] = {}
    """The flags that the daemon was started with."""
    listening: dict[str, str] = {}
    """The addresses that the daemon's ports are bound to; empty if the daemon does not report them."""


def needs_restart(settings: config.Settings) -> bool:
    """Returns whether `config.toml` has changed values that the running daemon applies only after a restart."""
    endpoints = read_endpoints(settings)
    return (
        endpoints is not None
        and endpoints.file_state not in (None, settings.file_state)
        and settings.sources is not None
        and endpoints.pid == find_lock_holder(settings)
    )


def read_endpoints(settings: config.Settings) -> EndpointsFile | None:
    """Returns None when the file does not exist. An existing file proves nothing: a crashed daemon may have left it."""
    try:
        return msgspec.json.decode(settings.endpoints_path.read_bytes(), type=EndpointsFile)
    except (OSError, msgspec.MsgspecError):
        return None


def find_lock_holder(settings: config.Settings) -> int | None:
    """Returns the pid of the running daemon that owns this home. The kernel frees the lock when its process ends, however it
    ends."""
    try:
        with settings.lock_path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read(32) or 0)
    except (OSError, ValueError):
        pass
    return None


def locate_socket(settings: config.Settings) -> Path:
    """Returns the configured socket if it differs from the default, else the one in `endpoints.json`, else the default."""
    if settings.socket == settings.default_socket and (endpoints := read_endpoints(settings)):
        return Path(endpoints.socket)
    return settings.socket


async def connect(settings: config.Settings, *, keep_events: int = 0) -> DaemonConnection:
    """Opens a connection to the running daemon and exchanges `hello`. Raises `DaemonUnreachable`; never starts a daemon."""
    path = locate_socket(settings)
    if not _is_announced(settings):
        raise errors.DaemonUnreachable(f"the daemon at `{path}` is not ready")
    try:
        connection = await DaemonConnection.open(path, keep_events=keep_events)
    except OSError as problem:
        raise errors.DaemonUnreachable(
            f"no daemon answers at `{path}` ({problem.strerror or problem})", hint="start one with `tower serve`"
        ) from None
    hello = messages.Hello("tower", __version__, ["stream_tokens", "approvals", "replay_attach"])
    try:
        connection.greeting = await connection.request(hello, messages.HelloAnswer, timeout=ANSWER_TIMEOUT)
        await _send_provider_variables(connection)
    except errors.ConnectionLost as problem:
        connection.close()
        raise errors.DaemonUnreachable(f"the daemon at `{path}` does not answer: {problem.message}") from None
    except BaseException:
        connection.close()
        raise
    compare_version(connection.greeting.runtimeVersion)
    return connection


_compared_versions: set[str] = set()


def compare_version(version: str | None) -> None:
    """Warns, once for each version, when the daemon's version differs from this program's."""
    if version is None or version == __version__ or version in _compared_versions:
        return
    _compared_versions.add(version)
    shown = ascii(version[:40])[1:-1]
    _LOG.warning(
        "tower: the daemon has version %s and this program version %s; hint: restart it with `tower restart`", shown, __version__
    )


async def _send_provider_variables(connection: DaemonConnection) -> None:
    """Sends the provider keys of this shell, because the daemon may have been started without them. They go only to the owner's
    daemon over the owner's socket; the daemon refuses them from a process of a run, which continues without."""
    greeting = connection.greeting
    if greeting is None or "provider_variables" not in greeting.capabilities:
        return
    if not any(value and name.endswith(PROVIDER_VARIABLE_SUFFIXES) for name, value in os.environ.items()):
        return  # saves loading the provider table
    from switchtower.models import providers

    if found := providers.select_provider_variables(os.environ):
        with suppress(errors.RequestFailed):
            await connection.request(extension_messages.SetProviderVariables(found), extension_messages.ProviderVariablesSet)


def _is_announced(settings: config.Settings) -> bool:
    """Returns whether the lock holder has written its endpoints. A daemon takes the lock first and writes its endpoints last; in
    between it may accept connections and still fail to start."""
    if settings.socket != settings.default_socket:
        return True  # the socket may belong to another home
    holding = find_lock_holder(settings)
    if holding is None:
        return True  # no daemon yet; the socket of another process may start one
    endpoints = read_endpoints(settings)
    return endpoints is not None and endpoints.pid == holding


async def connect_or_start(settings: config.Settings, *, keep_events: int = 0) -> DaemonConnection:
    """Like `connect`, but starts the daemon when none is running."""
    try:
        return await _connect_or_start(settings, keep_events)
    except OSError as problem:
        message, hint = describe_home_error(problem, settings.run_dir)
        raise errors.DaemonUnreachable(message, hint=hint) from None


async def _connect_or_start(settings: config.Settings, keep_events: int) -> DaemonConnection:
    try:
        async with asyncio.timeout(START_TIMEOUT):
            while True:
                try:
                    return await connect(settings, keep_events=keep_events)
                except errors.DaemonUnreachable:
                    with _hold_starter_lock(settings) as is_ours:
                        if is_ours:
                            await _start(settings)
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise errors.DaemonUnreachable(
            f"no daemon answered within {START_TIMEOUT:g} s", hint=f"see its log at `{settings.log_path}`"
        ) from None


async def _start(settings: config.Settings) -> None:
    """Returns as soon as a daemon answers, even one that another process started."""
    log_start = _get_log_size(settings.log_path)
    process = _spawn(settings)
    while True:
        await asyncio.sleep(_POLL)
        try:
            (await connect(settings)).close()
            return
        except errors.DaemonUnreachable:
            pass
        if (exit_code := process.poll()) is None or find_lock_holder(settings) is not None:
            continue  # Our daemon is starting, or another process's daemon holds this home and will answer soon.
        if exit_code == 0:
            process = _spawn(settings)  # the daemon was stopped before it could answer
            continue
        if not (said := _read_log_tail(settings.log_path, log_start)) and _is_full(settings.log_path.parent):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise errors.DaemonUnreachable(
            f"the daemon did not start (exit code {exit_code}): {said or 'its log is empty'}",
            hint=f"run `tower serve` to see it happen; the log is `{settings.log_path}`",
        )


def _spawn(settings: config.Settings) -> subprocess.Popen[bytes]:
    environment = _build_environment(settings)
    settings.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(settings.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603
            # `-P` and the root folder keep modules of an untrusted repository out of the daemon's import path.
            [sys.executable, "-P", "-m", "switchtower", "serve", *_list_flags(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log)


def _list_flags(settings: config.Settings) -> list[str]:
    """Returns the flags that the settings were loaded with, so that every restart has the options of the one before."""
    flags = []
    for setting in config.SETTINGS:
        value = settings.options.get(setting.name)
        if value is not None and setting.is_switch:
            flags.append(setting.flag if setting.parse(value) else f"--no-{setting.flag.removeprefix('--')}")
        elif value is not None:
            flags.append(f"{setting.flag}={value}")
    return flags


def _build_environment(settings: config.Settings) -> dict[str, str]:
    """Returns the caller's environment plus each setting that the daemon would not find by itself. A value from the file stays
    only in the file, so that a change there reaches the running daemon."""
    environment = {name: value for name, value in os.environ.items() if name != "TOWER_RUN"}
    try:
        found = config.load({"home": settings.home}, environment)
    except ConfigError:
        found = None  # the daemon reports the error
    for setting in config.SETTINGS:
        value = getattr(settings, setting.name)
        if setting.name in settings.options:
            continue
        if found is not None and setting.name != "home" and value == getattr(found, setting.name):
            continue
        if value is None or value == ():
            environment.pop(setting.variables[0], None)
        else:
            environment[setting.variables[0]] = ",".join(value) if isinstance(value, tuple) else str(value)
    return environment


@contextmanager
def _hold_starter_lock(settings: config.Settings) -> Iterator[bool]:
    """Yields whether this process should start the daemon."""
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.run_dir / "start.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _get_log_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read_log_tail(path: Path, start: int) -> str:
    """Returns the last log lines after offset `start`, joined on one line."""
    try:
        with path.open("rb") as log:
            log.seek(max(start, _get_log_size(path) - 8_192))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    except OSError:
        lines = []
    return " | ".join([line for line in lines if line][-_TAIL_LINES:])


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail == 0
