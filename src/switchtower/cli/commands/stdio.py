"""`tower stdio`: forwards bytes, unread, between stdin and stdout and a socket of the daemon, which speaks the protocol.

There is one thread for each direction, so either may block without harm. The module loads little and starts quickly, because
clients that speak a protocol over stdio start one such process for each conversation.
"""

import fcntl
import json
import os
import select
import signal
import socket
import threading
from contextlib import suppress

import click

from switchtower import config
from switchtower.cli import console
from switchtower.transports.descriptors import claim_stdio

PROTOCOLS = ("pi",)


@click.command()
@click.option("--protocol", required=True, metavar="NAME", help=f"What is spoken ({', '.join(PROTOCOLS)}).")
def stdio(protocol: str) -> int:
    """Speak a protocol with the daemon over stdin and stdout, one JSON object a line.

    Starts the daemon when none runs. Ends with 0 when the input has ended and the last answer was passed on, and with 1 when
    the daemon is gone.

    \b
    Example:
      tower stdio --protocol pi < commands.jsonl
    """
    if protocol not in PROTOCOLS:
        raise click.UsageError(f"`{protocol}` is not spoken here; hint: use one of {', '.join(PROTOCOLS)}")

    try:
        claimed = claim_stdio()  # before any other import that might print
    except OSError:
        console.print_error("stdin or stdout is not open", "connect both, as a pipe does")
        return console.ExitStatus.FAILED

    from switchtower import config

    return bridge_stdio(config.load(), *claimed)


_CHUNK_BYTES = 65_536


def bridge_stdio(settings: config.Settings, input_fd: int, output_fd: int) -> int:
    """Forwards bytes until one side ends, and returns the exit code."""
    # Nothing here needs cleaning up and a thread may block forever, so Ctrl-C must end the process at once.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with _connect_to_daemon(settings) as daemon:
        with suppress(OSError):  # if the daemon has already closed the connection, reading reports it
            daemon.sendall(_make_hello())
        input_ended = threading.Event()
        threading.Thread(target=_forward_input, args=(input_fd, daemon, input_ended), daemon=True).start()
        try:
            _forward_output(daemon, output_fd)
        except OSError:
            return console.ExitStatus.OUTPUT_CLOSED
        if input_ended.is_set() and _is_daemon_alive(settings):
            return console.ExitStatus.OK
    console.print_error("the daemon has closed the connection", f"see its log at `{settings.log_path}`")
    return console.ExitStatus.FAILED


def _make_hello() -> bytes:
    """Identifies this client. Clients choose their request ids, and each process may count from one: the namespace keeps them
    apart."""
    hello = {"type": "switchtower_hello", "namespace": os.urandom(8).hex()}
    with suppress(OSError, UnicodeEncodeError):
        here = os.getcwd()  # noqa: PTH109
        here.encode()  # a path that is not valid text cannot be sent
        hello["cwd"] = here
    return json.dumps(hello, separators=(",", ":")).encode() + b"\n"


def _forward_input(input_fd: int, daemon: socket.socket, input_ended: threading.Event) -> None:
    with suppress(OSError):  # the daemon has closed the connection; the other direction reports it
        while data := _read(input_fd):
            daemon.sendall(data)
        input_ended.set()
        daemon.shutdown(socket.SHUT_WR)  # answers still arrive


def _forward_output(daemon: socket.socket, output_fd: int) -> None:
    """Raises `OSError` when the reader has closed the output."""
    while True:
        try:
            data = memoryview(daemon.recv(_CHUNK_BYTES))
        except OSError:
            return
        if not data:
            return
        while data:
            try:
                data = data[os.write(output_fd, data) :]
            except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                _wait_for(output_fd, select.POLLOUT)


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            _wait_for(fd, select.POLLIN)
        except OSError:
            return b""


def _wait_for(fd: int, event: int) -> None:
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()


def _connect_to_daemon(settings: config.Settings) -> socket.socket:
    """Connects to the running daemon, or starts one. Raises `ClientError`."""
    with suppress(OSError):
        return _open_socket(_read_announced_socket(settings) or "")

    # Imported late: starting a daemon loads far more modules than talking to one.
    import asyncio

    from switchtower.client import discovery, errors

    async def start() -> None:
        (await discovery.connect_or_start(settings)).close()

    asyncio.run(start())
    path = _read_announced_socket(settings)
    if path is None:
        raise errors.DaemonUnreachable(
            "the running daemon has no socket for this protocol",
            hint="it may be older than this command: stop it with `tower stop`, and the next command starts the installed one",
        )
    try:
        return _open_socket(path)
    except OSError as problem:
        raise errors.DaemonUnreachable(f"no daemon answers at `{path}` ({problem.strerror or problem})") from None


def _read_announced_socket(settings: config.Settings) -> str | None:
    """Reads the socket from `endpoints.json`, which a crashed daemon may have left."""
    try:
        endpoints = json.loads(settings.endpoints_path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    path = endpoints.get("piSocket") if isinstance(endpoints, dict) else None
    return path if isinstance(path, str) else None


def _open_socket(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_daemon_alive(settings: config.Settings) -> bool:
    """Returns whether the daemon that closed the connection still runs, and so closed it on purpose. Its lock ends with it."""
    try:
        with settings.lock_path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
