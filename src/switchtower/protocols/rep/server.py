"""REP's server side: a runtime on two descriptors. Lines in, lines out, one after the other; only the other side of the port
knows what a run is. A peer's mistakes are answered, and never end the connection.

A runtime is a process for each run, so its start delays every run. That is why this file loads next to nothing: results come as
JSON text, and the wire's types are loaded when a run starts. Lines are bounded: a line that is too long is dropped and reported
once.
"""

import json
import os

from switchtower.protocols.rep import errors

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from switchtower.protocols.rep import messages


MAX_LINE_BYTES = 16 * 1024 * 1024


class BoundedLineSplitter:
    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = longest
        self._pieces: list[bytes] = []
        """The pieces of the line that has no end yet."""
        self._length = 0
        self._skipping = False

    def feed(self, piece: bytes) -> "list[bytes | None]":
        """Returns the lines that ended with this piece, without their ends; None for one that was too long. Empty ones are left
        out."""
        *ended, rest = piece.split(b"\n")
        lines: list[bytes | None] = []
        for end in ended:
            self._add(end)
            line = None if self._skipping else b"".join(self._pieces).strip()
            if line != b"":
                lines.append(line)
            self._pieces, self._length, self._skipping = [], 0, False
        self._add(rest)
        return lines

    def take_rest(self) -> "list[bytes | None]":
        """Returns the last line when the input ended without a line end."""
        return self.feed(b"\n")

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._max_bytes:
            self._pieces, self._skipping = [], True
        elif piece:
            self._pieces.append(piece)


if TYPE_CHECKING:

    class RepRuntimePort(Protocol):
        """The executor of a run. Results are JSON text. Any method may raise `RepError`; none waits for a run."""

        def get_capabilities(self) -> bytes: ...

        def start(self, run: messages.StartRun, /) -> str:
            """Returns the id of the run."""

        def poll(self) -> bytes: ...

        def cancel(self) -> None: ...

        def get_health(self) -> bytes: ...


_CHUNK = 64 * 1024
"""A larger buffer is requested from the system each time, which takes longer than the answer."""


def _reject_constant(name: str) -> None:
    raise ValueError(name)  # `NaN` and the like are Python's, not JSON's


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_OK = b'{"ok":true}'


class RepError(Exception):
    """An error of REP's taxonomy, as the peer gets it."""

    def __init__(self, code: int, message: str, *, step_id: "str | None" = None, details: "dict[str, Any] | None" = None) -> None:
        super().__init__(message)
        self.code = int(code)
        self.step_id = step_id
        self.details = details or {}

    def make_error_object(self) -> "dict[str, Any]":
        data = {"step_id": self.step_id, "attempt": 0, "retriable": False, "details": self.details}
        return {"code": self.code, "message": str(self), "data": data}


class RepServer:
    """The protocol without its I/O."""

    def __init__(self, runtime: "RepRuntimePort") -> None:
        self._runtime = runtime
        self._run_id: str | None = None
        self._methods: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "Runtime.Capabilities": lambda params: runtime.get_capabilities(),
            "Runtime.StartRun": self._start,
            "Runtime.Poll": self._poll,
            "Runtime.Cancel": self._cancel,
            "Runtime.Health": lambda params: runtime.get_health(),
        }

    def handle_line(self, line: "bytes | None") -> "bytes | None":
        """Returns the line to send back, if any. None is a line that was too long to be kept."""
        request_id, wants_answer = None, True
        try:
            request = _parse_request(line)
            # rep 4: notifications are not used in v0.1. In JSON-RPC they are carried out and never answered.
            wants_answer = "id" in request
            request_id = _get_request_id(request)
            if request.get("jsonrpc") != "2.0":
                raise RepError(errors.RepErrorCode.BROKEN_TRANSPORT, 'Protocol mismatch: a request has `"jsonrpc": "2.0"`')
            answer = _encode_response(request_id, "result", self._dispatch(request))
        except RepError as refused:
            answer = _encode_response(request_id, "error", _encode_json(refused.make_error_object()))
        except Exception as error:
            _log(error)
            answer = _encode_response(
                request_id, "error", _encode_json(RepError(errors.RepErrorCode.PANICKED, "Runtime panicked").make_error_object())
            )
        return answer if wants_answer else None

    def _dispatch(self, request: "dict[str, Any]") -> bytes:
        method, params = request.get("method"), request.get("params")
        act = self._methods.get(method) if isinstance(method, str) else None
        if act is None:
            shown = f": `{method[:100]}`" if isinstance(method, str) else ""
            raise RepError(errors.METHOD_NOT_FOUND, f"Method not found{shown}")
        if params is not None and not isinstance(params, dict):
            raise RepError(errors.INVALID_PARAMS, "Invalid params: they must be an object")
        return act(params or {})

    def _start(self, params: "dict[str, Any]") -> bytes:
        if self._run_id is not None:
            raise RepError(errors.INVALID_PARAMS, "a run was started already; hint: rep 3 has one runtime process for each run")
        _load_msgspec()
        import msgspec

        from switchtower.protocols.rep import messages

        # Deployed orchestrators send a null for fields that they do not have.
        given = {name: value for name, value in params.items() if value is not None}
        # rep 6: an invalid IR or invalid inputs are a validation error of the run, and not of the call.
        if not isinstance(given.get("ir"), dict):
            raise RepError(
                errors.RepErrorCode.INVALID_IR, "Invalid IR payload: `ir` is " + ("missing" if "ir" not in given else "no object")
            )
        if not isinstance(given.get("inputs", {}), dict):
            raise RepError(errors.RepErrorCode.INVALID_IR, "Invalid inputs: they are no object")
        try:
            run = msgspec.convert(given, messages.StartRun)
        except msgspec.ValidationError as error:
            raise RepError(errors.INVALID_PARAMS, f"Invalid params: {error}") from None
        self._run_id = self._runtime.start(run)
        return _encode_json({"run_id": self._run_id})

    def _poll(self, params: "dict[str, Any]") -> bytes:
        self._check_run(params)
        return self._runtime.poll()

    def _cancel(self, params: "dict[str, Any]") -> bytes:
        self._check_run(params)
        self._runtime.cancel()
        return _OK

    def _check_run(self, params: "dict[str, Any]") -> None:
        """A process has one run, so an id that is left out can only mean that one."""
        if self._run_id is None:
            raise RepError(errors.INVALID_PARAMS, "Invalid params: no run was started")
        if params.get("run_id") not in (None, self._run_id):
            raise RepError(errors.INVALID_PARAMS, "Invalid params: there is no such run")


def serve(input_fd: int, output_fd: int, runtime: "RepRuntimePort") -> None:
    """Serves until the input ends, or the peer stops reading the answers."""
    server = RepServer(runtime)
    try:
        for line in _read_lines(input_fd):
            if (answer := server.handle_line(line)) is not None:
                _write(output_fd, answer)
    except BrokenPipeError:
        return


def _read_lines(input_fd: int) -> "Iterator[bytes | None]":
    lines = BoundedLineSplitter()
    while piece := _read(input_fd):
        yield from lines.feed(piece)
    yield from lines.take_rest()


def _read(input_fd: int) -> bytes:
    while True:
        try:
            return os.read(input_fd, _CHUNK)
        except BlockingIOError:
            _wait(input_fd, to_write=False)
        except ConnectionResetError:
            return b""


def _write(output_fd: int, answer: bytes) -> None:
    rest = memoryview(answer)
    while rest:
        try:
            rest = rest[os.write(output_fd, rest) :]
        except BlockingIOError:
            _wait(output_fd, to_write=True)


def _wait(descriptor: int, *, to_write: bool) -> None:
    """The parent process may have made the pipes non-blocking. It shares them, so they stay that way."""
    import select

    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
    waiting.poll()


def _parse_request(line: "bytes | None") -> "dict[str, Any]":
    """rep 4: a line that is not a request is 3001, in REP's own numbers and not in JSON-RPC's."""
    if line is None:
        raise RepError(
            errors.RepErrorCode.BROKEN_TRANSPORT, f"Invalid JSON: a line is longer than {MAX_LINE_BYTES // 1024**2} MiB"
        )
    try:
        request = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        raise RepError(errors.RepErrorCode.BROKEN_TRANSPORT, "Invalid JSON: a line is not JSON, or nested too deeply") from None
    if not isinstance(request, dict):
        raise RepError(errors.RepErrorCode.BROKEN_TRANSPORT, "Protocol mismatch: a line is one JSON object")
    return request


def _get_request_id(request: "dict[str, Any]") -> "str | int | float | None":
    request_id = request.get("id")
    if request_id is None or isinstance(request_id, str):
        return request_id
    # `1e400` is JSON, but not a number that can be encoded again.
    if isinstance(request_id, (int, float)) and not isinstance(request_id, bool) and abs(request_id) != float("inf"):
        return request_id
    raise RepError(errors.INVALID_PARAMS, "Invalid params: an id is a number or a string")


def _encode_response(request_id: "str | int | float | None", outcome: str, body: bytes) -> bytes:
    spelled_id = b"%d" % request_id if type(request_id) is int else _encode_json(request_id)
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}\n' % (spelled_id, outcome.encode(), body)


def _encode_json(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


def _load_msgspec() -> None:
    """msgspec imports `typing_extensions`, which loads a third of the standard library, and uses `typing` if that is missing. So
    `typing_extensions` is hidden during this import: that saves a fifth of the time until a run starts."""
    import sys

    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _log(error: Exception) -> None:
    import sys
    import traceback

    traceback.print_exception(error, file=sys.stderr)
