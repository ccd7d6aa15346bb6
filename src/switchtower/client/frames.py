"""Lines to typed answers and events, and requests to lines. Does no I/O.

The types are the protocol's own, opened: what a newer daemon adds to them is ignored here, as the versioning rules want.
"""

from functools import cache
from types import UnionType, new_class
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct, structs

from switchtower.client import errors
from switchtower.protocols.push import extensions, messages

Request = messages.Request | extensions.Request

EventPayload = (
    messages.SessionStarted
    | messages.SessionSnapshot
    | messages.Status
    | messages.Token
    | messages.AssistantDone
    | messages.ToolCall
    | messages.ToolResult
    | messages.ApprovalRequired
    | messages.ApprovalReceived
    | messages.Warn
    | messages.Failure
    | messages.RunComplete
)


class Event(Struct, frozen=True):
    """One event. `payload` is None when this client does not know the type; `line` is the envelope as it came."""

    session_id: str
    run_id: str | None
    seq: int
    ts: int
    type: str
    payload: EventPayload | None
    line: bytes


class Problem(Struct, frozen=True):
    code: str
    message: str
    retryable: bool = False
    detail: str | None = None


class Incoming(Struct, frozen=True):
    """Any line from the daemon: the fields of a response and of an event, whichever it is."""

    kind: str
    type: str
    payload: Raw = Raw(b"null")
    requestId: str | None = None
    ok: bool = False
    error: Problem | None = None
    sessionId: str | None = None
    runId: str | None = None
    seq: int = 0
    ts: int = 0


@cache
def _opened(closed: type[Struct]) -> type[Struct]:
    """The type with unknown fields ignored, in it and in all that it holds."""
    hints = get_type_hints(closed, include_extras=True)

    def body(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {name: _opened_hint(hint) for name, hint in hints.items()}
        for field in structs.fields(closed):
            if field.default is not NODEFAULT:
                namespace[field.name] = field.default
            elif field.default_factory is not NODEFAULT:
                namespace[field.name] = msgspec.field(default_factory=field.default_factory)

    opened = new_class(closed.__name__, (closed,), {"frozen": True, "forbid_unknown_fields": False}, body)
    assert issubclass(opened, Struct)
    return opened


def _opened_hint(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _opened(hint)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return Union[tuple(_opened_hint(inner) for inner in get_args(hint))]  # noqa: UP007
    if origin is list:
        return list[_opened_hint(get_args(hint)[0])]  # type: ignore[misc]
    return hint


_incoming = msgspec.json.Decoder(Incoming)
_answers = {name: msgspec.json.Decoder(_opened(answer)) for name, answer in {**messages.ANSWERS, **extensions.ANSWERS}.items()}
_payloads: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(_opened(payload)) for name, payload in messages.EVENTS.items()
}
_type_of: dict[type[Request], str] = {
    **{request: name for name, request in messages.REQUESTS.items()},
    **{request: name for name, request in extensions.REQUESTS.items()},
}


def type_of(request: Request) -> str:
    return _type_of[type(request)]


def encode(request_id: str, request: Request, session_id: str | None) -> bytes:
    envelope = {
        "v": messages.VERSION,
        "kind": "request",
        "requestId": request_id,
        "type": type_of(request),
        "sessionId": session_id,
        "payload": _said(request),
    }
    return msgspec.json.encode(_without_nulls(envelope)) + b"\n"


def _said(request: Request) -> dict[str, Any]:
    """What is as usual is not said: a daemon that does not know a field of ours need not hear of it."""
    payload: dict[str, Any] = msgspec.to_builtins(request)
    return {field.name: payload[field.name] for field in structs.fields(request) if not _is_usual(field, request)}


def _is_usual(field: structs.FieldInfo, request: Request) -> bool:
    value = getattr(request, field.name)
    if field.default_factory is not NODEFAULT:
        return bool(value == field.default_factory())
    return bool(value == field.default)


def _without_nulls(value: Any) -> Any:
    """Absent is absent: the document's schemas have no null in requests."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def decode(line: bytes) -> Incoming:
    try:
        return _incoming.decode(line)
    except msgspec.MsgspecError as problem:
        raise _violation(problem) from None


def answer(incoming: Incoming) -> Struct:
    """The typed payload of a response. Raises `errors.RequestFailed` when the daemon refused."""
    if not incoming.ok:
        problem = incoming.error or Problem("INTERNAL_ERROR", "the daemon refused without a reason")
        if problem.code == "UNSUPPORTED_REQUEST_TYPE":
            raise errors.DaemonTooOld(f"`{incoming.type}`")
        raise errors.RequestFailed(problem.code, problem.message, retryable=problem.retryable, detail=problem.detail)
    try:
        return _answers[incoming.type].decode(incoming.payload)
    except (msgspec.MsgspecError, KeyError) as problem:
        raise _violation(problem) from None


def event(incoming: Incoming, line: bytes) -> Event:
    decoder = _payloads.get(incoming.type)
    try:
        payload = decoder.decode(incoming.payload) if decoder else None
    except msgspec.MsgspecError as problem:
        raise _violation(problem) from None
    return Event(incoming.sessionId or "", incoming.runId, incoming.seq, incoming.ts, incoming.type, payload, line)


def _violation(problem: Exception) -> errors.ProtocolViolation:
    return errors.ProtocolViolation(
        f"the daemon sent something that is not {messages.VERSION}: {problem}",
        hint="stop it with `tower stop`; the next command starts the installed one",
    )
