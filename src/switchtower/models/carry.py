"""What a provider wants handed back with a message: signatures of its thinking, marks on its calls. Packed small.

A message's texts are in the conversation already, so a carry holds only how they are divided into parts and what stands
beside each part. It is used for the endpoint and model that made it, and only while the texts are what they were: a secret
hidden in them since makes a signature worthless.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core import engine

LONGEST = 262_144
"""Bytes. What is larger is not kept; the conversation goes on without."""


class CarryPiece(Struct, frozen=True, array_like=True):
    """A part of a message. `kind` is `text`, `thinking` or `call`; a call is the next one of the message's calls."""

    kind: str
    length: int = 0
    """Characters of the message's text or thinking."""
    extras: dict[str, Any] = {}
    """The part's `id`, `signature` and `details`, as far as it has them."""


class PackedCarry(Struct, frozen=True):
    by: str
    """The endpoint and the model."""
    checksum: int
    pieces: list[CarryPiece]


class CarriedPart(Struct, frozen=True):
    """A piece together with what it is a piece of."""

    kind: str
    text: str = ""
    call: int = 0
    extras: Mapping[str, Any] = {}


def pack_carry(by: str, text: str, thinking: str, pieces: Sequence[CarryPiece]) -> dict[str, Any] | None:
    """None when there is nothing worth keeping, or nothing that can be kept."""
    if not any(piece.extras for piece in pieces):
        return None
    carried = PackedCarry(by, _compute_checksum(text, thinking), list(pieces))
    try:
        encoded = msgspec.json.encode(carried)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if len(encoded) > LONGEST:
        return None
    data: dict[str, Any] = msgspec.json.decode(encoded)
    return data


def iterate_parts(message: engine.Message, by: str) -> Iterator[CarriedPart]:
    """The parts of an assistant message, for whoever is asked now. Thinking is handed back only with a carry of their own."""
    carried = _unpack(message.carry, by)
    if carried is None or sum(piece.kind == "call" for piece in carried.pieces) != len(message.calls):
        yield CarriedPart("text", message.text)
        yield from (CarriedPart("call", call=index) for index in range(len(message.calls)))
        return
    if carried.checksum != _compute_checksum(message.text, message.thinking):
        yield CarriedPart("text", message.text)
        calls = [piece for piece in carried.pieces if piece.kind == "call"]
        yield from (CarriedPart("call", call=index, extras=piece.extras) for index, piece in enumerate(calls))
        return
    places = {"text": 0, "thinking": 0, "call": 0}
    for piece in carried.pieces:
        place = places[piece.kind]
        if piece.kind == "call":
            places["call"] = place + 1
            yield CarriedPart("call", call=place, extras=piece.extras)
        else:
            whole = message.text if piece.kind == "text" else message.thinking
            places[piece.kind] = place + piece.length
            yield CarriedPart(piece.kind, whole[place : place + piece.length], extras=piece.extras)


def _unpack(data: dict[str, Any] | None, by: str) -> PackedCarry | None:
    if data is None or data.get("by") != by:
        return None
    try:
        carried = msgspec.convert(data, PackedCarry)
    except msgspec.ValidationError:
        return None  # by an older version of us, or by nobody we know
    return carried if all(piece.kind in ("text", "thinking", "call") for piece in carried.pieces) else None


def _compute_checksum(text: str, thinking: str) -> int:
    return zlib.crc32(f"{len(text)}:{text}{thinking}".encode(errors="replace"))
