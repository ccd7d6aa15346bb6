"""Finds the process at the other end of a local connection. Linux only; elsewhere nothing is known.

For TCP, the other end of a local connection is a socket of this machine too, and the kernel lists it with its owner. Only the
entry with exactly these two ends counts, and only while it is established: the kernel lists closing sockets as root's. A netlink
query is exact and takes microseconds; the tables in `/proc/net`, the fallback, are written completely for each reader.

For a Unix socket, the kernel names the pid, which may be reused. The start time distinguishes the two processes, and a pidfd of
the socket itself shows that the process which connected still exists.

A process in a container is recognised in `/proc`: it has a number in another process namespace besides ours.
"""

import errno
import ipaddress
import os
import select
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

_SOCK_DIAG = 4  # linux/netlink.h: NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # linux/sock_diag.h: SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # linux/netlink.h: NLM_F_REQUEST
_ANY_STATE = 0xFFFFFFFF
_TCP_ESTABLISHED = 1
_HEAD = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBBI")
_PORTS = struct.Struct(">HH")
_NO_INTERFACE_NO_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER = struct.Struct("=BBBB")
_ENDS_BYTES = _PORTS.size + 32
_UID_AND_INODE = struct.Struct("=II")
_UID_AT = _HEAD.size + _ANSWER.size + _ENDS_BYTES + len(_NO_INTERFACE_NO_COOKIE) + 12


class SocketEntry(NamedTuple):
    uid: int
    inode: int
    """The inode by which `/proc/PID/fd` names the socket."""


def query_socket(theirs: tuple[bytes, int], ours: tuple[bytes, int]) -> SocketEntry | None:
    """Returns the established socket between these ends, each a packed address and a port. None when it is unknown."""
    family = socket.AF_INET if len(theirs[0]) == 4 else socket.AF_INET6
    ends = _PORTS.pack(theirs[1], ours[1]) + theirs[0].ljust(16, b"\0") + ours[0].ljust(16, b"\0")
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + ends + _NO_INTERFACE_NO_COOKIE
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.send(_HEAD.pack(_HEAD.size + len(question), _BY_FAMILY, _REQUEST, 0, 0) + question)
            answer = kernel.recv(4_096, socket.MSG_DONTWAIT)
    except (OSError, AttributeError):
        return None
    return parse_answer(answer, family, ends)


def parse_answer(answer: bytes, family: int, ends: bytes) -> SocketEntry | None:
    """Returns the socket that the kernel describes, if it is the one between these ends, is established and has a holder."""
    if len(answer) < _UID_AT + _UID_AND_INODE.size or _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    answered_family, state, _, _ = _ANSWER.unpack_from(answer, _HEAD.size)
    start = _HEAD.size + _ANSWER.size
    # Where there is no such connection, the kernel may answer with the socket that listens at that port.
    if (answered_family, state) != (family, _TCP_ESTABLISHED) or answer[start : start + _ENDS_BYTES] != ends:
        return None
    found = SocketEntry(*_UID_AND_INODE.unpack_from(answer, _UID_AT))
    # The kernel reads the state first. A socket that is closed in between has no inode any more, and is listed as root's.
    return found if found.inode else None


_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_UID_COLUMN, _INODE_COLUMN = 7, 9
_TRIES = 3
"""A table is read piece by piece while connections open and close, and a row may be missed between two pieces."""
_WORD = struct.Struct("=I")
"""The tables spell addresses as words of 32 bits in the machine's own order."""


def find_owner_uid(address: str, reached_at: str) -> int | None:
    """Returns the owner of the socket at `address`, which is connected with ours at `reached_at`. None when it cannot be
    known.
    """
    found = find_socket(address, reached_at)
    return None if found is None else found.uid


def find_socket(address: str, reached_at: str) -> SocketEntry | None:
    """Returns the socket at `address`, which is connected with ours at `reached_at`. None when there is none on this machine, and
    when it is not, or no longer, connected.
    """
    try:
        needles = _make_row_prefixes(address, reached_at)
        found = query_socket(_pack_end(address), _pack_end(reached_at))
    except (ValueError, struct.error):
        return None
    if found is not None:
        return found
    for _ in range(_TRIES):
        for table in _TABLES:
            try:
                rows = table.read_bytes()
            except OSError:
                continue
            for needle in needles:
                start = rows.find(needle)
                if start >= 0:
                    # The needle starts with the colon behind the row's number, so that the columns count as in the whole row.
                    columns = rows[start : rows.find(b"\n", start)].split()
                    found = SocketEntry(int(columns[_UID_COLUMN]), int(columns[_INODE_COLUMN]))
                    # Without an inode it was closed while the row was written, and the uid is not its owner's.
                    return found if found.inode else None
    return None


def is_local_address(address: str) -> bool:
    """Returns whether a connection from `address` starts on this machine: at a loopback address, or at any other that it has."""
    host = address.rpartition(":")[0]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if ip.is_loopback:
        return True
    with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError as problem:
            return problem.errno != errno.EADDRNOTAVAIL
    return True


def is_loopback(address: str) -> bool:
    try:
        host = ipaddress.ip_address(address.rpartition(":")[0])
    except ValueError:
        return False
    mapped = getattr(host, "ipv4_mapped", None)
    return (mapped or host).is_loopback


def _pack_end(end: str) -> tuple[bytes, int]:
    host, _, port = end.rpartition(":")
    return ipaddress.ip_address(host).packed, int(port)


def _make_row_prefixes(address: str, reached_at: str) -> list[bytes]:
    """Returns the start of the row, in each spelling that these two ends may have."""
    rows = []
    for spell in (_format_ipv4, _format_ipv6):
        theirs, ours = spell(address), spell(reached_at)
        if theirs and ours:
            rows.append(f": {theirs} {ours} {_ESTABLISHED} ".encode())
    return rows


def _format_ipv4(end: str) -> str | None:
    host, _, port = end.rpartition(":")
    parsed = ipaddress.ip_address(host)
    ipv4 = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else parsed
    return None if ipv4 is None else f"{_WORD.unpack(ipv4.packed)[0]:08X}:{int(port):04X}"


def _format_ipv6(end: str) -> str:
    host, _, port = end.rpartition(":")
    packed = ipaddress.ip_address(host).packed
    # An IPv4 peer may be using an IPv6 socket, whose row has the mapped address.
    packed = packed if len(packed) == 16 else socket.inet_pton(socket.AF_INET6, f"::ffff:{host}")
    return "".join(f"{word:08X}" for (word,) in _WORD.iter_unpack(packed)) + f":{int(port):04X}"


_CREDENTIALS = struct.Struct("3i")
"""The pid, uid and gid of the process at the other end, as Linux reports them."""
_SO_PEERPIDFD = 77
"""asm-generic/socket.h, since Linux 6.5. Python's socket module does not have it yet."""
_STATE, _STARTED = 0, 19
"""Fields of `/proc/PID/stat`, counted behind the name."""
_PROCESS_ENDED = (b"Z", b"X", b"x")


class PeerProcess(NamedTuple):
    pid: int | None = None
    """0 for a process of another PID namespace; None where the system does not report it."""
    uid: int | None = None
    started_at: int | None = None
    """The start time in clock ticks since the machine started; None for a process that cannot be seen."""
    is_gone: bool = False
    """The process has ended since it connected."""


def find_peer_process(sock: socket.socket) -> PeerProcess:
    if sys.platform != "linux":
        return PeerProcess()
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if pid <= 0:
        return PeerProcess(0, uid)
    try:
        pidfd = _open_pidfd(sock, pid)
    except OSError:
        return PeerProcess(pid, uid, is_gone=True)
    try:
        started_at = read_start_time(pid)
        # This is checked last: as long as the process has not ended, everything that was read of this pid is its own.
        return PeerProcess(pid, uid, started_at, is_gone=_has_ended(pidfd))
    finally:
        os.close(pidfd)


def read_start_time(pid: int) -> int | None:
    """Returns the process's start time; None when it has ended or cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - for each connection
            # The name in parentheses may contain anything, even parentheses: the fields start behind the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(fields) <= _STARTED or fields[_STATE] in _PROCESS_ENDED else int(fields[_STARTED])


if sys.platform == "linux":

    def _open_pidfd(sock: socket.socket, pid: int) -> int:
        """Returns a pidfd of the very process that connected, where the kernel offers it. Raises `OSError` when that has
        ended.
        """
        try:
            return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as problem:
            if problem.errno != errno.ENOPROTOOPT:
                raise
            return os.pidfd_open(pid)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


_PROC = Path("/proc")
_ENDED = (["Z"], ["X"])


class _Process(NamedTuple):
    """One reading of `/proc/PID/status`: its lines belong to the same moment."""

    uid: int
    """The effective uid."""
    namespaces: int
    """The number of process namespaces, from ours down, in which it has a number. 0 when that is not shown."""
    has_ended: bool
    """Every thread has ended and only the exit code is left: it holds no socket, though its files are unreadable to other
    users.
    """


def is_outside_containers(inode: int, uid: int) -> bool:
    """Returns whether every process of `uid` that may hold the socket is certainly in our own process namespace.

    A process whose files cannot be read (such as the daemon itself) may be the holder, so it counts as one. A process that ends
    during the search does not. When no holder was found or possible, nothing is certain: the answer is False.
    """
    ours = _read_status(_PROC / "self")
    found = False
    for folder in _list_processes():
        holds = _is_holding(folder, inode)
        process = None if holds is False else _read_status(folder)
        if process is None or process.has_ended or (holds is None and process.uid != uid):
            continue
        if ours is None or process.namespaces != ours.namespaces:
            return False
        found = True
    return found and ours is not None and ours.namespaces == 1


def _list_processes() -> list[Path]:
    try:
        return [folder for folder in _PROC.iterdir() if folder.name.isdigit()]
    except OSError:
        return []


def _is_holding(process: Path, inode: int) -> bool | None:
    """Returns None when its files may not be read."""
    name = f"socket:[{inode}]"
    try:
        files = list((process / "fd").iterdir())
    except PermissionError:
        return None
    except OSError:
        return False  # it has ended meanwhile
    for file in files:
        try:
            if str(file.readlink()) == name:
                return True
        except OSError:
            continue
    return False


def _read_status(process: Path) -> _Process | None:
    """Returns None when the process has ended and its exit code was read, or when nothing is shown of it."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    uids, state, threads = (fields.get(name, []) for name in ("Uid", "State", "Threads"))
    if len(uids) < 2:
        return None
    # The first thread may end before the others, which keep the files: only the last one's end counts.
    has_ended = state[:1] in _ENDED and threads == ["1"]
    return _Process(int(uids[1]), len(fields.get("NSpid", [])), has_ended)
