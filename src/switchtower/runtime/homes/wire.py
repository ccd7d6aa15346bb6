"""Commands, outcomes and refusals between nodes, as bytes. Pure.

Nodes of two versions speak with each other while a tower is brought from one to the next: what one does not know of the
other's words is refused as such, and fields that it does not know are passed over.
"""

from typing import Any, get_args

import msgspec
from msgspec import Struct

from switchtower.core import codec, commands, errors, events, tower

_encode = msgspec.msgpack.Encoder().encode


class Asked(Struct, array_like=True):
    name: str
    body: msgspec.Raw


class Told(Struct, array_like=True):
    outcome: dict[str, Any] | None
    refusal: str | None = None
    """The refusal's code."""
    detail: str | None = None
    hint: str | None = None


Spelled = tuple[str, bytes]
"""An event as the journal has it: its kind, and the rest."""


class Mirrored(Struct, array_like=True):
    """A `MirrorRun`: its events are of any kind, so each comes with its own."""

    session_id: str
    host: str
    run_id: str
    reports: list[tuple[int, list[Spelled]]]
    opening: list[Spelled]


_asked = msgspec.msgpack.Decoder(Asked).decode
_told = msgspec.msgpack.Decoder(Told).decode
_mirrored = msgspec.msgpack.Decoder(Mirrored).decode
_COMMANDS = {
    kind.wire_name: msgspec.msgpack.Decoder(kind) for kind in get_args(commands.AnyCommand) if kind is not commands.MirrorRun
}
_REFUSALS = {kind.code: kind for kind in errors.CoreError.__subclasses__()}


def command(asked: commands.AnyCommand) -> bytes:
    body = _encode(_spelled_mirror(asked) if isinstance(asked, commands.MirrorRun) else asked)
    return _encode(Asked(asked.wire_name, msgspec.Raw(body)))


def read_command(body: bytes) -> commands.AnyCommand:
    """Raises `errors.InvalidCommand` for what this version does not know."""
    try:
        asked = _asked(body)
        if asked.name == commands.MirrorRun.wire_name:
            return _read_mirror(_mirrored(asked.body))
        known = _COMMANDS.get(asked.name)
        if known is None:
            raise errors.InvalidCommand(f"`{asked.name[:80]}` is not known to the session's home", hint="upgrade all nodes")
        read: commands.AnyCommand = known.decode(asked.body)
    except (msgspec.MsgspecError, KeyError) as problem:
        raise errors.InvalidCommand("the session's home could not read it", hint="upgrade all nodes") from problem
    return read


def outcome(told: tower.Outcome | errors.CoreError) -> bytes:
    if isinstance(told, errors.CoreError):
        return _encode(Told(None, told.code, told.detail, told.hint))
    return _encode(Told(told))


def read_outcome(body: bytes) -> tower.Outcome | errors.CoreError:
    try:
        told = _told(body)
    except msgspec.MsgspecError:
        return errors.OutcomeUnknown("its answer could not be read")
    if told.refusal is not None:
        kind = _REFUSALS.get(told.refusal, errors.CoreError)
        return kind(told.detail, hint=told.hint)
    return told.outcome or {}


def _spelled_mirror(asked: commands.MirrorRun) -> Mirrored:
    reports = [(report.seq, _spelled(report.events)) for report in asked.reports]
    return Mirrored(asked.session_id, asked.host, asked.run_id, reports, _spelled(asked.opening))


def _read_mirror(told: Mirrored) -> commands.MirrorRun:
    return commands.MirrorRun(
        session_id=told.session_id,
        host=told.host,
        run_id=told.run_id,
        reports=tuple(commands.Report(seq, _read(spelled)) for seq, spelled in told.reports),
        opening=_read(told.opening),
    )


def _spelled(told: tuple[events.AnyEvent, ...]) -> list[Spelled]:
    return [(event.kind, codec.encode(event)) for event in told]


def _read(spelled: list[Spelled]) -> tuple[events.AnyEvent, ...]:
    return tuple(codec.decode(kind, data) for kind, data in spelled)
