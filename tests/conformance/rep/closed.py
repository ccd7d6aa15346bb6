"""Closed types of all messages that we send: the fields of the document and of the decisions beside it, and no others."""

import json
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]
Stamp = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
Uuid = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")]
Semver = Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")]
JSON_RPC = (-32601, -32602)
CODES = (1001, 1002, 1003, 2001, 3001, 3002)
_UNESCAPED = re.compile(r"[\x00-\x1f\x7f]")


class StrictRepStruct(Struct, forbid_unknown_fields=True):
    pass


class ErrorData(StrictRepStruct):
    step_id: str | None
    attempt: Count
    retriable: bool
    details: dict[str, Any]
    cause: Literal["Timeout", "Cancelled"] | UnsetType = UNSET


class Error(StrictRepStruct):
    code: int
    message: Text
    data: ErrorData


class Limits(StrictRepStruct):
    concurrency: Annotated[int, Meta(ge=1)]


class Capabilities(StrictRepStruct):
    version: Semver
    step_kinds: list[Text]
    limits: Limits


class Started(StrictRepStruct):
    run_id: Text


class Ok(StrictRepStruct):
    ok: Literal[True]


class Healthy(StrictRepStruct):
    ok: Literal[True]
    details: dict[str, Any]


class Log(StrictRepStruct, tag_field="type", tag="log"):
    timestamp: Stamp
    level: Literal["debug", "info", "warning", "error"]
    message: str
    step_id: Text | UnsetType = UNSET


class Step(StrictRepStruct, tag_field="type", tag="step"):
    timestamp: Stamp
    step_id: Text
    state: Literal["started", "succeeded", "failed"]
    attempt: Count
    duration_ms: Count | UnsetType = UNSET
    outputs: dict[str, Any] | UnsetType = UNSET
    error: Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        has = (self.duration_ms is not UNSET, self.outputs is not UNSET, self.error is not UNSET)
        expected = {"started": (False, False, False), "succeeded": (True, True, False), "failed": (True, False, True)}
        if has != expected[self.state]:
            raise ValueError(f"a step that {self.state} tells something else")


class Summary(StrictRepStruct):
    completed_steps: Count
    failed_steps: Count
    outputs: dict[str, Any] | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class Polled(StrictRepStruct):
    status: Literal["pending", "running", "completed", "failed"]
    events: list[Log | Step]
    summary: Summary

    def __post_init__(self) -> None:
        is_over = self.status in ("completed", "failed")
        if (self.summary.outputs is not UNSET) != is_over or (self.summary.error is not UNSET) != (self.status == "failed"):
            raise ValueError(f"the summary does not fit the status {self.status}")


RESULTS: dict[str, type[StrictRepStruct]] = {
    "Runtime.Capabilities": Capabilities,
    "Runtime.StartRun": Started,
    "Runtime.Poll": Polled,
    "Runtime.Cancel": Ok,
    "Runtime.Health": Healthy,
}


class _Answered(StrictRepStruct):
    jsonrpc: Literal["2.0"]
    id: int | float | str | None
    result: Any


class _Refused(StrictRepStruct):
    jsonrpc: Literal["2.0"]
    id: int | float | str | None
    error: Error


def answer(line: bytes, method: str | None) -> dict[str, Any]:
    """Checks a line of our runtime against the document and returns it. Without a method, only an error is allowed."""
    read = _parse_one_line(line)
    if "error" in read:
        refused = msgspec.convert(read, _Refused)
        assert refused.error.code in CODES + JSON_RPC, read
        # Only a step can be retried, and a refusal precedes any step.
        assert not refused.error.data.retriable, read
    else:
        assert method is not None, read
        msgspec.convert(msgspec.convert(read, _Answered).result, RESULTS[method])
    return read


class Options(StrictRepStruct):
    run_id: Uuid
    trace_id: Uuid
    allow_shell: bool


class StartRun(StrictRepStruct):
    ir: dict[str, Any]
    inputs: dict[str, Any]
    options: Options


class RunRef(StrictRepStruct):
    run_id: Text


class StrictEmptyParams(StrictRepStruct):
    pass


PARAMS: dict[str, type[StrictRepStruct]] = {
    "Runtime.Capabilities": StrictEmptyParams,
    "Runtime.StartRun": StartRun,
    "Runtime.Poll": RunRef,
    "Runtime.Cancel": RunRef,
}


class _Request(StrictRepStruct):
    jsonrpc: Literal["2.0"]
    id: Annotated[int, Meta(ge=1)]
    method: str
    params: Any


def request(line: bytes) -> dict[str, Any]:
    """Checks a line of our orchestrator against the document and returns it."""
    read = _parse_one_line(line)
    asked = msgspec.convert(read, _Request)
    msgspec.convert(asked.params, PARAMS[asked.method])
    return read


def _parse_one_line(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n"), line[-100:]
    text = line[:-1].decode()
    assert not _UNESCAPED.search(text), "one line is one object"
    read = json.loads(text, object_pairs_hook=_reject_repeats, parse_constant=_reject_number)
    assert isinstance(read, dict)
    return read


def _reject_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    assert len(read) == len(pairs), "a name is there twice"
    return read


def _reject_number(name: str) -> None:
    raise AssertionError(f"{name} is Python's, not JSON's")


def parse_outcome(stdout: bytes) -> dict[str, Any]:
    """Parses the output of `tm run --json` and `tm runtime run`: one object of four fields. A foreign runtime's texts are not
    checked."""
    read = _parse_one_line(stdout)
    assert list(read) == ["flow", "status", "summary", "events"]
    assert read["status"] in ("completed", "failed")
    assert ("error" in read["summary"]) == (read["status"] == "failed")
    if read["status"] == "failed":
        error = read["summary"]["error"]
        assert set(error) == {"code", "message", "data"}
        assert {"step_id", "attempt", "retriable", "details"} <= set(error["data"])
    return read
