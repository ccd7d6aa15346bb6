"""Whose process is at the other end of a connection: told by the kernel, and only for exactly this connection."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from switchtower.transports import socket_owner

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel does not tell")

DUAL = "dual"


def format_end(end: tuple[str | int, ...]) -> str:
    return f"{end[0]}:{end[1]}"


@contextmanager
def open_connection(
    listen_at: str, connect_to: str, family: socket.AddressFamily
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end and the other's."""
    with ExitStack() as stack:
        if listen_at == DUAL:
            listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            listener = socket.create_server((listen_at, 0), family=socket.AF_INET6 if ":" in listen_at else socket.AF_INET)
        stack.enter_context(listener)
        theirs = stack.enter_context(socket.socket(family))
        theirs.connect((connect_to, listener.getsockname()[1]))
        yield stack.enter_context(listener.accept()[0]), theirs


@pytest.mark.parametrize(
    ("listen_at", "connect_to", "family"),
    [
        ("127.0.0.1", "127.0.0.1", socket.AF_INET),
        ("127.0.0.1", "::ffff:127.0.0.1", socket.AF_INET6),
        ("::1", "::1", socket.AF_INET6),
        (DUAL, "127.0.0.1", socket.AF_INET),
        (DUAL, "::ffff:127.0.0.1", socket.AF_INET6),
    ],
)
def test_our_own_connection_is_ours(listen_at: str, connect_to: str, family: socket.AddressFamily) -> None:
    with open_connection(listen_at, connect_to, family) as (ours, _):
        address, reached_at = format_end(ours.getpeername()), format_end(ours.getsockname())
        assert socket_owner.is_loopback(address)
        assert socket_owner.find_owner_uid(address, reached_at) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_s_connection_is_theirs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.seteuid(65_534)  # a socket belongs to whoever makes it
        try:
            theirs = socket.socket()
        finally:
            os.seteuid(0)
        with theirs:
            theirs.connect(listener.getsockname())
            with listener.accept()[0] as ours:
                assert socket_owner.find_owner_uid(format_end(ours.getpeername()), format_end(ours.getsockname())) == 65_534


def test_another_connection_of_the_same_port_says_nothing() -> None:
    with open_connection("127.0.0.1", "127.0.0.1", socket.AF_INET) as (ours, _):
        address = format_end(ours.getpeername())
        assert socket_owner.find_owner_uid(address, "127.0.0.1:1") is None
        assert socket_owner.find_owner_uid("127.0.0.1:1", format_end(ours.getsockname())) is None


def test_a_connection_that_is_ending_is_nobody_s() -> None:
    """The kernel lists it as root's, whoever had it."""
    with open_connection("127.0.0.1", "127.0.0.1", socket.AF_INET) as (ours, theirs):
        ends = format_end(ours.getpeername()), format_end(ours.getsockname())
        theirs.close()
        assert ours.recv(1) == b""
        assert socket_owner.find_owner_uid(*ends) is None
        ours.close()
        assert socket_owner.find_owner_uid(*ends) is None


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "localhost:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "[::1]:80", "fe80::1%lo:80", ":::::"],
)
def test_what_is_no_address_is_nobody_s(address: str) -> None:
    assert socket_owner.find_owner_uid(address, "127.0.0.1:80") is None
    assert socket_owner.find_owner_uid("127.0.0.1:80", address) is None


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.10:1", True),
        ("::1:1", True),
        ("::ffff:127.0.0.1:1", True),
        ("192.168.0.1:1", False),
        ("::ffff:192.168.0.1:1", False),
        ("0.0.0.0:1", False),
        ("", False),
        ("localhost:1", False),
    ],
)
def test_only_this_machine_s_own_addresses_are_loopback(address: str, loopback: bool) -> None:
    assert socket_owner.is_loopback(address) is loopback


def test_the_quick_way_agrees_with_the_tables_or_does_not_answer() -> None:
    with open_connection("127.0.0.1", "127.0.0.1", socket.AF_INET) as (ours, theirs):
        here = socket.inet_aton("127.0.0.1")
        their_end, our_end = (here, theirs.getsockname()[1]), (here, ours.getsockname()[1])
        found = socket_owner.query_socket(their_end, our_end)
        assert found is None or found == (os.geteuid(), os.fstat(theirs.fileno()).st_ino)
        assert socket_owner.query_socket((here, 1), our_end) is None, "not the listener, which has that port too"
        assert socket_owner.query_socket(our_end, (here, 1)) is None
        theirs.close()
        assert ours.recv(1) == b""
        assert socket_owner.query_socket(their_end, our_end) is None


def test_a_socket_that_is_closed_while_the_kernel_describes_it_has_no_owner() -> None:
    """The kernel reads the state before it reads uid and inode: the three may be of two moments, and the uid is then root's."""
    ends = bytes(socket_owner._ENDS_BYTES)

    def described(uid: int, inode: int) -> bytes:
        head = socket_owner._HEAD.pack(0, socket_owner._BY_FAMILY, 0, 0, 0)
        state = socket_owner._ANSWER.pack(socket.AF_INET, socket_owner._TCP_ESTABLISHED, 0, 0)
        filled = (head + state + ends).ljust(socket_owner._UID_AT, b"\0")
        return filled + socket_owner._UID_AND_INODE.pack(uid, inode)

    assert socket_owner.parse_answer(described(1000, 7), socket.AF_INET, ends) == socket_owner.SocketEntry(1000, 7)
    assert socket_owner.parse_answer(described(0, 0), socket.AF_INET, ends) is None
