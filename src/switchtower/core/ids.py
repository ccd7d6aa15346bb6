"""Identifiers: ULIDs behind a kind prefix, such as `sess_01JCQ…`.

Pure: time and randomness are arguments, so every id in a test is predictable. The 128 bits behind the prefix can be written as
a UUID for protocols that want one.
"""

import re
from collections.abc import Callable
from uuid import UUID, uuid5

Mint = Callable[[str], str]
"""Makes a new id of the given kind: `mint("run")`."""

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]
_VERSION_7 = 0x7 << 76 | 0b10 << 62
_RANDOM_OF_VERSION_7 = 0xFFF << 64 | (1 << 62) - 1
UUID_KINDS = frozenset({"appr"})
"""Kinds of ids that protocols show to clients as UUIDs."""
_NAMES = UUID("6b1f2c0e-6a0b-5a57-9d0e-3f6d0f0a7c51")
"""The namespace of `make_named_id`; an arbitrary UUID that never changes."""
_VALUE_OF = {symbol: value for value, symbol in enumerate(_CROCKFORD)}


def format_id(prefix: str, now_ms: int, randomness: int) -> str:
    """Returns the id of this kind for a time (48 bits of milliseconds) and 80 bits of randomness."""
    bits = ((now_ms & 0xFFFF_FFFF_FFFF) << 80) | (randomness & ((1 << 80) - 1))
    # 130 bits as 13 pairs of base-32 symbols: a table of 1,024 pairs halves the work.
    pairs = _PAIRS
    return (
        prefix
        + "_"
        + pairs[bits >> 120 & 1023]
        + pairs[bits >> 110 & 1023]
        + pairs[bits >> 100 & 1023]
        + pairs[bits >> 90 & 1023]
        + pairs[bits >> 80 & 1023]
        + pairs[bits >> 70 & 1023]
        + pairs[bits >> 60 & 1023]
        + pairs[bits >> 50 & 1023]
        + pairs[bits >> 40 & 1023]
        + pairs[bits >> 30 & 1023]
        + pairs[bits >> 20 & 1023]
        + pairs[bits >> 10 & 1023]
        + pairs[bits & 1023]
    )


def mark_version_7(randomness: int) -> int:
    """Sets the bits that mark a UUID of version 7 (RFC 9562, 5.7) in 80 bits of randomness. Behind a time in milliseconds they
    make an id that is a ULID and, written as a UUID, a valid one.
    """
    return randomness & _RANDOM_OF_VERSION_7 | _VERSION_7


is_session_id = re.compile(r"sess_[A-Za-z0-9._:-]{1,251}", re.ASCII).fullmatch
"""Returns whether every protocol accepts the id. A journal of an older release may have others, which pi's clients chose."""


def make_named_id(prefix: str, name: str, generation: int) -> str:
    """Returns the id of this kind for the n-th thing with a name: every caller gets the same one."""
    return parse_uuid(prefix, uuid5(_NAMES, f"{prefix}\0{name}\0{generation}"))


def to_uuid(identifier: str) -> UUID:
    """Returns the same 128 bits as a UUID."""
    bits = 0
    for symbol in identifier.rpartition("_")[2]:
        bits = bits << 5 | _VALUE_OF[symbol]
    return UUID(int=bits)


def parse_uuid(prefix: str, uuid: UUID) -> str:
    """Returns the id of this kind with the UUID's 128 bits."""
    return format_id(prefix, uuid.int >> 80, uuid.int)
