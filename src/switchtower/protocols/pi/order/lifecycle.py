"""Frames out that tell how commands go: the three lifecycle events and the response. Encodes; decides nothing."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchtower.protocols.pi.order import inbound

encode = msgspec.json.Encoder().encode


class LifecycleData(Struct):
    """Interop, Envelope: the `data` of a command's lifecycle events. Filled in as the command goes on."""

    commandId: str
    commandType: str
    sessionId: str | UnsetType
    dependsOn: list[str]
    ifSessionVersion: int | UnsetType
    idempotencyKey: str | UnsetType
    success: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    sessionVersion: int | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET


class _LifecycleEvent(Struct, frozen=True):
    type: str
    data: LifecycleData


class CommandResponse(Struct, frozen=True):
    """pi-server 5, and `data` and `timedOut` as the interop page has them."""

    type: str
    command: str
    success: bool
    id: str | UnsetType = UNSET
    data: object = UNSET
    error: str | UnsetType = UNSET
    sessionVersion: int | UnsetType = UNSET
    replayed: bool | UnsetType = UNSET
    timedOut: bool | UnsetType = UNSET


class CommandOutcome(Struct, frozen=True):
    """How a command ended: its response without what belongs to one asking. Kept, stored and replayed."""

    command: str
    success: bool
    data: Raw | UnsetType = UNSET
    error: str | UnsetType = UNSET
    sessionVersion: int | UnsetType = UNSET
    timedOut: bool | UnsetType = UNSET


def make_lifecycle_data(request: inbound.PiRequest, command_id: str) -> LifecycleData:
    session_id, version, key = request.session_id, request.if_session_version, request.idempotency_key
    return LifecycleData(
        command_id,
        request.type,
        UNSET if session_id is None else session_id,
        request.depends_on,
        UNSET if version is None else version,
        UNSET if key is None else key,
    )


def encode_accepted(data: LifecycleData) -> bytes:
    return encode(_LifecycleEvent("command_accepted", data))


def encode_started(data: LifecycleData) -> bytes:
    return encode(_LifecycleEvent("command_started", data))


def encode_finished(data: LifecycleData, outcome: CommandOutcome, *, replayed: bool = False) -> bytes:
    data.success = outcome.success
    data.error = outcome.error
    data.sessionVersion = outcome.sessionVersion
    if replayed:
        data.replayed = True
    return encode(_LifecycleEvent("command_finished", data))


def encode_rejected(data: LifecycleData, error: str) -> bytes:
    """Accepted, and refused before it could start."""
    data.success, data.error = False, error
    return encode(_LifecycleEvent("command_finished", data))


def encode_response(outcome: CommandOutcome, id_: str | None, *, replayed: bool = False) -> bytes:
    # pi-server 5.1: a replay carries the asking's own id, or none; never the first one's.
    return encode(
        CommandResponse(
            "response",
            outcome.command,
            outcome.success,
            UNSET if id_ is None else id_,
            outcome.data,
            outcome.error,
            outcome.sessionVersion,
            replayed or UNSET,
            outcome.timedOut,
        )
    )


def encode_error_response(command: str, id_: str | None, error: str) -> bytes:
    return encode(CommandResponse("response", command, False, id=UNSET if id_ is None else id_, error=error))
