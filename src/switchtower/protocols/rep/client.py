"""The orchestrator's side of REP: one request at a time to a runtime, and its answer. The driver decides what to request.

Any mistake of a runtime ends the connection for good with `RuntimeConnectionError`, which is 3001. The check of rep 9, whether a
runtime supports what a flow needs, is pure and names the cause and the remedy.

The outcome of a run as the orchestrator reports it: the runtime's own summary, or the error that ended it. Pure."""

import asyncio
import os
import re
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchtower.protocols.rep import errors, messages, runtime_process

VALIDATION = 1000
"""A validation error without a more specific code, such as capabilities that lack a field."""
OutcomeStatus = Literal["completed", "failed"]
FailureCause = Literal["Timeout", "Cancelled"]


class FlowRunOutcome(Struct, frozen=True, kw_only=True):
    flow: str
    status: OutcomeStatus
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    events_left_out: int = 0
    """The number of events that were too many to keep. They were handed on nevertheless."""
    before_handshake: bool = False
    """No runtime was started, because the flow is not valid."""

    @property
    def error(self) -> dict[str, Any] | None:
        return self.summary.get("error") if self.status == "failed" else None

    @property
    def exit_code(self) -> errors.RepExitCode:
        """rep 6."""
        if self.status == "completed":
            return errors.RepExitCode.OK
        if self.before_handshake:
            return errors.RepExitCode.INVALID_BEFORE_HANDSHAKE
        error = self.error
        return errors.get_exit_code(error["code"]) if error is not None else errors.RepExitCode.STEP_FAILURE

    def make_report(self) -> dict[str, Any]:
        """Returns the report that `tm runtime run` prints."""
        told: dict[str, Any] = {
            "flow": self.flow,
            "status": self.status,
            "summary": self.summary,
            "events": self.events,
        }
        return told | {"events_left_out": self.events_left_out} if self.events_left_out else told


def make_invalid(flow: str, problem: str) -> FlowRunOutcome:
    """rep 11: makes the outcome of an IR that was refused before any runtime was started."""
    summary = {"completed_steps": 0, "failed_steps": 0, "error": make_error(errors.RepErrorCode.INVALID_IR, problem)}
    return FlowRunOutcome(flow=flow, status="failed", summary=summary, events=[], before_handshake=True)


def make_error(
    code: int, message: str, *, details: dict[str, Any] | None = None, cause: FailureCause | None = None
) -> dict[str, Any]:
    """Makes one of our own errors, in the form that REP has for a runtime's."""
    data = messages.ErrorData(details=details or {}, cause=cause or msgspec.UNSET)
    built: dict[str, Any] = msgspec.to_builtins(messages.Error(code, message, data))
    return built


def convert_runtime_error(code: int, message: str, data: Any) -> dict[str, Any]:
    """Returns a runtime's error, with the fields that it left out."""
    known = make_error(code, message or "the runtime gave no reason")
    if isinstance(data, dict):
        known["data"] |= {name: value for name, value in data.items() if isinstance(name, str)}
    elif data is not None:
        known["data"]["details"] = {"data": data}
    return known


def parse_error(found: Any) -> dict[str, Any] | None:
    """Returns the error inside a summary or an event, if it has one."""
    if isinstance(found, dict) and isinstance(code := found.get("code"), int) and not isinstance(code, bool):
        message = found.get("message")
        return convert_runtime_error(code, message if isinstance(message, str) else "", found.get("data"))
    return None


GRACE = 1.0
"""Seconds for a runtime to exit by itself once its input has ended."""
_MAX_QUOTED = 200

T = TypeVar("T")


class RuntimeConnectionError(Exception):
    """The connection to the runtime has failed."""

    code = errors.RepErrorCode.BROKEN_TRANSPORT

    def __init__(self, message: str, details: dict[str, Any]) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class RuntimeRequestError(Exception):
    """The runtime answered with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RuntimeEnvironment(Struct, frozen=True, kw_only=True):
    """rep 8: the values that a runtime gets in its environment."""

    run_id: str
    trace_id: str
    timeout_s: float
    allow_shell: bool = False
    log_json: bool = False

    def build_variables(self) -> dict[str, str]:
        return {
            "TRACE_MIND_RUN_ID": self.run_id,
            "TRACE_MIND_TRACE_ID": self.trace_id,
            "TRACE_MIND_ENGINE_TIMEOUT": f"{self.timeout_s:.15g}",
            "TRACE_MIND_ALLOW_SHELL": "1" if self.allow_shell else "0",
            "TRACE_MIND_LOG_JSON": "1" if self.log_json else "0",
        }


class _Request(Struct, frozen=True):
    id: int
    method: str
    params: Any
    jsonrpc: str = "2.0"


class _Problem(Struct, frozen=True):
    code: int
    message: str = ""
    data: Any = None


class _Answer(Struct, frozen=True):
    jsonrpc: str = "2.0"
    id: int | float | str | UnsetType | None = UNSET
    """JSON's `1.0` is the same number as `1`, and some runtimes spell it so."""
    result: Raw | UnsetType = UNSET
    error: _Problem | UnsetType | None = UNSET


_decode_answer = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder().encode


class RuntimeClient:
    """One runtime, from its start to its end. Use it with `async with`, or close it with `aclose`."""

    def __init__(self) -> None:
        self._process: runtime_process.RuntimeProcess
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._waiting: asyncio.Future[Raw] | None = None
        self._waiting_id = 0
        """The id of the request whose answer is awaited."""
        self._interjected_id: int | None = None
        """The id of the one request that may be sent while an answer is due. Nothing waits for its own answer."""
        self._broken: RuntimeConnectionError | None = None
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: str,
        runtime_environment: RuntimeEnvironment,
        environment: Mapping[str, str] | None = None,
        process_mark: str | None = None,
    ) -> Self:
        """Starts the runtime, on the running event loop. It gets the given environment, by default ours, and REP's variables.
        Raises `runtime_process.RuntimeNotStarted`."""
        client = cls()
        variables = {**(os.environ if environment is None else environment), **runtime_environment.build_variables()}
        client._process = runtime_process.start_process(
            argv, cwd=cwd, environment=variables, run_id=runtime_environment.run_id, listener=client, process_mark=process_mark
        )
        return client

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def is_broken(self) -> bool:
        return self._broken is not None

    async def call(self, method: str, params: Any, answer: type[T]) -> T:
        """Sends a request and returns the runtime's answer as an `answer`. Raises `RuntimeRequestError` and
        `RuntimeConnectionError`. It waits without a limit: a caller that gives up cannot send another request, because an answer
        would still be due."""
        if self._broken is not None:
            raise self._broken
        assert self._waiting is None, "one request at a time"
        self._last_id += 1
        self._waiting_id = self._last_id
        self._waiting = waiting = self._loop.create_future()
        self._process.write(_encode(_Request(self._last_id, method, params)) + b"\n")
        result = await waiting
        self._waiting = None
        return self.convert_result(result, answer)

    def send_out_of_turn(self, method: str, params: Any) -> None:
        """Sends a request while the answer to another is due, once per connection, and does not wait. rep 3 has requests and
        answers in pairs; this is for the `Cancel` of rep 10 to a runtime that hangs."""
        assert self._interjected_id is None, "one interjection in a conversation"
        if self._broken is None:
            self._last_id += 1
            self._interjected_id = self._last_id
            self._process.write(_encode(_Request(self._last_id, method, params)) + b"\n")

    def reject(self, reason: str) -> RuntimeConnectionError:
        """Ends the connection because of the runtime's answer, and returns the error to raise."""
        self.on_broken(reason)
        assert self._broken is not None
        return self._broken

    def convert_result(self, answer: Raw, wanted: type[T]) -> T:
        """Decodes an answer, or a part of one that was left for later. Raises `RuntimeConnectionError` when it has another
        type."""
        decoder = self._decoders.get(wanted)
        if decoder is None:
            decoder = self._decoders[wanted] = msgspec.json.Decoder(wanted)
        try:
            understood: T = decoder.decode(answer)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.reject(f"answered something else than REP has there: {_describe_error(error)}") from None
        return understood

    async def aclose(self, *, grace_s: float = GRACE) -> None:
        """Ends the runtime with all that it started. One that has broken the connection gets no grace."""
        await self._process.end(grace_s=0 if self.is_broken else grace_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose(grace_s=0 if kind else GRACE)

    def on_line(self, received: list[bytes]) -> None:
        # rep 3: requests and answers come in pairs, and nothing else comes.
        if self._broken is None and len(received) > (1 if self._interjected_id is None else 2):
            self.on_broken(f"wrote a line without a request: {_shorten(received[-1])}")
        for line in received:
            if self._broken is None:
                self._handle_line(line)

    def _handle_line(self, line: bytes) -> None:
        waiting = self._waiting
        is_due = waiting is not None and not waiting.done()
        if not is_due and self._interjected_id is None:
            self.on_broken(f"wrote a line without a request: {_shorten(line)}")
            return
        try:
            answer = _decode_response(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.on_broken(f"wrote what is no answer: {_describe_error(error)}: {_shorten(line)}")
            return
        if self._interjected_id is not None and answer.id == self._interjected_id:
            self._interjected_id = 0  # answered; no other may be sent
        elif waiting is None or not is_due:
            self.on_broken(f"wrote a line without a request: {_shorten(line)}")
        elif fault := self._find_protocol_error(answer):
            self.on_broken(f"{fault}: {_shorten(line)}")
        elif isinstance(problem := answer.error, _Problem):
            self._waiting = None
            waiting.set_exception(RuntimeRequestError(problem.code, problem.message, problem.data))
        else:
            assert isinstance(answer.result, Raw)
            waiting.set_result(answer.result)

    def on_broken(self, reason: str) -> None:
        if self._broken is not None:
            return
        self._broken = RuntimeConnectionError(
            f"the runtime {reason}", {"exit_code": self._process.exit_code, "stderr": self._process.read_stderr_tail()}
        )
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._broken)

    def _find_protocol_error(self, answer: _Answer) -> str | None:
        if answer.jsonrpc != "2.0":
            return "speaks another version of JSON-RPC"
        has_error = isinstance(answer.error, _Problem)
        # JSON-RPC: a server that could not read a request cannot know its id.
        if answer.id != self._waiting_id and not (answer.id is None and has_error):
            return f"answered another request than the one with id {self._waiting_id}"
        has_result = isinstance(answer.result, Raw) and not (has_error and bytes(answer.result) == b"null")
        if has_error == has_result:
            return "answered with both a result and an error" if has_error else "answered with neither a result nor an error"
        return None


def _decode_response(line: bytes) -> _Answer:
    try:
        return _decode_answer(line)
    except msgspec.DecodeError:
        # Half a surrogate pair, from a text that was cut in JavaScript. JSON allows the escape, and our decoder does not.
        if b"\\ud" not in line.lower():
            raise
        import json

        text = json.dumps(json.loads(line), ensure_ascii=False)
        return _decode_answer(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _describe_error(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:_MAX_QUOTED]


def _shorten(line: bytes) -> str:
    """Returns the start of the line, without secrets."""
    from switchtower.core.redact.redactor import Redactor

    text = Redactor().redact_text(line[: 2 * _MAX_QUOTED].decode(errors="replace"))
    return f"`{text[:_MAX_QUOTED]}…`" if len(text) > _MAX_QUOTED else f"`{text}`"


_FIELDS: dict[str, tuple[type, str]] = {
    "version": (str, "a string"),
    "step_kinds": (list, "a list"),
    "limits": (dict, "an object"),
}
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?", re.ASCII
)
_REMEDY = "hint: use another runtime, or look at what this one says with `tm runtime cache show --engine {engine}`"


class RuntimeUnsuitable(Exception):
    """The runtime cannot run this flow."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class RuntimeCapabilities(Struct, frozen=True):
    """The capabilities of a runtime, once they are known to be complete."""

    version: str
    step_kinds: frozenset[str]
    limits: dict[str, Any]


def parse_capabilities(answer: Any, *, engine: str) -> RuntimeCapabilities:
    """Raises `RuntimeUnsuitable` when a required field is missing or has another type."""
    fields = answer if isinstance(answer, dict) else {}
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        told = ", ".join(f"`{name}`" for name in missing)
        raise RuntimeUnsuitable(_make_error(f"the runtime's capabilities lack {told}", engine, {"missing": missing}))
    wrong = [f"`{name}` is not {what}" for name, (kind, what) in _FIELDS.items() if not isinstance(fields[name], kind)]
    if not wrong and not all(isinstance(kind, str) for kind in fields["step_kinds"]):
        wrong.append("`step_kinds` holds something else than strings")
    if isinstance(fields["version"], str) and not _SEMVER.fullmatch(fields["version"]):
        wrong.append(f"`version` is `{fields['version'][:100]}` and not a semantic version such as `0.1.0`")
    if wrong:
        raise RuntimeUnsuitable(
            _make_error(f"the runtime's capabilities are not usable: {', '.join(wrong)}", engine, {"wrong": wrong})
        )
    return RuntimeCapabilities(fields["version"], frozenset(fields["step_kinds"]), fields["limits"])


def find_missing_kinds(offer: RuntimeCapabilities, required: Collection[str]) -> frozenset[str]:
    return frozenset(required) - offer.step_kinds


def check_capabilities(offer: RuntimeCapabilities, required: Collection[str], *, engine: str) -> None:
    """Raises `RuntimeUnsuitable` when the flow needs a kind that the runtime does not have."""
    missing = sorted(find_missing_kinds(offer, required))
    if not missing:
        return
    told = ", ".join(f"`{kind}`" for kind in missing)
    message = f"the runtime does not support the step kind{'s' if len(missing) > 1 else ''} {told}"
    if set(missing) <= set(messages.CONTROL_KINDS):
        message += ", which direct the flow and which this flow cannot do without"
    details = {"missing": missing, "supported": sorted(offer.step_kinds)}
    raise RuntimeUnsuitable(_make_error(message, engine, details, code=errors.RepErrorCode.UNSUPPORTED_STEP_KIND))


def _make_error(message: str, engine: str, details: dict[str, Any], *, code: int = VALIDATION) -> dict[str, Any]:
    return make_error(code, f"{message}; {_REMEDY.format(engine=engine)}", details=details)
