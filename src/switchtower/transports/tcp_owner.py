"""Whose process is at the other end of a TCP connection that stays on this machine. Asks the kernel, or reads `/proc/net`.

The other end of such a connection is a socket of this machine too, and the kernel lists it with its owner. Only the row with
exactly these two ends counts, and only while it is established: the kernel lists what is ending as root's.
"""

import errno
import ipaddress
import socket
import struct
from pathlib import Path

from switchtower.transports import sock_diag

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_UID_COLUMN, _INODE_COLUMN = 7, 9
_TRIES = 3
"""A table is read piece by piece while connections come and go, and a row may slip through between two pieces."""
_WORD = struct.Struct("=I")
"""The tables spell addresses as words of 32 bits in the machine's own order."""


def find_owner_uid(address: str, reached_at: str) -> int | None:
    """The owner of the socket at `address`, which is connected with ours at `reached_at`. None when it cannot be known."""
    found = find_socket(address, reached_at)
    return None if found is None else found.uid


def find_socket(address: str, reached_at: str) -> sock_diag.SocketEntry | None:
    """The socket at `address`, which is connected with ours at `reached_at`. None when there is none on this machine, and when
    it is not, or no longer, connected."""
    try:
        needles = _make_row_prefixes(address, reached_at)
        found = sock_diag.query_socket(_pack_end(address), _pack_end(reached_at))
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
                    # The needle begins with the colon behind the row's number, so that the columns count as in the whole row.
                    columns = rows[start : rows.find(b"\n", start)].split()
                    found = sock_diag.SocketEntry(int(columns[_UID_COLUMN]), int(columns[_INODE_COLUMN]))
                    # Without an inode it was closed while the row was written, and the uid is not its owner's.
                    return found if found.inode else None
    return None


def is_local_address(address: str) -> bool:
    """Whether a connection from `address` begins on this machine: at a loopback address, or at any other that it has."""
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
    """How the row begins, in each spelling that these two ends may have."""
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
