"""Relay's wire types, as in its document. What the document leaves open is accepted as loosely as its clients send it.

Unknown fields are ignored, ids are any text of 1 to 128 characters, and a missing `data` is an empty one.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Id = Annotated[str, Meta(min_length=1, max_length=128)]
Seq = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Reason = Literal["permission", "choice", "prompt", "unknown"]
Signal = Literal["term", "kill", "int"]
"""Newer clients send `int`: Ctrl-C."""
Size = Annotated[int, Meta(ge=1, le=1_000)]
Text = Annotated[str, Meta(max_length=1_048_576)]

EMPTY = msgspec.Raw(b"{}")

RUN_RPCS = (
    "rpc.fs.read",
    "rpc.fs.search",
    "rpc.fs.list",
    "rpc.fs.write",
    "rpc.bash",
    "rpc.git.status",
    "rpc.git.diff",
    "rpc.runs.list",
    "rpc.run.stop",
)
"""Calls that name a run."""
HOST_RPCS = ("rpc.run.start", "rpc.host.info", "rpc.host.doctor", "rpc.host.capabilities", "rpc.host.logs.tail")
"""Calls that name a host."""
RPCS = (*RUN_RPCS, *HOST_RPCS)
GATED = frozenset({"rpc.fs.write", "rpc.bash"})


class Envelope(Struct, frozen=True):
    """Any message, with its data unread."""

    type: Annotated[str, Meta(min_length=1, max_length=128)]
    run_id: Id | None = None
    host_id: Id | None = None
    seq: Seq | None = None
    ts: Any = None
    data: msgspec.Raw = EMPTY
    prev_seq: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    """Ours: the seq of the host's message about this run before this one."""


# Commands of apps


class SendInput(Struct, frozen=True):
    input_id: Id
    text: Text
    actor: str | None = None
    delivery: Literal["steer", "follow_up"] | UnsetType = UNSET
    """Ours, for an agent that works: at its next step, or when it is done."""


class SendStdin(Struct, frozen=True):
    """Newer clients: keys as they are typed."""

    text: Text = ""
    data: Text | None = None
    """Some send the text under this name."""
    input_id: Id | None = None
    actor: str | None = None


class Resize(Struct, frozen=True):
    cols: Size
    rows: Size


class Stop(Struct, frozen=True):
    signal: Signal | None = "term"
    """Null is the default."""
    actor: str | None = None

    def __post_init__(self) -> None:
        if self.signal is None:
            msgspec.structs.force_setattr(self, "signal", "term")


class Decide(Struct, frozen=True):
    request_id: Id
    actor: str | None = None
    decision: str | None = None
    """Newer clients: `approve`, `deny`, `approve_for_session` or `abort`."""
    reason: str | None = None


RunCommand = SendInput | SendStdin | Resize | Stop | Decide

ACTORS = ("web", "cli", "system")
"""The labels that a client may give itself."""
APPROVE = "run.permission.approve"
COMMAND_DATA: dict[str, type[Struct]] = {
    "run.send_input": SendInput,
    "run.send_stdin": SendStdin,
    "run.resize": Resize,
    "run.stop": Stop,
    APPROVE: Decide,
    "run.permission.deny": Decide,
}


class Subscribe(Struct, frozen=True):
    replace: bool = False
    include_output: bool = True
    after_id: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    """Ours: what the client has already, by the `id` of messages; it is sent what came after."""


# RPC


class FsRead(Struct, frozen=True):
    request_id: Id
    path: str
    actor: str | None = None


class FsSearch(Struct, frozen=True):
    request_id: Id
    q: str
    actor: str | None = None


class FsList(Struct, frozen=True):
    request_id: Id
    path: str | None = None
    actor: str | None = None


class FsWrite(Struct, frozen=True):
    request_id: Id
    path: str
    content: str
    actor: str | None = None


class Bash(Struct, frozen=True):
    request_id: Id
    cmd: str
    actor: str | None = None


class GitStatus(Struct, frozen=True):
    request_id: Id
    actor: str | None = None


class GitDiff(Struct, frozen=True):
    request_id: Id
    path: str | None = None
    actor: str | None = None


class RunsList(Struct, frozen=True):
    request_id: Id
    actor: str | None = None


class RunStop(Struct, frozen=True):
    request_id: Id
    signal: Signal | None = "term"
    """Null is the default."""
    actor: str | None = None

    def __post_init__(self) -> None:
        if self.signal is None:
            msgspec.structs.force_setattr(self, "signal", "term")


class RunStart(Struct, frozen=True):
    request_id: Id
    cmd: Annotated[str, Meta(max_length=65_536)]
    """Empty: the program is `tool`."""
    tool: str = ""
    host_id: Id | None = None
    cwd: str | None = None
    actor: str | None = None
    cols: Size | None = None
    rows: Size | None = None


class HostLook(Struct, frozen=True):
    """`rpc.host.info`, `rpc.host.doctor`, `rpc.host.capabilities`."""

    request_id: Id
    host_id: Id | None = None
    actor: str | None = None


class LogsTail(Struct, frozen=True):
    request_id: Id
    host_id: Id | None = None
    lines: int | None = None
    max_bytes: int | None = None
    actor: str | None = None


class OtherRpc(Struct, frozen=True):
    """A call of a type that we do not know: another maker's host may."""

    request_id: Id
    host_id: Id | None = None
    actor: str | None = None


RunRpc = FsRead | FsSearch | FsList | FsWrite | Bash | GitStatus | GitDiff | RunsList | RunStop
HostRpc = RunStart | HostLook | LogsTail

RPC_DATA: dict[str, type[Struct]] = {
    "rpc.fs.read": FsRead,
    "rpc.fs.search": FsSearch,
    "rpc.fs.list": FsList,
    "rpc.fs.write": FsWrite,
    "rpc.bash": Bash,
    "rpc.git.status": GitStatus,
    "rpc.git.diff": GitDiff,
    "rpc.runs.list": RunsList,
    "rpc.run.stop": RunStop,
    "rpc.run.start": RunStart,
    "rpc.host.info": HostLook,
    "rpc.host.doctor": HostLook,
    "rpc.host.capabilities": HostLook,
    "rpc.host.logs.tail": LogsTail,
}


class Response(Struct, frozen=True, omit_defaults=True):
    """The data of an `rpc.response`."""

    request_id: str
    ok: bool
    rpc_type: str
    result: Any = UNSET
    error: str | UnsetType | None = UNSET
    """Some hosts say `null` when all went well."""


# HTTP


class Login(Struct, frozen=True):
    username: str
    password: str


class RowUsage(Struct, frozen=True):
    """Ours: what the models of a session took so far, in US dollars where prices are known."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    context_used: int
    context_window: int | None


class RowCriterion(Struct, frozen=True):
    """Ours: one of the last run's criteria."""

    id: str
    passed: bool


class RunRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    host_id: str
    tool: str
    cwd: str
    status: Literal["running", "awaiting_input", "awaiting_approval", "exited", "lost"]
    started_at: str
    last_active_at: str | UnsetType = UNSET
    pending_request_id: str | UnsetType = UNSET
    pending_reason: str | UnsetType = UNSET
    pending_prompt: str | UnsetType = UNSET
    pending_op_tool: str | UnsetType = UNSET
    pending_op_args_summary: str | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    title: str | UnsetType = UNSET
    """Ours, and so is what follows."""
    engine: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    preset: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    sandbox: str | UnsetType = UNSET
    child_of: str | UnsetType = UNSET
    """The `id` of the run that has started this one."""
    usage: RowUsage | UnsetType = UNSET
    acceptance: list[RowCriterion] | UnsetType = UNSET


class Message(Struct, frozen=True, kw_only=True):
    id: int
    seq: int | None
    ts: str
    role: Literal["user", "assistant", "system"]
    kind: str
    actor: str | None
    request_id: str | None
    text: str
    data: msgspec.Raw | None = None


class HostRow(Struct, frozen=True, kw_only=True):
    """Behind `online` come our own."""

    id: str
    name: str
    last_seen_at: str | None
    online: bool
    state: str = "approved"
    first_seen_at: str | None = None
    is_this_daemon: bool = False
    is_node: bool = False
    """One of several that share a store: it does not dial in, and nobody approves or removes it."""
