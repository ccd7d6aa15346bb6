"""A socket that was handed over, as systemd does it: who comes is served, and the file stays for the next start."""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from switchtower.transports import socket_activation
from switchtower.transports.stream import ConnectionOrigin, Packet, Stream

SERVER = """
import asyncio, os, sys
from pathlib import Path
from switchtower.transports import socket_activation
from switchtower.transports.stream import Packet

class Echo:
    def on_connected(self, stream): self.stream = stream
    def on_frames(self, frames):
        self.stream.send(Packet(frames))
    def on_oversized_frame(self, problem): pass
    def on_writable(self): pass
    def on_disconnected(self): ended.set()

async def main():
    global ended
    ended = asyncio.Event()
    path = Path(sys.argv[1])
    limits = {"max_line_bytes": 1000, "output_limit_bytes": 1000}
    listener = await socket_activation.listen_or_activate(path, lambda origin: Echo(), **limits)
    assert not [name for name in os.environ if name.startswith("LISTEN_")]
    await ended.wait()
    await listener.close()

asyncio.run(main())
"""


def start_process(path: Path, *handed: socket.socket) -> "subprocess.Popen[bytes]":
    """A process to which the sockets are handed from descriptor 3 on."""
    moved = "; ".join(f"exec {number}<&{sock.fileno()}" for number, sock in enumerate(handed, 3))
    script = f'{moved}; LISTEN_FDS={len(handed)} LISTEN_PID=$$ exec "$0" "$@"'
    return subprocess.Popen(
        ["bash", "-c", script, sys.executable, "-c", SERVER, str(path)],
        pass_fds=[sock.fileno() for sock in handed],
        stderr=subprocess.PIPE,
    )


def open_listener(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    # Beyond the numbers that are handed over.
    high = socket.socket(fileno=fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, 20))
    sock.close()
    return high


def exchange_echo(path: Path, text: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(path))
        client.sendall(text + b"\n")
        return client.makefile("rb").readline()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "s.sock"


def test_who_comes_before_the_daemon_is_served_by_it_and_the_file_stays(path: Path) -> None:
    with open_listener(path) as handed, socket.socket(socket.AF_UNIX) as early:
        early.settimeout(30)
        early.connect(str(path))  # nobody accepts yet
        early.sendall(b"early\n")
        inode = path.stat().st_ino

        process = start_process(path, handed)

        assert early.makefile("rb").readline() == b"early\n"
        early.close()
        assert process.wait(30) == 0, process.stderr and process.stderr.read()
        assert path.stat().st_ino == inode, "systemd goes on listening there"

        again = start_process(path, handed)
        assert exchange_echo(path, b"again") == b"again\n"
        assert again.wait(30) == 0
        for ended in (process, again):
            assert ended.stderr is not None
            ended.stderr.close()


def test_our_socket_is_found_among_others(path: Path, tmp_path: Path) -> None:
    with open_listener(tmp_path / "other.sock") as other, open_listener(path) as handed:
        process = start_process(path, other, handed)
        assert exchange_echo(path, b"hello") == b"hello\n"
        assert process.wait(30) == 0
        assert process.stderr is not None
        process.stderr.close()


# In this process


def test_nothing_is_taken_when_nothing_was_handed_over(path: Path) -> None:
    assert socket_activation.take_activated_socket(path, {}) is None


@pytest.mark.parametrize(
    "given", [{"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": "self", "LISTEN_FDS": "x"}]
)
def test_what_was_handed_to_another_process_is_left_alone_and_forgotten(path: Path, given: dict[str, str]) -> None:
    environ = {name: value.replace("self", str(os.getpid())) for name, value in given.items()}

    assert socket_activation.take_activated_socket(path, environ) is None
    assert environ == {}


class EchoReceiver:
    def __init__(self) -> None:
        self.stream: Stream | None = None

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream

    def on_frames(self, frames: list[bytes]) -> None:
        assert self.stream is not None
        self.stream.send(Packet(frames))

    def on_oversized_frame(self, problem: str) -> None: ...

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None: ...


def _echo(origin: ConnectionOrigin) -> EchoReceiver:
    return EchoReceiver()


async def test_without_one_the_daemon_listens_by_itself(path: Path) -> None:
    listener = await socket_activation.listen_or_activate(path, _echo, max_line_bytes=1_000, output_limit_bytes=1_000)

    assert await asyncio.to_thread(exchange_echo, path, b"x") == b"x\n"

    await listener.close()
    assert not path.exists(), "a socket of our own goes with us"


async def test_closing_ends_the_connections_and_leaves_the_file(path: Path) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    sock.setblocking(False)
    listener = socket_activation.ActivatedListener(
        path,
        _echo,
        max_line_bytes=1_000,
        output_limit_bytes=1_000,
        half_closed_seconds=2.0,
        owner_uid=os.geteuid(),
        complaint=None,
    )
    listener.handed = sock
    await listener.start()
    await listener.serve()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"hello\n")
    async with asyncio.timeout(60):
        assert await reader.readline() == b"hello\n"

        await listener.close()

        assert await reader.read() == b"", "who is connected hears that it is over"
    assert path.exists()
    writer.close()
