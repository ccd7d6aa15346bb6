"""Commands, outcomes and refusals between nodes, as bytes. Pure.

Nodes of two versions communicate during a rolling upgrade: a command that a node does not know is refused as such, and fields
that it does not know are ignored.
"""

from typing import Any, get_args

import msgspec
from msgspec import Struct

from switchtower.core import codec, commands, errors, events
from switchtower.core.ports import session_service

_encode = msgspec.msgpack.Encoder().encode


class CommandFrame(Struct, array_like=True):
    name: str
    body: msgspec.Raw


class OutcomeFrame(Struct, array_like=True):
    outcome: dict[str, Any] | None
    refusal: str | None = None
    """The code of the refusal."""
    detail: str | None = None
    hint: str | None = None


EncodedEvent = tuple[str, bytes]
"""An event as the journal has it: its kind, and its data."""


class MirrorFrame(Struct, array_like=True):
    """A `MirrorRun`: its events have various types, so each one carries its kind."""

    session_id: str
    host: str
    run_id: str
    reports: list[tuple[int, list[EncodedEvent]]]
    opening: list[EncodedEvent]


_command_decoder = msgspec.msgpack.Decoder(CommandFrame).decode
_outcome_decoder = msgspec.msgpack.Decoder(OutcomeFrame).decode
_mirror_decoder = msgspec.msgpack.Decoder(MirrorFrame).decode
_COMMANDS = {
    kind.wire_name: msgspec.msgpack.Decoder(kind) for kind in get_args(commands.AnyCommand) if kind is not commands.MirrorRun
}
_REFUSALS = {kind.code: kind for kind in errors.CoreError.__subclasses__()}


def encode_command(asked: commands.AnyCommand) -> bytes:
    body = _encode(_encode_mirror(asked) if isinstance(asked, commands.MirrorRun) else asked)
    return _encode(CommandFrame(asked.wire_name, msgspec.Raw(body)))


def decode_command(body: bytes) -> commands.AnyCommand:
    """Raises `errors.InvalidCommand` for a command that this version does not know."""
    try:
        asked = _command_decoder(body)
        if asked.name == commands.MirrorRun.wire_name:
            return _decode_mirror(_mirror_decoder(asked.body))
        known = _COMMANDS.get(asked.name)
        if known is None:
            raise errors.InvalidCommand(f"`{asked.name[:80]}` is not known to the session's home", hint="upgrade all nodes")
        read: commands.AnyCommand = known.decode(asked.body)
    except (msgspec.MsgspecError, KeyError) as problem:
        raise errors.InvalidCommand("the session's home could not read it", hint="upgrade all nodes") from problem
    return read


def encode_outcome(told: session_service.SubmitOutcome | errors.CoreError) -> bytes:
    if isinstance(told, errors.CoreError):
        return _encode(OutcomeFrame(None, told.code, told.detail, told.hint))
    return _encode(OutcomeFrame(told))


def decode_outcome(body: bytes) -> session_service.SubmitOutcome | errors.CoreError:
    try:
        told = _outcome_decoder(body)
    except msgspec.MsgspecError:
        return errors.OutcomeUnknown("its answer could not be read")
    if told.refusal is not None:
        kind = _REFUSALS.get(told.refusal, errors.CoreError)
        return kind(told.detail, hint=told.hint)
    return told.outcome or {}


def _encode_mirror(asked: commands.MirrorRun) -> MirrorFrame:
    reports = [(report.seq, _encode_events(report.events)) for report in asked.reports]
    return MirrorFrame(asked.session_id, asked.host, asked.run_id, reports, _encode_events(asked.opening))


def _decode_mirror(told: MirrorFrame) -> commands.MirrorRun:
    return commands.MirrorRun(
        session_id=told.session_id,
        host=told.host,
        run_id=told.run_id,
        reports=tuple(commands.HostReport(seq, _decode_events(spelled)) for seq, spelled in told.reports),
        opening=_decode_events(told.opening),
    )


def _encode_events(told: tuple[events.AnyEvent, ...]) -> list[EncodedEvent]:
    return [(event.kind, codec.encode(event)) for event in told]


def _decode_events(spelled: list[EncodedEvent]) -> tuple[events.AnyEvent, ...]:
    return tuple(codec.decode(kind, data) for kind, data in spelled)
