"""The system calls that a sandboxed command may not make: a table for each architecture, and the filter that bubblewrap loads.

The filter is a program in classic BPF, eight bytes for each instruction. It refuses with an error number and never kills, so
that programs can fall back. It takes no capability into account: the refused calls are those whose code in the kernel is
reachable without any, and those that would matter if another layer failed.
"""

import errno
import os
import platform
import struct
from functools import cache

from msgspec import Struct

# The offsets of the fields in `struct seccomp_data`; the low half of an argument comes first.
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENTS = (16, 24, 32)

_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

_X32_BIT = 0x40000000
"""Numbers from here on belong to the x32 table, which no other rule covers."""
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. CLONE_NEWTIME cannot be given to `clone`."""
_PUSHES_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into the terminal that a command was started from."""
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6."""
_NETLINK, _NETLINK_ROUTE = 16, 0
"""Name lookups and `ip` need the route protocol."""


class Architecture(Struct, frozen=True):
    name: str
    audit: int
    """The kernel's identifier of the architecture in filters."""
    numbers: dict[str, int]


class SyscallRefusal(Struct, frozen=True):
    error: int
    calls: tuple[str, ...]


REFUSALS = (
    # Its flags are behind a pointer, which no filter can read. The C libraries fall back to `clone`.
    SyscallRefusal(errno.ENOSYS, ("clone3",)),
    SyscallRefusal(errno.EPERM, ("unshare", "setns")),
    # It opens and connects without the calls that filters check.
    SyscallRefusal(errno.ENOSYS, ("io_uring_setup", "io_uring_enter", "io_uring_register")),
    SyscallRefusal(errno.EPERM, ("add_key", "request_key", "keyctl")),
    SyscallRefusal(errno.EPERM, ("bpf", "perf_event_open", "userfaultfd")),
    SyscallRefusal(errno.EPERM, ("mount", "umount2", "pivot_root")),
    SyscallRefusal(
        errno.EPERM, ("open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr")
    ),
    SyscallRefusal(errno.EPERM, ("name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark")),
    SyscallRefusal(errno.EPERM, ("process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp")),
    SyscallRefusal(errno.EPERM, ("modify_ldt", "iopl", "ioperm", "vhangup", "uselib", "_sysctl", "lookup_dcookie", "nfsservctl")),
    SyscallRefusal(
        errno.EPERM, ("init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms")
    ),
    SyscallRefusal(errno.EPERM, ("kexec_load", "kexec_file_load", "reboot", "acct", "syslog")),
    SyscallRefusal(errno.EPERM, ("swapon", "swapoff", "quotactl", "quotactl_fd")),
    SyscallRefusal(errno.EPERM, ("clock_settime", "settimeofday", "adjtimex", "clock_adjtime")),
)
"""System calls that are refused whatever their arguments are."""

_SINCE_ALL_TABLES_ARE_ONE = {
    # Linux has given new calls the same number everywhere since 424.
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}

X86_64 = Architecture(
    "x86_64",
    0xC000003E,
    {
        **_SINCE_ALL_TABLES_ARE_ONE,
        "ioctl": 16,
        "socket": 41,
        "clone": 56,
        "syslog": 103,
        "uselib": 134,
        "vhangup": 153,
        "modify_ldt": 154,
        "pivot_root": 155,
        "_sysctl": 156,
        "adjtimex": 159,
        "acct": 163,
        "settimeofday": 164,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "iopl": 172,
        "ioperm": 173,
        "create_module": 174,
        "init_module": 175,
        "delete_module": 176,
        "get_kernel_syms": 177,
        "query_module": 178,
        "quotactl": 179,
        "nfsservctl": 180,
        "lookup_dcookie": 212,
        "clock_settime": 227,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "fanotify_mark": 301,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "clock_adjtime": 305,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
    },
)

ARM64 = Architecture(
    "aarch64",
    0xC00000B7,
    {
        **_SINCE_ALL_TABLES_ARE_ONE,
        "lookup_dcookie": 18,
        "ioctl": 29,
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "nfsservctl": 42,
        "vhangup": 58,
        "quotactl": 60,
        "acct": 89,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "clock_settime": 112,
        "syslog": 116,
        "reboot": 142,
        "settimeofday": 170,
        "adjtimex": 171,
        "socket": 198,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "clone": 220,
        "swapon": 224,
        "swapoff": 225,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "fanotify_mark": 263,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "clock_adjtime": 266,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
)

ARCHITECTURES = (X86_64, ARM64)


@cache
def find_architecture() -> Architecture | None:
    """Returns this machine's architecture; `None` for one without a table, where commands run without a filter."""
    machine = platform.machine()
    return next((known for known in ARCHITECTURES if known.name == machine), None)


def build_filter(architecture: Architecture) -> bytes:
    """Builds the whole filter. The order matters: a number means nothing before its table is known."""
    numbers = architecture.numbers
    program = [
        *_make_load(_ARCHITECTURE),
        *_make_unless(_JUMP_EQUAL, architecture.audit, [_make_refusal(errno.ENOSYS)]),
        *_make_load(_NUMBER),
        *_make_if(_JUMP_FROM, _X32_BIT, [_make_refusal(errno.ENOSYS)]),
    ]
    for refusal in REFUSALS:
        for call in refusal.calls:
            if call in numbers:  # not every architecture has each of them
                program += _make_if(_JUMP_EQUAL, numbers[call], [_make_refusal(refusal.error)])
    program += _make_if(_JUMP_EQUAL, numbers["clone"], _make_clone_rules())
    program += _make_if(_JUMP_EQUAL, numbers["socket"], _make_socket_rules())
    program += _make_if(_JUMP_EQUAL, numbers["ioctl"], _make_ioctl_rules())
    program.append(_ALLOWED)
    return b"".join(program)


def open_filter() -> int | None:
    """Returns a descriptor from which a child can read the filter, once; close it when the child has been started. `None` where
    there is no table. Each command needs its own: reading moves the position for all processes that share a descriptor.
    """
    filter_here = _build_local_filter()
    if filter_here is None:
        return None
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, filter_here)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@cache
def _build_local_filter() -> bytes | None:
    architecture = find_architecture()
    return None if architecture is None else build_filter(architecture)


def _make_clone_rules() -> list[bytes]:
    return [*_make_load(_ARGUMENTS[0]), *_make_if(_JUMP_ANY_BIT, _NEW_NAMESPACES, [_make_refusal(errno.EPERM)]), _ALLOWED]


def _make_socket_rules() -> list[bytes]:
    allowed = [instruction for family in _FAMILIES for instruction in _make_if(_JUMP_EQUAL, family, [_ALLOWED])]
    netlink = [*_make_load(_ARGUMENTS[2]), *_make_if(_JUMP_EQUAL, _NETLINK_ROUTE, [_ALLOWED])]
    return [*_make_load(_ARGUMENTS[0]), *allowed, *_make_if(_JUMP_EQUAL, _NETLINK, netlink), _make_refusal(errno.EAFNOSUPPORT)]


def _make_ioctl_rules() -> list[bytes]:
    refused = [
        instruction for request in _PUSHES_INPUT for instruction in _make_if(_JUMP_EQUAL, request, [_make_refusal(errno.EPERM)])
    ]
    return [*_make_load(_ARGUMENTS[1]), *refused, _ALLOWED]


def _make_instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _make_load(offset: int) -> list[bytes]:
    return [_make_instruction(_LOAD, offset)]


def _make_if(test: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_make_instruction(test, value, 0, len(then)), *then]


def _make_unless(test: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_make_instruction(test, value, len(then), 0), *then]


def _make_refusal(error: int) -> bytes:
    return _make_instruction(_RETURN, _REFUSE | error)


_ALLOWED = _make_instruction(_RETURN, _ALLOW)
