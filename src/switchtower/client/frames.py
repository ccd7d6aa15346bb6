"""Decodes lines into typed answers and events, and encodes requests as lines. This module does no I/O.

The types are the protocol's own, made lenient: this client reads every frame that the push document allows. It ignores additions
of a newer daemon, accepts ids and words of any form, and lets fields be absent that the document's schemas leave optional. It
drops a list row that it cannot decode and keeps the other rows.

Decodes dialogs from push events: a `DIALOG_OPENED` warning carries the dialog as JSON in its detail, and a status ends it.

This module does no I/O. An event in any other form is not a dialog and remains an ordinary warning or status."""

from functools import cache, partial
from types import UnionType, new_class
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct, structs

from switchtower.client import errors
from switchtower.protocols.push import extension_messages, messages

OutgoingRequest = messages.Request | extension_messages.ExtensionRequest

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


class PushEvent(Struct, frozen=True):
    """One event. `payload` is None when this client does not know the type; `line` is the envelope as received."""

    session_id: str
    run_id: str | None
    seq: int
    ts: int
    type: str
    payload: EventPayload | None
    line: bytes


class ErrorBody(Struct, frozen=True):
    code: str
    message: str
    retryable: bool = False
    detail: str | None = None


class IncomingFrame(Struct, frozen=True):
    """Any line from the daemon: the union of the fields of responses and events."""

    kind: str
    type: str
    payload: Raw = Raw(b"null")
    requestId: str | None = None
    ok: bool = False
    error: ErrorBody | None = None
    sessionId: str | None = None
    runId: str | None = None
    seq: int = 0
    ts: int = 0


_EMPTY_REPLAY = messages.Replay(fromSeq=1, toSeq=0, completed=True, gap=False)
_OPTIONAL_FIELDS: dict[type[Struct], dict[str, Any]] = {
    messages.HelloAnswer: {
        "runtimeName": "",
        "runtimeVersion": "unknown",
        "protocolVersion": messages.VERSION,
        "capabilities": [],
    },
    messages.StartSessionAnswer: {"attachToken": ""},
    messages.ListedSession: {"repo": messages.ListedRepo("", "")},
    messages.ListedRepo: {"currentBranch": ""},
    messages.AttachAnswer: {"replay": _EMPTY_REPLAY},
    messages.SessionSnapshot: {
        "activeRunId": None,
        "lastAssistantText": "",
        "pendingApproval": None,
        "meta": messages.SnapshotMeta("", "local"),
    },
    messages.ApprovalRequired: {"summary": "", "details": {}, "options": ["approve", "deny"], "expiresAt": 0},
    messages.ToolResult: {"durationMs": 0, "structuredError": None},
    messages.RunComplete: {"summary": "", "acceptance": messages.Acceptance(0, 0, []), "headless": None},
}
"""Fields that the document's schemas leave optional or its examples only mention, with the client's default for each."""

_EXIT_CODES = {"success": 0, "cancelled": 2, "denied": 3}
"""push, Headless Mode Semantics: the exit code of each outcome. Every other outcome is a failure."""


@cache
def _make_lenient(closed: type[Struct]) -> type[Struct]:
    """Derives a type that ignores unknown fields and drops all value constraints, recursively."""
    hints = get_type_hints(closed, include_extras=True)
    absent = _OPTIONAL_FIELDS.get(closed, {})

    def body(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {
            name: _make_lenient_hint(hint) | None if absent.get(name, ...) is None else _make_lenient_hint(hint)
            for name, hint in hints.items()
        }
        for field in structs.fields(closed):
            if field.name in absent:
                namespace[field.name] = msgspec.field(default_factory=partial(_copy_default, absent[field.name]))
            elif field.default is not NODEFAULT:
                namespace[field.name] = field.default
            elif field.default_factory is not NODEFAULT:
                namespace[field.name] = msgspec.field(default_factory=field.default_factory)

    opened = new_class(closed.__name__, (closed,), {"frozen": True, "forbid_unknown_fields": False, "kw_only": True}, body)
    assert issubclass(opened, Struct)
    return opened


def _copy_default(default: Any) -> Any:
    return default.copy() if isinstance(default, list | dict) else default


def _make_lenient_hint(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _make_lenient(hint)
    origin = get_origin(hint)
    if origin is Annotated:
        return _make_lenient_hint(get_args(hint)[0])
    if origin is Literal and all(isinstance(word, str) for word in get_args(hint)):
        return str
    if origin in (Union, UnionType):
        return Union[tuple(_make_lenient_hint(inner) for inner in get_args(hint))]  # noqa: UP007
    if origin is list:
        return list[_make_lenient_hint(get_args(hint)[0])]  # type: ignore[misc]
    return hint


_incoming_decoder = msgspec.json.Decoder(IncomingFrame)
_answer_decoders = {
    name: msgspec.json.Decoder(_make_lenient(answer))
    for name, answer in {**messages.ANSWERS, **extension_messages.ANSWERS}.items()
}
_payload_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(_make_lenient(payload)) for name, payload in messages.EVENTS.items()
}
_REQUEST_TYPES: dict[type[OutgoingRequest], str] = {
    **{request: name for name, request in messages.REQUESTS.items()},
    **{request: name for name, request in extension_messages.REQUESTS.items()},
}


def get_request_type(request: OutgoingRequest) -> str:
    return _REQUEST_TYPES[type(request)]


def encode_request(request_id: str, request: OutgoingRequest, session_id: str | None) -> bytes:
    envelope = {
        "v": messages.VERSION,
        "kind": "request",
        "requestId": request_id,
        "type": get_request_type(request),
        "sessionId": session_id,
        "payload": _encode_payload(request),
    }
    return msgspec.json.encode(_strip_nulls(envelope)) + b"\n"


def _encode_payload(request: OutgoingRequest) -> dict[str, Any]:
    """Omits fields that have their default value, so that a daemon that does not know one of our additions never receives it."""
    payload: dict[str, Any] = msgspec.to_builtins(request)
    return {field.name: payload[field.name] for field in structs.fields(request) if not _is_default(field, request)}


def _is_default(field: structs.FieldInfo, request: OutgoingRequest) -> bool:
    value = getattr(request, field.name)
    if field.default_factory is not NODEFAULT:
        return bool(value == field.default_factory())
    return bool(value == field.default)


def _strip_nulls(value: Any) -> Any:
    """Removes nulls: push's schemas have absent fields in requests, never null."""
    if isinstance(value, dict):
        return {key: _strip_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_strip_nulls(inner) for inner in value]
    return value


def decode_frame(line: bytes) -> IncomingFrame:
    try:
        return _incoming_decoder.decode(line)
    except msgspec.MsgspecError as problem:
        raise _make_violation(problem) from None


def decode_answer(incoming: IncomingFrame) -> Struct:
    """Decodes the payload of a response. Raises `errors.RequestFailed` when the daemon refused."""
    if not incoming.ok:
        problem = incoming.error or ErrorBody("INTERNAL_ERROR", "the daemon refused without a reason")
        if problem.code == "UNSUPPORTED_REQUEST_TYPE":
            raise errors.DaemonTooOld(f"`{incoming.type}`")
        raise errors.RequestFailed(problem.code, problem.message, retryable=problem.retryable, detail=problem.detail)
    try:
        return _answer_decoders[incoming.type].decode(incoming.payload)
    except KeyError as problem:
        raise _make_violation(problem) from None
    except msgspec.MsgspecError as problem:
        try:
            return _decode_without_bad_rows(_answer_decoders[incoming.type].type, incoming.payload)
        except msgspec.MsgspecError:
            raise _make_violation(problem) from None


def _decode_without_bad_rows(answer_type: type[Struct], payload: Raw) -> Struct:
    """Decodes the answer with only the readable rows of its lists. Raises `MsgspecError` when it still cannot be decoded."""
    fields: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    for name, hint in get_type_hints(answer_type).items():
        if get_origin(hint) is list and isinstance(rows := fields.get(name), list):
            fields[name] = [row for row in rows if _is_decodable(row, get_args(hint)[0])]
    return msgspec.convert(fields, answer_type)


def _is_decodable(row: Any, row_type: Any) -> bool:
    try:
        msgspec.convert(row, row_type)
    except msgspec.MsgspecError:
        return False
    return True


def decode_event(incoming: IncomingFrame, line: bytes) -> PushEvent:
    decoder = _payload_decoders.get(incoming.type)
    try:
        payload = decoder.decode(incoming.payload) if decoder else None
    except msgspec.MsgspecError as problem:
        raise _make_violation(problem) from None
    if isinstance(payload, messages.RunComplete) and payload.headless is None:
        payload = structs.replace(payload, headless=messages.Headless(_EXIT_CODES.get(payload.outcome, 1)))
    return PushEvent(incoming.sessionId or "", incoming.runId, incoming.seq, incoming.ts, incoming.type, payload, line)


def _make_violation(problem: Exception) -> errors.ProtocolViolation:
    return errors.ProtocolViolation(
        f"the daemon sent something that is not {messages.VERSION}: {problem}",
        hint="stop it with `tower stop`; the next command starts the installed one",
    )


ANSWERED = "answered"
_CLOSED = "Dialog closed: "


class InterviewItem(Struct, frozen=True):
    """One question of an interview. A newer daemon may send types that this client does not know."""

    id: str
    type: str
    question: str
    options: tuple[str, ...] = ()
    required: bool = False


class PushDialog(Struct, frozen=True, rename="camel"):
    """A question to the user. `method` is `select`, `confirm`, `input`, `editor` or `interview`."""

    dialog_id: messages.DialogId
    method: str
    title: str = ""
    message: str = ""
    options: tuple[str, ...] = ()
    placeholder: str | None = None
    prefill: str | None = None
    questions: tuple[InterviewItem, ...] = ()
    expires_at: messages.Cursor = 0
    """The deadline in milliseconds on the daemon's clock."""


class DialogEnd(Struct, frozen=True):
    """The end of a dialog: `how` is `answered`, or the reason why it was closed without an answer."""

    dialog_id: str
    how: str


_decoder = msgspec.json.Decoder(PushDialog)


def decode_dialog_opened(payload: EventPayload | None) -> PushDialog | None:
    if not isinstance(payload, messages.Warn) or payload.code != "DIALOG_OPENED" or not payload.detail:
        return None
    try:
        return msgspec.structs.replace(_decoder.decode(payload.detail), title=payload.message)
    except (msgspec.MsgspecError, RecursionError):
        return None


def decode_dialog_end(payload: EventPayload | None) -> DialogEnd | None:
    if not isinstance(payload, messages.Status) or not payload.detail:
        return None
    if payload.phase == "Dialog answered":
        return DialogEnd(payload.detail, ANSWERED)
    if payload.phase.startswith(_CLOSED):
        return DialogEnd(payload.detail, payload.phase.removeprefix(_CLOSED))
    return None


class DialogTracker:
    """Tracks the dialogs that are open after the events so far, each with the seq at which it was opened."""

    def __init__(self) -> None:
        self.dialogs: dict[str, tuple[int, PushDialog]] = {}

    def on_event(self, event: PushEvent) -> None:
        if (dialog := decode_dialog_opened(event.payload)) is not None:
            self.dialogs[dialog.dialog_id] = (event.seq, dialog)
        elif (ending := decode_dialog_end(event.payload)) is not None:
            self.dialogs.pop(ending.dialog_id, None)
        elif isinstance(event.payload, messages.RunComplete):
            self.dialogs.clear()
