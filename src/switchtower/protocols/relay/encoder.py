"""Encodes events as relay's envelopes, for apps and for the hub alike. An event becomes at most one envelope.

A run is a session: its `run_id` is the session's id and its `seq` the journal's. For a session of another host only that host's
own messages are passed on, under the host's own numbers. `id` is ours: the place in this journal, for paging.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.core.rules import mirrors
from switchtower.core.session import REMOTE_CALL, Session
from switchtower.protocols.relay import wire_values

TERMINAL = "terminal"
FLOW = "flow"
"""The tool names, in the core's terms, of a program in a terminal and of a flow."""
RESULT_LIMIT = 4_000
SUMMARY_LIMIT = 80
REASONS = ("permission", "choice", "prompt", "unknown")
_APPROVE, _DENY = "y\n", "n\n"
_LOCAL = "local"
_ACTORS = {"web": "web", "app": "web", "cli": "cli", _LOCAL: "cli"}
_OP_TOOLS = {"rpc.bash": "bash"}
"""relay, run.permission_requested: the document's own example of `op_tool`."""
DECISION_NAMES = {
    events.Verdict.APPROVE: "approve",
    events.Verdict.DENY_CONTINUE: "deny",
    events.Verdict.DENY_STOP: "abort",
}

_encode = msgspec.json.Encoder().encode
OUTPUTS = frozenset({events.ToolProgressed.kind, events.TextDelta.kind})


class EnvelopeHeader(Struct, frozen=True):
    """The fields that every envelope of a session has."""

    session_id: str
    run_id: str
    host_id: str
    mirrored: bool
    """The session runs on another host."""
    is_terminal: bool
    ends: bool
    """The end of its run is the end of the session: it takes no further message."""
    encoded_ids: bytes = b""
    """Both ids, encoded as in every envelope; derived from them."""

    def __post_init__(self) -> None:
        encoded = b'"host_id":%b,"run_id":%b' % (_encode(self.host_id), _encode(self.run_id))
        msgspec.structs.force_setattr(self, "encoded_ids", encoded)

    @classmethod
    def from_session(cls, session: Session, own_host_id: str) -> "EnvelopeHeader":
        return cls(
            session_id=session.id,
            run_id=wire_values.format_run_id(session.id),
            host_id=session.host or own_host_id,
            mirrored=session.host is not None,
            is_terminal=session.terminal is not None,
            ends=session.mode == "headless" or session.flow is not None,
        )

    @classmethod
    def from_card(cls, card: journal.Card, own_host_id: str) -> "EnvelopeHeader":
        return cls(
            session_id=card.session_id,
            run_id=wire_values.format_run_id(card.session_id),
            host_id=card.host or own_host_id,
            mirrored=card.host is not None,
            is_terminal=bool(card.tool),
            ends=card.mode == "headless" or card.engine == FLOW,
        )


class _StreamedPiece(Struct):
    """Streamed text, as far as it must be decoded to be passed on."""

    text: msgspec.Raw
    relayed: events.Relayed | None = None
    call_id: msgspec.Raw = msgspec.Raw()
    """The tool call that wrote the output."""


NO_CALL_ID = msgspec.Raw()
_decode_piece = msgspec.json.Decoder(_StreamedPiece).decode

_HUB_EVENTS = (events.HostLost, events.HostReturned, events.SessionDeleted)
"""Events of the hub itself in a session of another host: clients get them although the host did not send them."""


def encode_batch(about: EnvelopeHeader, entries: Sequence[journal.Entry]) -> list[bytes]:
    return [frame for entry in entries if (frame := encode_event(about, entry)) is not None]


def encode_event(about: EnvelopeHeader, entry: journal.Entry) -> bytes | None:
    if entry.kind in OUTPUTS:
        return _encode_output(about, entry)
    event = codec.decode(entry.kind, entry.data)
    relayed = event.relayed
    if about.mirrored and relayed is None and not isinstance(event, _HUB_EVENTS):
        return None  # it is our own event; the host's message reports it already
    told = make_message(about, event)
    if told is None:
        return None
    type_, data = told
    if relayed is not None and relayed.extra:
        data = {**data, **relayed.extra}
    seq = relayed.seq if relayed else None if about.mirrored else entry.seq
    at_ms = relayed.at_ms if relayed else entry.ts_ms
    return _encode_head(about, type_, at_ms, seq, entry.seq) + _encode(data) + b"}"


def encode_unnumbered(type_: str, now_ms: int, data: Any, *, run_id: str | None = None, host_id: str | None = None) -> bytes:
    """Encodes a message that is not in a run's journal."""
    head: dict[str, Any] = {"type": type_, "ts": wire_values.format_timestamp(now_ms)}
    if host_id is not None:
        head["host_id"] = host_id
    if run_id is not None:
        head["run_id"] = run_id
    head["data"] = data
    return _encode(head)


def _encode_output(about: EnvelopeHeader, entry: journal.Entry) -> bytes | None:
    piece = _decode_piece(entry.data)
    relayed = piece.relayed
    if relayed is None:
        if about.mirrored:
            return None
        head = _encode_head(about, "run.output", entry.ts_ms, entry.seq, entry.seq)
        # A terminal is one call from its start to its end, and needs no name for it.
        call = b'"request_id":' + bytes(piece.call_id) + b"," if piece.call_id != NO_CALL_ID and not about.is_terminal else b""
        return head + b'{"stream":"stdout",' + call + b'"text":' + bytes(piece.text) + b"}}"
    head = _encode_head(about, "run.output", relayed.at_ms, relayed.seq, entry.seq)
    if not relayed.extra:
        return head + b'{"stream":"stdout","text":' + bytes(piece.text) + b"}}"
    return head + _encode({"stream": "stdout", "text": piece.text, **relayed.extra}) + b"}"


def _encode_head(about: EnvelopeHeader, type_: str, at_ms: int, seq: int | None, place: int) -> bytes:
    # This is one formatting step because each piece of each program's output passes here.
    stamp = wire_values.format_timestamp(at_ms).encode()
    if seq is None:
        return b'{"type":"%b","ts":"%b",%b,"id":%d,"data":' % (_escape_type(type_), stamp, about.encoded_ids, place)
    return b'{"type":"%b","ts":"%b",%b,"seq":%d,"id":%d,"data":' % (_escape_type(type_), stamp, about.encoded_ids, seq, place)


@lru_cache(maxsize=256)
def _escape_type(type_: str) -> bytes:
    """Escapes the type, without the quotes around it. Another host may have types of any spelling."""
    return _encode(type_)[1:-1]


def make_message(about: EnvelopeHeader, event: events.AnyEvent) -> tuple[str, dict[str, Any]] | None:
    """Returns relay's type of the event and its data; None when relay has no message for it."""
    match event:
        case events.SessionStarted():
            return "run.started", _make_session_started(event, mirrored=about.mirrored)
        case events.RunStarted():
            return _make_run_started(event)
        case events.MessageQueued(delivery=events.Delivery.STEER):
            return "run.input", _make_input(event.by, event.message_id, event.text, None)
        case events.TerminalTyped():
            return "run.input", _make_input(event.by, event.input_id, event.text, event.sha256)
        case events.UsageReported():
            return "run.usage", _make_usage(event)
        case events.TerminalResized():
            return "run.resized", {"cols": event.cols, "rows": event.rows}
        case events.PromptShown():
            told: dict[str, Any] = {"reason": event.reason, "prompt": event.prompt}
            if event.approval_id is not None:
                told["request_id"] = wire_values.format_request_id(event.approval_id)
            return "run.awaiting_input", told
        case events.PromptCleared():
            return "run.resumed", {}
        case events.ScreenCaptured():
            return "run.screen", {"text": event.text, "cols": event.cols, "rows": event.rows}
        case events.DialogOpened():
            reason = "choice" if event.dialog.method in ("select", "confirm") else "prompt"
            return "run.awaiting_input", {"reason": reason, "prompt": event.dialog.title}
        case events.ApprovalRequested():
            return "run.permission_requested", make_permission(event.approval, mirrored=about.mirrored)
        case events.ApprovalDecided():
            by = mirrors.attribute(event.by, about.host_id) if about.mirrored else event.by
            decided: dict[str, Any] = {
                "decision": DECISION_NAMES[event.verdict],
                "actor": convert_actor(by),
                "by": by.name,
                "via": by.via,
            }
            if by.claims is not None:
                decided["claims"] = {"by": by.claims.name, "via": by.claims.via}
            return "run.permission_decided", {"request_id": wire_values.format_request_id(event.approval_id), **decided}
        case events.ApprovalExpired():
            return "run.permission_decided", {
                "request_id": wire_values.format_request_id(event.approval_id),
                "decision": "expired",
            }
        case events.ApprovalWithdrawn():
            request_id = wire_values.format_request_id(event.approval_id)
            return "run.permission_decided", {"request_id": request_id, "decision": "withdrawn", "reason": event.reason}
        case events.ToolCalled() if event.tool == TERMINAL and about.is_terminal and not about.mirrored:
            return "run.ready", {"runner_mode": "pty"}
        case events.ToolCalled():
            return "tool.call", {
                "request_id": event.call_id,
                "tool": event.tool,
                "actor": "system",
                "args": _truncate(event.args),
            }
        case events.ToolFinished() if event.tool == TERMINAL and about.is_terminal and not about.mirrored:
            return None
        case events.ToolFinished():
            return "tool.result", _make_tool_result(event)
        case events.RemoteCallStarted():
            args = _truncate(event.args)
            return "tool.call", {
                "request_id": event.errand_id,
                "tool": event.tool,
                "actor": _get_tool_actor(event.by),
                "args": args,
            }
        case events.RemoteCallFinished():
            return "tool.result", _make_remote_call_result(event)
        case events.ShellStarted():
            args = {"cmd": event.command}
            return "tool.call", {"request_id": event.shell_id, "tool": "bash", "actor": _get_tool_actor(event.by), "args": args}
        case events.ShellFinished():
            return "tool.result", _make_shell_result(event)
        case events.WarningRaised():
            return "run.output", {"stream": "stderr", "text": f"warning: {event.message}\n"}
        case events.ErrorRaised():
            return "run.output", {"stream": "stderr", "text": f"error: {event.message}\n"}
        case events.RunCompleted():
            return _make_completed(about, event)
        case events.SessionDeleted():
            # relay has no message for it; a deleted run has ended. `deleted` is our addition.
            return "run.exited", {"exit_code": event.exit_code or 0, "deleted": True}
        case events.HostLost():
            return "run.lost", {}
        case events.HostReturned():
            return "run.found", {}
        case events.HostEventReceived():
            return (event.type, event.data) if event.type else None
        case (
            events.SessionLoaded()
            | events.SessionUnloaded()
            | events.VersionAdvanced()
            | events.SessionResumed()
            | events.SessionConfigured()
            | events.MessageQueued()
            | events.MessageDelivered()
            | events.MessageWithdrawn()
            | events.PromptExpanded()
            | events.ConversationCleared()
            | events.MessageImported()
            | events.ShellCancelRequested()
            | events.PhaseChanged()
            | events.ThinkingDelta()
            | events.TextDelta()
            | events.ToolProgressed()
            | events.MessageCompleted()
            | events.TerminalKeysTyped()
            | events.TerminalEchoChanged()
            | events.RetryScheduled()
            | events.RetryEnded()
            | events.CompactionStarted()
            | events.ContextCompacted()
            | events.CompactionFailed()
            | events.CheckpointTaken()
            | events.WorkspaceRestored()
            | events.StepStopped()
            | events.DialogAnswered()
            | events.DialogClosed()
            | events.RunCancelRequested()
        ):
            return None
        case _:
            assert_never(event)


def convert_actor(by: events.Actor) -> str:
    """Returns the origin of an action as one of relay's few values; another machine's claim counts, which the document calls
    informational."""
    return _ACTORS.get(by.via if by.claims is None else by.claims.via, "system")


def _get_tool_actor(by: events.Actor) -> str:
    """relay, Tool Events: only these also have `local`, for the host's own socket."""
    via = by.via if by.claims is None else by.claims.via
    return via if via == _LOCAL else convert_actor(by)


def get_op_tool(kind: str, tool: object) -> str | None:
    """Returns the tool that a question is about. None for a prompt of a program, which is about no tool."""
    if kind == TERMINAL or not isinstance(tool, str):
        return None if kind == TERMINAL else kind
    return _OP_TOOLS.get(tool, tool)


def make_permission(approval: events.Approval, *, mirrored: bool = False) -> dict[str, Any]:
    """For a question of another host (`mirrored`), the fields that the host has left out stay absent."""
    details = approval.details
    tool = details.get("tool")
    told: dict[str, Any] = {
        "request_id": wire_values.format_request_id(approval.id),
        "reason": reason if (reason := details.get("reason")) in REASONS else "permission",
        "prompt": approval.title,
        "op_tool": tool if mirrored else get_op_tool(approval.kind, tool),
        # relay, events: the details to be decided are shown in full. The core asks no question that would not fit a frame.
        "op_args": details.get("args", None if mirrored else details),
        "op_args_summary": approval.summary[:SUMMARY_LIMIT],
    }
    if mirrored and approval.summary == approval.title[:SUMMARY_LIMIT]:
        told["op_args_summary"] = None
    # Our addition: the question can only be denied, and why. No text would approve it.
    cannot = {} if "approve" in approval.options else {events.CANNOT_APPROVE: str(details.get(events.CANNOT_APPROVE, ""))}
    return {name: value for name, value in told.items() if value is not None} | _make_answer_texts(approval, mirrored) | cannot


def _make_answer_texts(approval: events.Approval, mirrored: bool) -> dict[str, Any]:
    details = approval.details
    if mirrored:
        return {name: details.get(name, "") for name in ("approve_text", "deny_text")}
    if approval.kind == REMOTE_CALL:
        # The program of the run asks nothing: a text that a client types there would not decide this.
        return {"approve_text": "", "deny_text": ""}
    return {"approve_text": details.get("approve_text", _APPROVE), "deny_text": details.get("deny_text", _DENY)}


def _make_session_started(event: events.SessionStarted, *, mirrored: bool) -> dict[str, Any]:
    if event.program is not None:
        program = event.program
        told: dict[str, Any] = {"tool": program.tool, "cwd": event.workspace.root, "command": program.command}
        # The size is our addition. Another host reports it itself, or not at all.
        return told if mirrored else {**told, "cols": program.cols, "rows": program.rows}
    if event.flow is not None:
        return {"tool": FLOW, "cwd": event.workspace.root, "command": event.flow.name}
    return {"tool": event.engine, "cwd": event.workspace.root, "command": event.model or event.provider}


def _make_run_started(event: events.RunStarted) -> tuple[str, dict[str, Any]] | None:
    match event.purpose:
        case events.Purpose.PROGRAM | events.Purpose.FLOW:
            return None
        case events.Purpose.WORK:
            return "run.input", _make_input(event.by, event.message_id or "", event.text, None)
        case _:
            return "run.output", {"stream": "stderr", "text": f"{event.purpose.value}\n"}


def _make_input(by: events.Actor, input_id: str, text: str, sha256: str | None) -> dict[str, Any]:
    # Only the kept part of a message can be hashed.
    input_id = wire_values.format_request_id(input_id) if input_id.startswith("appr_") else input_id
    digest = sha256 or hashlib.sha256(text.encode()).hexdigest()
    return {"actor": convert_actor(by), "input_id": input_id, "text_redacted": text, "text_sha256": digest}


def _make_usage(event: events.UsageReported) -> dict[str, Any]:
    """Our addition: the usage of one call of a model."""
    told: dict[str, Any] = {"provider": event.provider, "model": event.model}
    told |= {"input_tokens": event.input_tokens, "output_tokens": event.output_tokens}
    return {**told, "cost": event.cost, "context_window": event.context_window}


def _make_tool_result(event: events.ToolFinished) -> dict[str, Any]:
    told = {"request_id": event.call_id, "tool": event.tool, "actor": "system"}
    text = event.text[:RESULT_LIMIT]
    outcome: dict[str, Any] = {"ok": False, "error": text} if event.is_error else {"ok": True, "result": {"text": text}}
    return {**told, "duration_ms": event.duration_ms, **outcome}


def _make_remote_call_result(event: events.RemoteCallFinished) -> dict[str, Any]:
    told = {"request_id": event.errand_id, "tool": event.tool, "actor": _get_tool_actor(event.by), "ok": event.ok}
    outcome = {"result": event.result} if event.ok else {"error": event.error or "failed"}
    return {**told, "duration_ms": event.duration_ms, **outcome}


def _make_shell_result(event: events.ShellFinished) -> dict[str, Any]:
    told = {"request_id": event.shell_id, "tool": "bash", "actor": "system", "duration_ms": 0}
    if event.exit_code is None:
        return {**told, "ok": False, "error": "cancelled"}
    return {**told, "ok": True, "result": {"stdout": event.text[:RESULT_LIMIT], "exit_code": event.exit_code}}


def _make_completed(about: EnvelopeHeader, event: events.RunCompleted) -> tuple[str, dict[str, Any]]:
    if about.is_terminal or about.ends:
        exited: dict[str, Any] = {"exit_code": event.exit_code_hint if event.exit_code is None else event.exit_code}
        if event.outcome in (events.Outcome.CANCELLED, events.Outcome.DENIED):
            exited["outcome"] = event.outcome.value  # ours: the code alone does not distinguish a stop from a failure
        return "run.exited", exited
    # An agent that has completed its work waits for the next message.
    return "run.awaiting_input", {"reason": "prompt", "prompt": event.summary[:200]}


def _truncate(value: object) -> object:
    """Returns the value itself, or its start when it is long."""
    spelled = _encode(value)
    if len(spelled) <= RESULT_LIMIT or _is_truncated(value, len(spelled)):
        return value
    return {"truncated": spelled[:RESULT_LIMIT].decode(errors="ignore")}


def _is_truncated(value: object, length: int) -> bool:
    """The value was truncated already, on its own host. Quoted once more, the truncated text is at most twice as long."""
    return isinstance(value, dict) and value.keys() == {"truncated"} and length <= 2 * RESULT_LIMIT + len('{"truncated":""}')
