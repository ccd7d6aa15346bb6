"""Decodes a host's messages about its runs as core events: the inverse of `encoder`, for the hub. Pure.

A host is trusted only with its own runs: wrong types become a report that names them, never an exception later. Messages without
a core event are kept as they came, and fields beyond the document are kept as `extra`. `get_action` maps each message of an app
to the action that `core/roles.py` checks; the HTTP endpoints name theirs in their rows.
"""

from typing import Any, Literal

import msgspec

from switchtower.core import commands, events, states
from switchtower.core.roles import Action
from switchtower.core.rules import user_actions
from switchtower.protocols.relay import encoder, messages, wire_values

UNKNOWN = "unknown"
MAX_TOOL_LENGTH = 64
EMPTY_REPORT = "host.nothing"
"""The type of a message of which only the number counts."""
_RESERVED_TYPES = (EMPTY_REPORT, "run.ack", "run.error", "run.gap", "run.lost", "run.found", "error", "host.heartbeat")
"""Types that a host may not send to apps: only their number counts."""
CALL = "terminal"
"""The id of the one call that a run of another host consists of."""
_APPROVAL_LIFETIME_MS = 30 * 86_400_000
"""Milliseconds for which an approval of another host counts as open here; its host decides when it ends."""
_VERDICTS = {verdict: word for word, verdict in encoder.DECISION_NAMES.items()}
_MAX_TEXT_LENGTH = 1_048_576
_MAX_CLAIM_LENGTH = 200
_ENDED_BY_A_USER = (events.Outcome.CANCELLED.value, events.Outcome.DENIED.value)

_decode_data = msgspec.json.Decoder(dict[str, Any]).decode


class InvalidReport(Exception):
    """The data of a message do not match its type."""


def make_opening_events(
    host: str,
    *,
    tool: str = UNKNOWN,
    cwd: str = "",
    command: str = "",
    cols: int = user_actions.COLS,
    rows: int = user_actions.ROWS,
) -> tuple[events.AnyEvent, ...]:
    """Makes the first events of a session of another host."""
    by = events.Actor(name=host, via="host")
    return (
        events.SessionStarted(
            engine="pty",
            mode="interactive",
            provider="terminal",
            sandbox="local",
            workspace=events.Workspace(root=cwd),
            by=by,
            attach_token_sha256="",  # no token has this hash: only the owner attaches
            program=events.Program(argv=(), command=command, tool=tool or UNKNOWN, cols=cols, rows=rows),
            host=host,
        ),
        events.RunStarted(text=command, by=by, purpose=events.Purpose.PROGRAM),
        events.ToolCalled(call_id=CALL, tool=encoder.TERMINAL, args={"command": command}),
    )


def parse_report(host: str, envelope: messages.Envelope, now_ms: int) -> commands.HostReport:
    """Converts one numbered message of a host. It never refuses: a number that was sent is a number that counts."""
    assert envelope.seq is not None, "only what is numbered is mirrored"
    at_ms = wire_values.parse_timestamp(envelope.ts, now_ms)
    if envelope.type == "run.output" and (text := _read_plain_output(envelope)) is not None:
        relayed = events.Relayed(envelope.seq, at_ms)
        return commands.HostReport(envelope.seq, (events.ToolProgressed(call_id=CALL, text=text, relayed=relayed),))
    try:
        fields = _Fields(envelope)
        told = _convert_event(host, envelope.type, fields, at_ms)
        extra = fields.left
    except InvalidReport as problem:
        told, extra = (events.HostEventReceived(type=envelope.type, data={"unreadable": str(problem)}),), {}
    relayed = events.Relayed(envelope.seq, at_ms, extra)
    first, *rest = told
    if isinstance(first, events.ToolFinished) and rest and isinstance(rest[-1], events.RunCompleted):
        # The end of the run is the host's message; the end of its call is our own event.
        return commands.HostReport(envelope.seq, (first, msgspec.structs.replace(rest[-1], relayed=relayed)))
    return commands.HostReport(envelope.seq, (msgspec.structs.replace(first, relayed=relayed), *rest))


class _PlainOutput(msgspec.Struct, forbid_unknown_fields=True):
    """Nearly all messages of hosts have this form."""

    stream: Literal["stdout"]
    text: str


_decode_plain = msgspec.json.Decoder(_PlainOutput).decode


def _read_plain_output(envelope: messages.Envelope) -> str | None:
    """Returns the text of output without further fields; None for all other, which is decoded field by field."""
    try:
        text = _decode_plain(envelope.data).text
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return text if len(text) <= _MAX_TEXT_LENGTH else None


class _Fields:
    """A message's data. Each field is taken once; the remaining ones are in `left`."""

    def __init__(self, envelope: messages.Envelope) -> None:
        try:
            self.left = _decode_data(envelope.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise InvalidReport("`data` is not an object") from None

    def take_text(self, name: str, default: str | None = None) -> str:
        value = self.left.pop(name, None)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise InvalidReport(f"`{name}` is not a text")
        if len(value) > _MAX_TEXT_LENGTH:
            # The rest is on the host; the apps see that something is missing.
            self.left["truncated"] = True
            value = f"{value[:_MAX_TEXT_LENGTH]}… ({len(value)} characters)"
        return value

    def take_number(self, name: str, default: int | None = None) -> int:
        value = self.left.pop(name, None)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not -(2**53) < value < 2**53:
            raise InvalidReport(f"`{name}` is not a whole number")
        return value

    def take_choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.left.pop(name, default)
        return value if isinstance(value, str) and value in choices else default

    def take_any(self, name: str) -> Any:
        return self.left.pop(name, None)

    def take_approval_id(self, name: str = "request_id") -> str:
        try:
            return wire_values.parse_request_id(self.take_text(name))
        except wire_values.InvalidRelayId as problem:
            raise InvalidReport(f"`{name}`: {problem}") from None


def _convert_event(host: str, type_: str, fields: _Fields, at_ms: int) -> tuple[events.AnyEvent, ...]:
    match type_:
        case "run.output":
            return (events.ToolProgressed(call_id=CALL, text=_read_output(fields)),)
        case "run.started":
            return make_opening_events(
                host,
                tool=fields.take_text("tool", UNKNOWN)[:MAX_TOOL_LENGTH],
                cwd=fields.take_text("cwd", ""),
                command=fields.take_text("command", ""),
                # It is also passed on as it came: the document does not have it.
                cols=_read_size_or(fields, "cols", user_actions.COLS),
                rows=_read_size_or(fields, "rows", user_actions.ROWS),
            )
        case "run.awaiting_input":
            reason = fields.take_choice("reason", encoder.REASONS, "unknown")
            prompt = fields.take_text("prompt", "")
            approval_id = fields.take_approval_id() if fields.left.get("request_id") is not None else None
            fields.left.pop("request_id", None)
            shown = events.PromptShown(reason=reason, prompt=prompt, approval_id=approval_id)
            if approval_id is None:
                return (shown,)
            # relay, interop: with a `request_id` it awaits an approval. If that was requested already, this is left out.
            asked = events.Approval(
                id=approval_id,
                call_id=CALL,
                kind="terminal",
                title=prompt,
                summary=prompt[: encoder.SUMMARY_LIMIT],
                details={"reason": reason},
                expires_at_ms=at_ms + _APPROVAL_LIFETIME_MS,
                fingerprint="",
            )
            return (shown, events.ApprovalRequested(approval=asked))
        case "run.resumed":
            return (events.PromptCleared(),)
        case "run.permission_requested":
            return (events.ApprovalRequested(approval=_read_approval(fields, at_ms)),)
        case "run.permission_decided":
            return (_read_decision(host, fields),)
        case "run.input":
            return _read_input(host, fields)
        case "run.screen":
            return (
                events.ScreenCaptured(
                    text=fields.take_text("text"), cols=_read_size(fields, "cols"), rows=_read_size(fields, "rows")
                ),
            )
        case "run.resized":
            by = events.Actor(name=host, via="host")
            return (events.TerminalResized(cols=_read_size(fields, "cols"), rows=_read_size(fields, "rows"), by=by),)
        case "tool.call":
            call_id, tool = fields.take_text("request_id"), fields.take_text("tool")
            args = fields.take_any("args")
            if not isinstance(args, dict):
                fields.left["args"] = args  # passed on as it came
                args = {"args": args}
            return (events.ToolCalled(call_id=call_id, tool=tool, args=args),)
        case "tool.result":
            return _read_tool_result(fields)
        case _ if type_ in _RESERVED_TYPES or type_.startswith("rpc."):
            fields.left = {}
            return (events.HostEventReceived(type="", data={}),)
        case "run.exited":
            return _make_exit(fields.take_number("exit_code", 0), fields.take_choice("outcome", _ENDED_BY_A_USER, ""))
        case _:
            data, fields.left = fields.left, {}
            return (events.HostEventReceived(type=type_, data=data),)


def _read_output(fields: _Fields) -> str:
    text = fields.take_text("text")
    if fields.left.get("stream") == "stdout":
        del fields.left["stream"]
    return text


def _read_approval(fields: _Fields, at_ms: int) -> events.Approval:
    approval_id = fields.take_approval_id()
    prompt = fields.take_text("prompt", "")
    tool = fields.take_text("op_tool", "")
    args = fields.take_any("op_args")
    details: dict[str, Any] = {"reason": fields.take_choice("reason", encoder.REASONS, "permission")}
    if args is not None:
        details["args"] = args
    if tool:
        details["tool"] = tool
    for name in ("approve_text", "deny_text"):
        details[name] = fields.take_text(name, "")
    cannot_approve = events.CANNOT_APPROVE in fields.left
    if cannot_approve:
        details[events.CANNOT_APPROVE] = fields.take_text(events.CANNOT_APPROVE, "")
    return events.Approval(
        id=approval_id,
        call_id=CALL,
        kind=tool or "terminal",
        title=prompt,
        summary=fields.take_text("op_args_summary", "") or prompt[: encoder.SUMMARY_LIMIT],
        details=details,
        expires_at_ms=at_ms + _APPROVAL_LIFETIME_MS,
        fingerprint="",
        options=("deny",) if cannot_approve else ("approve", "deny"),
    )


def _read_decision(host: str, fields: _Fields) -> events.AnyEvent:
    approval_id = fields.take_approval_id()
    word = fields.take_text("decision", "")
    if word in _VERDICTS:
        return events.ApprovalDecided(approval_id=approval_id, verdict=_VERDICTS[word], by=_make_decider(host, fields))
    if word == "expired":
        return events.ApprovalExpired(approval_id=approval_id)
    return events.ApprovalWithdrawn(approval_id=approval_id, reason=fields.take_text("reason", word or "closed"))


def _make_decider(host: str, fields: _Fields) -> events.Actor:
    """Returns the host as the actor, with the user that it names. That is its claim, and does not identify a user of this hub."""
    fields.left.pop("actor", None)
    name, via = fields.take_text("by", ""), fields.take_text("via", "")
    said = fields.take_any("claims")
    if isinstance(said, dict):
        # The host passes on what its hub claimed about the user.
        name, via = (value if isinstance(value := said.get(key), str) else "" for key in ("by", "via"))
    if not name:
        return events.Actor(name=host, via="host")
    return events.Actor(name=host, via="host", claims=events.Claim(name[:_MAX_CLAIM_LENGTH], via[:_MAX_CLAIM_LENGTH]))


def _read_input(host: str, fields: _Fields) -> tuple[events.AnyEvent, ...]:
    input_id = fields.take_text("input_id", "")
    who = fields.take_text("actor", "system")[:_MAX_CLAIM_LENGTH]
    by = events.Actor(name=host, via="host", claims=events.Claim(who, who))
    typed = events.TerminalTyped(
        input_id=input_id, text=fields.take_text("text_redacted", ""), sha256=fields.take_text("text_sha256", ""), by=by
    )
    return (typed, *_make_withdrawal(input_id))


def _make_withdrawal(request_id: str) -> tuple[events.AnyEvent, ...]:
    """Relay has no message for a decision: input with the approval's own id, or the end of its call, shows that it was made.
    Without such an approval, or when its decision was reported, this is left out."""
    try:
        return (events.ApprovalWithdrawn(approval_id=wire_values.parse_request_id(request_id), reason="answered on its host"),)
    except wire_values.InvalidRelayId:
        return ()


def _read_tool_result(fields: _Fields) -> tuple[events.AnyEvent, ...]:
    call_id, tool = fields.take_text("request_id"), fields.take_text("tool", "")
    duration_ms = fields.take_number("duration_ms", 0)
    ok = fields.take_any("ok") is True
    if ok:
        text = msgspec.json.encode(fields.left.get("result")).decode()[: encoder.RESULT_LIMIT]
    else:
        text = fields.take_text("error", "failed")
    finished = events.ToolFinished(call_id=call_id, tool=tool, duration_ms=duration_ms, text=text, is_error=not ok)
    return (finished, *_make_withdrawal(call_id))


def _make_exit(exit_code: int, ended_by: str) -> tuple[events.AnyEvent, ...]:
    """`ended_by` is the outcome of a run that a user has ended; empty otherwise."""
    text = f"The program ended with exit code {exit_code}"
    outcome = events.Outcome(ended_by or ("success" if exit_code == 0 else "failed"))
    hint = states.EXIT_CODE_HINT[outcome]
    return (
        events.ToolFinished(call_id=CALL, tool=encoder.TERMINAL, duration_ms=0, text=text, is_error=exit_code != 0),
        events.RunCompleted(outcome=outcome, summary=text, exit_code_hint=hint, exit_code=exit_code),
    )


def _read_size_or(fields: _Fields, name: str, default: int) -> int:
    value = fields.left.get(name)
    return value if type(value) is int and 1 <= value <= user_actions.LARGEST else default


def _read_size(fields: _Fields, name: str) -> int:
    value = fields.take_number(name)
    if not 1 <= value <= user_actions.LARGEST:
        raise InvalidReport(f"`{name}` is not a size")
    return value


MESSAGE_ACTIONS: dict[str, Action] = {
    "run.subscribe": Action.WATCH,
    "run.unsubscribe": Action.WATCH,
    "run.send_input": Action.SEND,
    "run.send_stdin": Action.TYPE,
    "run.resize": Action.TYPE,
    "run.stop": Action.STOP,
    "run.permission.approve": Action.DECIDE,
    "run.permission.deny": Action.DECIDE,
    "rpc.fs.read": Action.WATCH,
    "rpc.fs.search": Action.WATCH,
    "rpc.fs.list": Action.WATCH,
    "rpc.fs.write": Action.ACT,
    "rpc.bash": Action.ACT,
    "rpc.git.status": Action.WATCH,
    "rpc.git.diff": Action.WATCH,
    "rpc.runs.list": Action.WATCH,
    "rpc.run.stop": Action.STOP,
    "rpc.run.start": Action.START,
    "rpc.host.info": Action.WATCH,
    "rpc.host.doctor": Action.WATCH,
    "rpc.host.capabilities": Action.WATCH,
    "rpc.host.logs.tail": Action.READ_LOGS,
}


def get_action(type_: str, request: Any) -> Action | None:
    """Returns None for a message without a row in the table; such a message needs an admin."""
    if isinstance(request, messages.Decide) and request.decision == "approve_for_session":
        return Action.ALLOW_ALWAYS
    return MESSAGE_ACTIONS.get(type_)
