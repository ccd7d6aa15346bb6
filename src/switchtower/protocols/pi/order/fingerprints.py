"""When two commands ask for the same: the digest of all that one says but its own identity. Pure.

pi-server 8.3: the order of keys does not matter, nor how a number is spelled (`1`, `1.0`, `1e0`).
"""

import hashlib
from typing import Any

import msgspec

KEPT_FRAME = 1_024
"""A frame up to this size waits to be digested until somebody asks; few ever do."""

_encode = msgspec.json.Encoder(order="sorted").encode


def normalize_number(spelled: str) -> float:
    """A JSON number with a fraction or an exponent, as a whole number when it is one."""
    value = float(spelled)
    if value - value != 0.0:
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


decode = msgspec.json.Decoder(float_hook=normalize_number).decode


def compute_digest(command: dict[str, Any]) -> str:
    meaning = {name: value for name, value in command.items() if name not in ("id", "idempotencyKey")}
    return hashlib.sha256(_encode(meaning)).hexdigest()


class Fingerprint:
    """Of one checked frame. Keeps the frame while it is small, the digest once it is known, never both."""

    __slots__ = ("_digest", "_frame")

    def __init__(self, frame: bytes, command: dict[str, Any]) -> None:
        keep = len(frame) <= KEPT_FRAME
        self._frame = frame if keep else b""
        self._digest = "" if keep else compute_digest(command)

    @classmethod
    def from_value(cls, value: str) -> "Fingerprint":
        """One that a receipt has kept."""
        fingerprint = cls.__new__(cls)
        fingerprint._frame, fingerprint._digest = b"", value
        return fingerprint

    @property
    def value(self) -> str:
        if not self._digest:
            self._digest, self._frame = compute_digest(decode(self._frame)), b""
        return self._digest
