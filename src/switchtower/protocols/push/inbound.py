"""Decodes push frames: bytes to a checked request, and a request to a core command. Bad input becomes push's own error. Pure.

`get_action` maps each request to the action that `core/roles.py` checks.

A client without a gap is sent the journal's own numbers. Each gap moves a client to the next *numbering*: a multiple of
`SEQ_STRIDE` is added to every number that it is sent from then on, including those of the gap's two frames. So none of them can
be a number that this client has seen, nor be below its cursor, however far ahead of the journal that is; and its next
`lastSeenSeq` holds both its numbering and its place in the journal (push, Event Envelope: `seq` is strictly monotonic, clients
dedupe by it).
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core import commands, events, flows, policy
from switchtower.core import errors as core_errors
from switchtower.core.roles import Action
from switchtower.core.rules import user_actions
from switchtower.protocols.push import errors, extension_messages, messages

UNKNOWN_REQUEST = "req_unknown"
"""The `requestId` of the answer to a frame whose own is missing, empty or too long to repeat."""
MAX_ECHO_LENGTH = 256
"""The longest `requestId`, in characters, that an answer repeats."""


class PushRequest(Struct, frozen=True):
    request_id: str
    type: str
    payload: messages.Request | extension_messages.ExtensionRequest
    session_id: str | None


class PushRequestError(Exception):
    """A frame is not a valid request; `error` is the answer."""

    def __init__(self, request_id: str, type_: str, error: messages.ProtocolError) -> None:
        super().__init__(error.message)
        self.request_id = request_id
        self.type = type_
        self.error = error


_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Envelope(Struct, frozen=True):
    """Any request; `payload` is decoded once `type` is known. Ids are checked by hand, at a fifth of the decoder's cost."""

    v: str
    kind: str
    requestId: str
    type: str
    payload: msgspec.Raw
    sessionId: str | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_is_request_id = re.compile(r"req_[A-Za-z0-9._:-]{1,252}").fullmatch
_is_session_id = re.compile(r"sess_[A-Za-z0-9._:-]{1,251}").fullmatch
_payload_decoders: dict[str, Callable[[msgspec.Raw], messages.Request | extension_messages.ExtensionRequest]] = {
    name: msgspec.json.Decoder(payload).decode for name, payload in {**messages.REQUESTS, **extension_messages.REQUESTS}.items()
}
_NEEDS_SESSION = messages.NEEDS_SESSION | extension_messages.NEEDS_SESSION


def parse(frame: bytes) -> PushRequest:
    try:
        envelope = _decode_envelope(frame)
        if not frame.isascii():
            frame.decode()  # the decoder skips unknown fields without checking their UTF-8
        if not _is_request_id(envelope.requestId):
            raise msgspec.ValidationError("`requestId` must be `req_` and letters, digits or `._:-`, 256 at most")
        if envelope.sessionId is not None and not _is_session_id(envelope.sessionId):
            raise msgspec.ValidationError("`sessionId` must be `sess_` and letters, digits or `._:-`, 256 at most")
    except _DECODE_ERRORS as problem:
        raise _refuse_frame(frame, problem) from None
    # push, Protocol Versioning: the version is checked before anything that a later version may have changed.
    if envelope.v != messages.VERSION:
        raise _refuse_version(envelope.requestId, envelope.type, envelope.v)
    if envelope.kind != "request":
        message = f"`kind` must be `request`, not `{envelope.kind[:100]}`"
        raise PushRequestError(envelope.requestId, envelope.type, errors.make_error("INVALID_REQUEST", message))
    decode_payload = _payload_decoders.get(envelope.type)
    if decode_payload is None:
        message = f"Unknown request type `{envelope.type[:100]}`"
        raise PushRequestError(envelope.requestId, envelope.type, errors.make_error("UNSUPPORTED_REQUEST_TYPE", message))
    try:
        payload = decode_payload(envelope.payload)
    except _DECODE_ERRORS as problem:
        error = errors.make_error("INVALID_REQUEST", f"Invalid payload: {problem}")
        raise PushRequestError(envelope.requestId, envelope.type, error) from None
    session_id = envelope.sessionId
    if envelope.type in _NEEDS_SESSION:
        session_id = _read_session_id(envelope, payload)
    return PushRequest(envelope.requestId, envelope.type, payload, session_id)


def _read_session_id(envelope: _Envelope, payload: Any) -> str:
    """Clients put the session's id in the envelope, in the payload, or in both; it must be in one of them and the same in
    both."""
    session_id: str | None = payload.sessionId or envelope.sessionId
    if session_id is None:
        raise PushRequestError(envelope.requestId, envelope.type, errors.make_error("INVALID_REQUEST", "`sessionId` is required"))
    if envelope.sessionId not in (None, session_id):
        message = "`sessionId` differs between the envelope and the payload"
        raise PushRequestError(envelope.requestId, envelope.type, errors.make_error("INVALID_REQUEST", message))
    return session_id


def _refuse_frame(frame: bytes, problem: Exception) -> PushRequestError:
    """The slow path, for frames that are not an envelope: the answer repeats as much of the frame as can be read."""
    reason = f"Invalid request: {problem}"
    try:
        frame.decode()
        loose = msgspec.json.decode(frame)
    except RecursionError:
        loose, reason = None, "The frame is nested too deeply"
    except _DECODE_ERRORS:
        loose, reason = None, "The frame is not valid JSON in UTF-8"
    if not isinstance(loose, dict):
        return PushRequestError(UNKNOWN_REQUEST, "unknown", errors.make_error("INVALID_REQUEST", reason))
    given_id, given_type, version = loose.get("requestId"), loose.get("type"), loose.get("v")
    # An id that the protocol does not allow is still repeated: the client could not match the answer by any other.
    request_id = given_id if isinstance(given_id, str) and 1 <= len(given_id) <= MAX_ECHO_LENGTH else UNKNOWN_REQUEST
    type_ = given_type if isinstance(given_type, str) else "unknown"
    if isinstance(version, str) and version != messages.VERSION:
        return _refuse_version(request_id, type_, version)
    return PushRequestError(request_id, type_, errors.make_error("INVALID_REQUEST", reason))


def _refuse_version(request_id: str, type_: str, version: str) -> PushRequestError:
    message = f"This runtime speaks `{messages.VERSION}`, not `{version[:100]}`"
    return PushRequestError(request_id, type_, errors.make_error("UNSUPPORTED_PROTOCOL_VERSION", message))


# Requests to commands


def build_start_session(
    request: messages.StartSession, session_id: str, actor: events.Actor, attach_token_sha256: str, *, is_owner: bool
) -> commands.StartSession:
    """`is_owner`: the request arrived on the owner's own socket."""
    if request.trust and not is_owner:
        raise core_errors.AttachForbidden(hint="only the owner's own socket can say that a folder is trusted")
    sandbox = None if request.sandboxProvider == "auto" else request.sandboxProvider
    return commands.StartSession(
        session_id=session_id,
        actor=actor,
        engine=request.engine,
        mode="interactive" if request.mode == "tui" else request.mode,
        provider=request.provider,
        model=request.model,
        allows_demo=request.allowDemo and request.mode in ("interactive", "tui"),
        sandbox=sandbox,
        sandbox_is_settled=is_owner and sandbox is not None,
        workspace=events.Workspace(
            root=request.repo.rootPath,
            branch=request.repo.currentBranch,
            default_branch=request.repo.defaultBranch,
            remote_url=request.repo.remoteUrl,
        ),
        attach_token_sha256=attach_token_sha256,
        metadata=request.metadata,
        policy=request.policy,
        thinking=request.thinking,
        budget=_build_budget(request.limits) if request.limits else None,
        preset=request.preset,
        trusts_folder=request.trust,
        id_is_fresh=True,
        program=user_actions.parse_program(
            request.engine, request.command, tool=request.tool, cols=request.cols, rows=request.rows
        ),
        flow=flows.parse_flow(request.engine, _build_flow(request.flow) if request.flow else None),
    )


def _build_flow(wish: messages.FlowWish) -> events.Flow:
    return events.Flow(
        name="",  # the document has the name; it is read when the document is checked
        document=wish.document,
        inputs=wish.inputs,
        runtime=wish.runtime,
        argv=tuple(wish.argv),
        allow_shell=wish.allowShell,
        log_json=wish.logJson,
        timeout_s=wish.timeoutSeconds,
    )


def _build_budget(limits: messages.Limits) -> events.Budget:
    return events.Budget(
        max_turns=limits.maxTurns, max_tokens=limits.maxTokens, max_cost=limits.maxCost, max_minutes=limits.maxMinutes
    )


def build_send_message(request: messages.SendUserMessage, session_id: str, actor: events.Actor) -> commands.SendMessage:
    return commands.SendMessage(
        session_id=session_id,
        actor=actor,
        idempotency_key=request.clientMessageId,
        text=request.text,
        acceptance=tuple(
            events.Criterion(criterion.id, criterion.check, criterion.exitCode, criterion.description)
            for criterion in request.acceptanceCriteria
        ),
        rules=_build_rules(request.rules),
    )


def _build_rules(rules: Sequence[messages.RunRule]) -> tuple[events.Rule, ...]:
    """Raises `InvalidCommand` for a rule that the policy does not understand."""
    try:
        return policy.parse_rules(
            [{name: value for name, value in msgspec.structs.asdict(rule).items() if value is not None} for rule in rules]
        )
    except ValueError as problem:
        raise core_errors.InvalidCommand(str(problem)) from None


def build_decide_approval(request: messages.SubmitApproval, session_id: str, actor: events.Actor) -> commands.DecideApproval:
    if request.decision == "approve":
        verdict = events.Verdict.APPROVE
    else:
        # A comment is meant for the model, so a denial with a comment lets the run continue.
        stops = not request.comment if request.stop is None else request.stop
        verdict = events.Verdict.DENY_STOP if stops else events.Verdict.DENY_CONTINUE
    return commands.DecideApproval(
        session_id=session_id,
        actor=actor,
        approval_id=request.approvalId,
        run_id=request.runId,
        verdict=verdict,
        comment=request.comment,
        always=request.scope == "session",
        stop_is_implied=request.stop is None,
    )


def build_cancel_run(request: messages.CancelRun, session_id: str, actor: events.Actor) -> commands.CancelRun:
    return commands.CancelRun(
        session_id=session_id, actor=actor, run_id=request.runId, reason=request.reason, force=request.force
    )


def build_queue_message(request: extension_messages.QueueMessage, session_id: str, actor: events.Actor) -> commands.QueueMessage:
    return commands.QueueMessage(
        session_id=session_id,
        actor=actor,
        idempotency_key=request.clientMessageId,
        text=request.text,
        delivery=events.Delivery(request.delivery),
    )


def build_configure_session(
    request: extension_messages.ConfigureSession, session_id: str, actor: events.Actor
) -> commands.ConfigureSession:
    return commands.ConfigureSession(
        session_id=session_id,
        actor=actor,
        provider=request.provider,
        model=request.model,
        policy=request.policy,
        thinking=request.thinking,
        title=request.title,
    )


def build_answer_dialog(request: extension_messages.AnswerDialog, session_id: str, actor: events.Actor) -> commands.AnswerDialog:
    """Raises `InvalidCommand` unless the request has exactly one answer."""
    given: dict[str, object] = {
        name: answer
        for name, answer in (("value", request.value), ("confirmed", request.confirmed), ("responses", request.responses))
        if answer is not None
    }
    if len(given) + request.dismissed != 1:
        raise core_errors.InvalidCommand(
            "an answer is one of `value`, `confirmed`, `responses` and `dismissed`", hint="give exactly one of them"
        )
    return commands.AnswerDialog(
        session_id=session_id, actor=actor, dialog_id=request.dialogId, response=None if request.dismissed else given
    )


def build_terminal_input(
    request: extension_messages.TerminalInput, session_id: str, actor: events.Actor
) -> commands.TypeInput | commands.TypeKeys:
    if request.inputId is None:
        return commands.TypeKeys(session_id=session_id, actor=actor, text=request.text)
    return commands.TypeInput(
        session_id=session_id,
        actor=actor,
        # The prefix separates inputs from messages, whose ids may be equal.
        idempotency_key=f"input:{request.inputId}",
        input_id=request.inputId,
        text=request.text,
        sha256=hashlib.sha256(request.text.encode()).hexdigest(),
    )


def build_terminal_resize(
    request: extension_messages.TerminalResize, session_id: str, actor: events.Actor
) -> commands.ResizeTerminal:
    return commands.ResizeTerminal(session_id=session_id, actor=actor, cols=request.cols, rows=request.rows)


REQUEST_ACTIONS: dict[str, Action] = {
    "hello": Action.WATCH,
    "ping": Action.WATCH,
    "start_session": Action.START,
    "list_sessions": Action.WATCH,
    "attach_session": Action.WATCH,
    "resume_session": Action.WATCH,
    "send_user_message": Action.SEND,
    "submit_approval": Action.DECIDE,
    "cancel_run": Action.STOP,
    "get_session": Action.WATCH,
    "configure_session": Action.CONFIGURE,
    "queue_message": Action.SEND,
    "compact_session": Action.CONFIGURE,
    "undo_run": Action.RESTORE,
    "diff_session": Action.WATCH,
    "list_models": Action.WATCH,
    "list_templates": Action.WATCH,
    "list_presets": Action.WATCH,
    "answer_dialog": Action.ANSWER,
    "terminal_input": Action.TYPE,
    "terminal_resize": Action.TYPE,
    "list_terminals": Action.WATCH,
    "get_flow": Action.WATCH,
    "set_provider_variables": Action.MANAGE_NODES,
    "list_cards": Action.WATCH,
    "list_approvals": Action.WATCH,
    "search_sessions": Action.WATCH,
    "fork_session": Action.FORK,
    "delete_session": Action.DELETE,
    "list_trusted_folders": Action.WATCH,
    "trust_folder": Action.TRUST,
    "forget_folder": Action.TRUST,
    "list_nodes": Action.WATCH,
    "drain_node": Action.MANAGE_NODES,
}


def get_action(type_: str, payload: messages.Request | extension_messages.ExtensionRequest) -> Action | None:
    """Returns None for a request without a row in the table; such a request needs an admin."""
    if isinstance(payload, messages.SubmitApproval) and payload.decision == "approve" and payload.scope == "session":
        return Action.ALLOW_ALWAYS
    return REQUEST_ACTIONS.get(type_)


SEQ_STRIDE = 1_000_000_000
"""A session cannot have this many events."""
_MAX_SEQ = 2**53 - 1
"""The largest integer that a JSON number holds exactly."""


def get_journal_seq(number: int) -> int:
    return number % SEQ_STRIDE


def get_seq_offset(number: int) -> int:
    return number - number % SEQ_STRIDE


def get_next_seq_offset(last_seen: int) -> int:
    """Returns the numbering after that of `last_seen`. After the last one, of millions, it returns the first again."""
    following = get_seq_offset(last_seen) + SEQ_STRIDE
    return following if following + SEQ_STRIDE <= _MAX_SEQ else SEQ_STRIDE
