"""Closed types of all messages that we send: the fields that the document names, our additions, and no others."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Frame = dict[str, Any]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Stamp = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
Seq = Annotated[int, Meta(ge=1)]
Reason = Literal["permission", "choice", "prompt", "unknown"]
Actor = Literal["local", "web", "cli", "system"]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class StrictRelayStruct(Struct, forbid_unknown_fields=True):
    pass


class Envelope(StrictRelayStruct):
    type: str
    ts: Stamp
    data: Any
    host_id: Id | UnsetType = UNSET
    run_id: Id | UnsetType = UNSET
    seq: Seq | UnsetType = UNSET
    id: Seq | UnsetType = UNSET
    """Our addition: the position in the hub's journal."""
    prev_seq: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Our addition, sent to the hub: the number of the previous message."""


class Started(StrictRelayStruct):
    tool: str
    cwd: str
    command: str
    cols: int | UnsetType = UNSET
    """Our addition, with `rows`: the size of the terminal."""
    rows: int | UnsetType = UNSET


class Ready(StrictRelayStruct):
    runner_mode: Literal["pty"]


class Output(StrictRelayStruct):
    stream: Literal["stdout", "stderr"]
    text: Annotated[str, Meta(min_length=1)]
    request_id: Id | UnsetType = UNSET
    """Our addition: the tool call of an agent that produced the output."""


class AwaitingInput(StrictRelayStruct):
    reason: Reason
    prompt: str | UnsetType = UNSET
    request_id: Id | UnsetType = UNSET


class Exited(StrictRelayStruct):
    exit_code: int
    deleted: bool | UnsetType = UNSET
    """Our addition."""
    outcome: Literal["cancelled", "denied"] | UnsetType = UNSET
    """Our addition: a user has ended the run."""


class Input(StrictRelayStruct):
    actor: Actor
    input_id: Id
    text_redacted: str
    text_sha256: Sha256


class Permission(StrictRelayStruct):
    request_id: Id
    reason: Reason
    prompt: str
    approve_text: str
    deny_text: str
    op_tool: str | UnsetType = UNSET
    op_args: Any = UNSET
    op_args_summary: Annotated[str, Meta(max_length=80)] | UnsetType = UNSET


class Claims(StrictRelayStruct):
    """Our addition: the user that another machine names."""

    by: str
    via: str


class Decided(StrictRelayStruct):
    """Our addition."""

    request_id: Id
    decision: Literal["approve", "deny", "abort", "expired", "withdrawn"]
    actor: Actor | UnsetType = UNSET
    by: str | UnsetType = UNSET
    via: str | UnsetType = UNSET
    claims: Claims | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ToolCall(StrictRelayStruct):
    request_id: Id
    tool: str
    actor: Actor
    args: Any


class ToolResult(StrictRelayStruct):
    request_id: Id
    tool: str
    actor: Actor
    ok: bool
    duration_ms: Annotated[int, Meta(ge=0)]
    result: Any = UNSET
    error: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_outcome(self)


class Response(StrictRelayStruct):
    request_id: Id
    ok: bool
    rpc_type: str
    result: Any = UNSET
    error: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_outcome(self)


def _check_outcome(outcome: ToolResult | Response) -> None:
    if (outcome.result is not UNSET, outcome.error is not UNSET) != (outcome.ok, not outcome.ok):
        raise ValueError("`result` goes with success, `error` with failure")


class Ack(StrictRelayStruct):
    run_id: Id
    last_seq: Annotated[int, Meta(ge=0)]


class Screen(StrictRelayStruct):
    """Our addition. `id` is set when the screen replaces earlier output."""

    text: str
    cols: int
    rows: int
    id: int | UnsetType = UNSET


class Resized(StrictRelayStruct):
    cols: int
    rows: int


class RunError(StrictRelayStruct):
    """Our addition: reports a command that was not executed to the client that sent it."""

    command: str
    error: Annotated[str, Meta(min_length=1)]
    input_id: Id | UnsetType = UNSET
    request_id: Id | UnsetType = UNSET
    command_id: Id | UnsetType = UNSET
    """A host sends it to its hub only."""


class Error(StrictRelayStruct):
    """Our addition: a message that could not be decoded."""

    error: Annotated[str, Meta(min_length=1)]


class StrictEmptyData(StrictRelayStruct):
    pass


class Usage(StrictRelayStruct):
    """Our addition: the usage of one model call."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None
    context_window: int | None


class Order(StrictRelayStruct, kw_only=True):
    actor: Actor
    by: str
    """Our addition to every forwarded message: the name of the user who requested it."""
    command_id: str | UnsetType = UNSET
    """Our addition: a host that refuses the command repeats it."""


class SendInput(Order):
    input_id: Id
    text: str


class Stop(Order):
    signal: Literal["term", "kill", "int"]


class Decide(Order):
    request_id: Id
    decision: Literal["approve", "deny", "approve_for_session", "abort"] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


EVENTS: dict[str, type[Struct]] = {
    "run.started": Started,
    "run.ready": Ready,
    "run.output": Output,
    "run.awaiting_input": AwaitingInput,
    "run.exited": Exited,
    "run.input": Input,
    "run.permission_requested": Permission,
    "run.permission_decided": Decided,
    "run.resumed": StrictEmptyData,
    "run.resized": Resized,
    "run.usage": Usage,
    "run.screen": Screen,
    "run.lost": StrictEmptyData,
    "run.found": StrictEmptyData,
    "tool.call": ToolCall,
    "tool.result": ToolResult,
}
ANSWERS: dict[str, type[Struct]] = {"rpc.response": Response, "run.error": RunError, "error": Error, "run.gap": StrictEmptyData}
ORDERS: dict[str, type[Struct]] = {
    "run.ack": Ack,
    "run.send_input": SendInput,
    "run.stop": Stop,
    "run.permission.approve": Decide,
    "run.permission.deny": Decide,
    "error": Error,
}
_OF_NO_JOURNAL = {"run.lost", "run.found"}
"""Events that the hub creates: they have a position in its journal, but no number from the host."""


def check_app_frame(frame: Frame) -> None:
    """Checks a frame from the hub to an app."""
    envelope = msgspec.convert(frame, Envelope)
    assert envelope.prev_seq is UNSET, "numbers between host and hub are no app's business"
    if envelope.type in EVENTS and not (envelope.type == "run.screen" and envelope.seq is UNSET):
        assert UNSET not in (envelope.run_id, envelope.host_id, envelope.id), f"an event says whose it is: {frame}"
        assert (envelope.seq is UNSET) == (envelope.type in _OF_NO_JOURNAL), frame
    assert not (envelope.type == "run.error" and "command_id" in envelope.data), "that is between host and hub"
    msgspec.convert(envelope.data, (EVENTS | ANSWERS)[envelope.type])


def check_host_frame(frame: Frame) -> None:
    """Checks a frame from the hub to a host. The fields of calls depend on their types; their tests compare them whole."""
    envelope = msgspec.convert(frame, Envelope)
    assert (envelope.seq, envelope.id, envelope.prev_seq) == (UNSET, UNSET, UNSET)
    if envelope.type in ORDERS:
        msgspec.convert(envelope.data, ORDERS[envelope.type])
    else:
        assert envelope.type.startswith("rpc.") or envelope.type in ("run.send_stdin", "run.resize"), frame


def check_hub_frame(frame: Frame) -> None:
    """Checks a frame from our host to a hub."""
    envelope = msgspec.convert(frame, Envelope)
    assert envelope.host_id is not UNSET, "a host says who it is"
    if envelope.type == "host.heartbeat":
        assert (envelope.data, envelope.run_id, envelope.seq) == ({}, UNSET, UNSET)
        return
    if envelope.type in EVENTS:
        assert UNSET not in (envelope.run_id, envelope.seq, envelope.prev_seq), frame
    msgspec.convert(envelope.data, (EVENTS | ANSWERS)[envelope.type])
