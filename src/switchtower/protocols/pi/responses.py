"""Encodes responses and lifecycle events of commands, announcements to all clients, and the questions to users. It decides
nothing.

Announcements belong to no command: the server's own state, and sessions that were added or removed. Questions are shown by pi's
clients: approvals as `confirm`, extensions' dialogs by their method.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, json

from switchtower.core import events, policy
from switchtower.protocols.pi import event_messages, inbound, messages

encode = msgspec.json.Encoder().encode


class LifecycleData(Struct):
    """Interop, Envelope: the `data` of a command's lifecycle events. Its fields are set as the command proceeds."""

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
    """pi-server 5, with `data` and `timedOut` as on the interop page."""

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
    """The end of a command: its response without the parts that belong to one request. It is kept, stored and replayed."""

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
    """Encodes the end of a command that was accepted, and refused before it could start."""
    data.success, data.error = False, error
    return encode(_LifecycleEvent("command_finished", data))


def encode_response(outcome: CommandOutcome, id_: str | None, *, replayed: bool = False) -> bytes:
    # pi-server 5.1: a replay carries the repeated request's own id, or none; never the first request's.
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


_encode_announcement = json.Encoder().encode


def encode_server_ready(version: str) -> bytes:
    """pi-server 16.1: the first frame of every connection."""
    data = {
        "serverVersion": version,
        "protocolVersion": messages.PROTOCOL_VERSION,
        "transports": ["websocket", "stdio"],
    }
    return _encode_announcement({"type": "server_ready", "data": data})


def encode_server_shutdown(timeout_ms: int) -> bytes:
    return _encode_announcement({"type": "server_shutdown", "data": {"reason": "graceful_shutdown", "timeoutMs": timeout_ms}})


def encode_session_created(info: event_messages.SessionInfo) -> bytes:
    return _encode_announcement({"type": "session_created", "data": {"sessionId": info.sessionId, "sessionInfo": info}})


def encode_session_deleted(session_id: str) -> bytes:
    return _encode_announcement({"type": "session_deleted", "data": {"sessionId": session_id}})


_DETAIL_ORDER = (events.CANNOT_APPROVE, "screen", "command", "cwd", "path", "message", "args", "diff", "reason")
"""The details needed to judge a call, in the order in which a user reads them."""

CLOSED_BY_VERDICT = {
    events.Verdict.APPROVE: "approved",
    events.Verdict.DENY_CONTINUE: "denied",
    events.Verdict.DENY_STOP: "denied",
}


def make_ui_request(question: events.Approval | events.Dialog, now_ms: int) -> event_messages.ExtensionUiRequest:
    return (
        make_approval_request(question, now_ms)
        if isinstance(question, events.Approval)
        else make_dialog_request(question, now_ms)
    )


def make_approval_request(approval: events.Approval, now_ms: int) -> event_messages.ExtensionUiRequest:
    return event_messages.ExtensionUiRequest(
        requestId=approval.id,
        method="confirm",
        title=approval.title,
        message=_describe_approval(approval),
        timeout=_compute_timeout(approval.expires_at_ms, now_ms),
        approval=True,
        always=UNSET if approval.rule is None else policy.format_rule(approval.rule),
    )


def make_dialog_request(dialog: events.Dialog, now_ms: int) -> event_messages.ExtensionUiRequest:
    # pi-server 18.1: each method has its own fields. A dialog's texts are sent with any method.
    return event_messages.ExtensionUiRequest(
        requestId=dialog.id,
        method=dialog.method,
        title=dialog.title,
        message=dialog.message if dialog.method == "confirm" or dialog.message else UNSET,
        options=dialog.options if dialog.method == "select" else UNSET,
        placeholder=_unset_if_none(dialog.placeholder) if dialog.method == "input" else UNSET,
        prefill=_unset_if_none(dialog.prefill) if dialog.method == "editor" else UNSET,
        questions=dialog.questions if dialog.method == "interview" else UNSET,
        timeout=_compute_timeout(dialog.expires_at_ms, now_ms),
    )


def _describe_approval(approval: events.Approval) -> str:
    """The summary, followed by every detail that it leaves out, in full. Existing clients show nothing but this text."""
    lines = [approval.summary]
    for name in _DETAIL_ORDER:
        shown = _format_details(approval.details, name)
        if shown and shown != approval.summary:
            lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name}: {shown}")
    if approval.details.get("destructive") is True:
        lines.append("destructive: yes")
    return "\n".join(lines)


def _format_details(details: Mapping[str, object], name: str) -> str:
    value = details.get(name)
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else str(value)


def _compute_timeout(expires_at_ms: int, now_ms: int) -> int:
    return max(0, expires_at_ms - now_ms)


def _unset_if_none(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text
