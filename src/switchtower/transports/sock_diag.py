"""One TCP socket of this machine, asked of the kernel by its two ends. Linux only; where it does not answer, others must.

The question is exact and takes microseconds, where the tables in `/proc/net` are written out whole for each reader.
"""

import socket
import struct
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
    """What `/proc/PID/fd` names the socket by."""


def query_socket(theirs: tuple[bytes, int], ours: tuple[bytes, int]) -> SocketEntry | None:
    """The established socket between these ends, each a packed address and a port. None when it is not known."""
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
    """The socket that the kernel describes, if it is the one between these ends, is established and has a holder."""
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
