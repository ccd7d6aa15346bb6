"""`tower stdio`: bytes to the daemon and back, and nothing else on stdout. The daemon is the test's own where that says more."""

import fcntl
import json
import os
import queue
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TIMEOUT, TowerCommand, read_line_with
from tests.cli.scripted import ScriptedDaemon
from tests.cli.test_imports import DAEMON_PACKAGES


class FakePiSocket:
    """In place of a home's daemon: a socket that is announced, and one connection after the other in the test's hands."""

    def __init__(self, home: Path) -> None:
        self._path = home / "run" / "pi.sock"
        self._path.parent.mkdir()
        self._endpoints = home / "run" / "endpoints.json"
        self._endpoints.write_text(json.dumps({"pid": 1, "socket": "/nowhere", "piSocket": str(self._path)}))
        self._lock = (home / "run" / "tower.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._listener.settimeout(TIMEOUT)

    def accept(self) -> socket.socket:
        connection = self._listener.accept()[0]
        connection.settimeout(TIMEOUT)
        return connection

    def disappear(self) -> None:
        self._listener.close()
        self._lock.close()
        self._path.unlink(missing_ok=True)
        self._endpoints.unlink(missing_ok=True)


@pytest.fixture
def pi_socket(tower_command: TowerCommand) -> Iterator[FakePiSocket]:
    made = FakePiSocket(tower_command.home)
    yield made
    made.disappear()


def read_line(connection: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\n"):
        piece = connection.recv(1)
        assert piece, f"it ended after {got!r}"
        got += piece
    return got


def start(tower: TowerCommand, **more: Any) -> "subprocess.Popen[bytes]":
    return tower.start("stdio", "--protocol", "pi", stdin=subprocess.PIPE, **more)


def end_input(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None  # `communicate` would flush it


def test_the_first_line_names_a_namespace_of_its_own_and_the_folder(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    seen = set()
    for _ in range(2):
        process = start(tower_command)
        with pi_socket.accept() as daemon:
            first = read_line(daemon)
            assert first.startswith(b'{"type":"switchtower_hello",'), "spelled as the daemon looks for it"
            hello = json.loads(first)
            assert hello.keys() == {"type", "namespace", "cwd"}
            assert hello["cwd"] == str(tower_command.folder)
            seen.add(hello["namespace"])
            end_input(process)
            assert daemon.recv(1) == b""
        assert process.wait(TIMEOUT) == 0
    assert len(seen) == 2


def test_bytes_pass_unread_in_both_directions(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        process.stdin.write(b'{"half":')
        process.stdin.flush()
        assert daemon.recv(100) == b'{"half":'
        rubbish = bytes(range(256)) * 4_000
        sender = threading.Thread(target=daemon.sendall, args=(rubbish,))
        sender.start()
        assert process.stdout.read(len(rubbish)) == rubbish
        sender.join()
        end_input(process)
        assert daemon.recv(100) == b""
    assert process.communicate(timeout=TIMEOUT) == (b"", b"")


def test_answers_still_pass_after_the_input_has_ended(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        process.stdin.write(b"question\n")
        end_input(process)
        assert read_line(daemon) == b"question\n"
        assert daemon.recv(1) == b"", "it is told that nothing more will come"
        daemon.sendall(b"answer\n")
        assert process.stdout.readline() == b"answer\n"
        daemon.sendall(b"another\n")
    assert process.stdout.read() == b"another\n"
    assert process.wait(TIMEOUT) == 0
    assert process.stderr.read() == b""


def test_a_daemon_that_goes_is_a_failure_in_one_sentence(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        daemon.sendall(b"cut o")
    assert process.wait(TIMEOUT) == 1
    stdout, stderr = process.communicate()
    assert stdout == b"cut o"
    assert stderr.startswith(b"tower: the daemon has closed the connection; hint: ")
    assert stderr.count(b"\n") == 1


def test_a_daemon_that_dies_after_the_input_has_ended_is_a_failure_too(
    tower_command: TowerCommand, pi_socket: FakePiSocket
) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        end_input(process)
        assert daemon.recv(1) == b""
        pi_socket.disappear()
    assert process.wait(TIMEOUT) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_even_while_nobody_reads(
    tower_command: TowerCommand, pi_socket: FakePiSocket, number: signal.Signals
) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        daemon.setblocking(False)
        full_since = 0
        while full_since < 100:  # nothing has moved for a second: it waits for its reader
            try:
                daemon.send(b"x" * 65_536)
                full_since = 0
            except BlockingIOError:
                full_since += 1
                select.select([], [daemon], [], 0.01)
        process.send_signal(number)
        assert process.wait(TIMEOUT) == -number


def test_a_reader_that_goes_ends_it(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    process = start(tower_command)
    with pi_socket.accept() as daemon:
        read_line(daemon)
        process.stdout.close()
        daemon.sendall(b"into the void\n")
        assert process.wait(TIMEOUT) == 141
    end_input(process)


def test_descriptors_that_do_not_block_will_do(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    """As a parent that shares them may have made them."""
    ours, its = socket.socketpair()
    os.set_blocking(its.fileno(), False)
    with ours, its:
        process = tower_command.start("stdio", "--protocol", "pi", stdin=its, stdout=its)
        with pi_socket.accept() as daemon:
            read_line(daemon)
            ours.sendall(b"question\n")
            assert read_line(daemon) == b"question\n"
            received: queue.Queue[int] = queue.Queue()

            def read_all() -> None:
                left = 1_000_000
                while left:
                    left -= len(ours.recv(left))
                received.put(left)

            threading.Thread(target=read_all, daemon=True).start()
            daemon.sendall(b"y" * 1_000_000)
            assert received.get(timeout=TIMEOUT) == 0
            process.terminate()
            process.wait(TIMEOUT)


@pytest.mark.parametrize("protocol", ["push", "PI", ""])
def test_an_unknown_protocol_is_a_mistake_that_lists_what_there_is(tower_command: TowerCommand, protocol: str) -> None:
    ended = tower_command("stdio", "--protocol", protocol)
    assert (ended.code, ended.stdout) == (64, b"")
    assert f"`{protocol}` is not spoken here; hint: use one of pi" in ended.stderr


def test_without_a_stdin_it_says_so(tower_command: TowerCommand) -> None:
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *tower_command.build_command("stdio", "--protocol", "pi")]
    ended = subprocess.run(command, env=tower_command.environment, capture_output=True, timeout=TIMEOUT)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"tower: stdin or stdout is not open; hint: ")


def test_a_daemon_is_started_when_none_runs_and_found_when_one_does(tower_command: TowerCommand) -> None:
    (tower_command.home / "run").mkdir()
    (tower_command.home / "run" / "endpoints.json").write_text("[" * 100_000)  # what a crash may leave
    for _ in range(2):
        process = start(tower_command)
        assert json.loads(process.stdout.readline())["type"] == "server_ready"
        end_input(process)
        process.stdout.read()
        assert process.wait(TIMEOUT) == 0, process.stderr.read()
    assert (tower_command.home / "logs/tower.log").read_text().count("is listening") == 1
    assert tower_command.endpoints["piSocket"] == str(tower_command.home / "run" / "pi.sock")


def test_a_daemon_without_the_socket_is_said_to_be_too_old(scripted_daemon: ScriptedDaemon, tower_command: TowerCommand) -> None:
    endpoints = tower_command.home / "run" / "endpoints.json"
    endpoints.write_text(json.dumps({"pid": 1, "socket": str(tower_command.home / "run" / "pushd.sock")}))
    ended = tower_command("stdio", "--protocol", "pi")
    endpoints.unlink()
    assert ended.code == 1
    assert "has no socket for this protocol; hint: " in ended.stderr


def test_it_loads_next_to_nothing(tower_command: TowerCommand, pi_socket: FakePiSocket) -> None:
    probe = (
        "import sys\nfrom switchtower.cli.main import main\n"
        "try: main(['stdio', '--protocol', 'pi'])\nexcept SystemExit: pass\n"
        "print(','.join(sys.modules), file=sys.stderr)"
    )
    process = subprocess.Popen(
        [tower_command.build_command()[0], "-c", probe],
        env=tower_command.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with pi_socket.accept() as daemon:
        read_line(daemon)
        end_input(process)
        assert daemon.recv(1) == b""
    loaded = set(read_line_with(process, "sys").strip().split(","))
    process.communicate(timeout=TIMEOUT)
    assert "switchtower.cli.commands.stdio" in loaded
    assert loaded.isdisjoint(
        {"asyncio", "msgspec", "uvloop", "switchtower.client", "switchtower.core", "switchtower.presentation", *DAEMON_PACKAGES}
    )
