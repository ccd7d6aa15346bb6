"""REP's wire types, as in its document: JSON-RPC 2.0, one object a line. They import nothing of the core and do no I/O."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

IR_VERSION = "1.0.0"
CONTROL_KINDS = ("dsl.emit", "finish", "switch")
"""Nodes that only direct the flow. Our own runtimes execute them; an orchestrator can drive them for one that does not."""

Status = Literal["pending", "running", "completed", "failed"]

CAPABILITIES = "Runtime.Capabilities"
START_RUN = "Runtime.StartRun"
POLL = "Runtime.Poll"
CANCEL = "Runtime.Cancel"
HEALTH = "Runtime.Health"


class Limits(Struct, frozen=True):
    concurrency: int = 1


class Capabilities(Struct, frozen=True):
    version: str
    step_kinds: list[str]
    limits: Limits


class RunOptions(Struct, frozen=True):
    run_id: str | None = None
    trace_id: str | None = None
    allow_shell: bool = False


class StartRun(Struct, frozen=True):
    """Deployed orchestrators leave the options out, or send a null where an id belongs."""

    ir: dict[str, Any]
    inputs: dict[str, Any] = {}
    options: RunOptions | None = None


class Started(Struct, frozen=True):
    run_id: str


class RunRef(Struct, frozen=True):
    """The params of `Runtime.Poll` and `Runtime.Cancel`."""

    run_id: str | None = None


class ErrorData(Struct, frozen=True, kw_only=True):
    step_id: str | None = None
    attempt: int = 0
    retriable: bool = False
    details: dict[str, Any] = {}
    cause: str | UnsetType = UNSET
    """`Timeout` or `Cancelled`, where it was one of these."""


class Error(Struct, frozen=True):
    code: int
    message: str
    data: ErrorData | UnsetType = UNSET


class Summary(Struct, frozen=True, kw_only=True):
    completed_steps: int = 0
    failed_steps: int = 0
    outputs: dict[str, Any] | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class Polled(Struct, frozen=True, kw_only=True):
    status: Status
    events: list[dict[str, Any]] = []
    summary: Summary = Summary()


class Ok(Struct, frozen=True):
    ok: bool = True


class Healthy(Struct, frozen=True):
    ok: bool = True
    details: dict[str, Any] = {}
