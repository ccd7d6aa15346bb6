"""The executable that runs flows: REP on stdin and stdout, joined to the executor. Modules are loaded when they are needed: a
process is started for every run, and its first answers need none of them.
"""

import json
import os

import switchtower
from switchtower.engines.flow.runtime.kinds import catalog
from switchtower.protocols.rep import errors, server
from switchtower.transports.descriptors import StdoutRedirect, claim_stdio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from switchtower.engines.flow.runtime import host
    from switchtower.protocols.rep import messages

CONCURRENCY = 4


class RepRuntime:
    """Implements the server's port with the executor."""

    def __init__(self) -> None:
        self._host: host.FlowRunHost | None = None

    def get_capabilities(self) -> bytes:
        step_kinds = catalog.list_step_kinds(tower=True)
        told = {"version": switchtower.__version__, "step_kinds": step_kinds, "limits": {"concurrency": CONCURRENCY}}
        return json.dumps(told).encode()

    def start(self, run: "messages.StartRun") -> str:
        from switchtower.engines.flow.runtime import failures, host
        from switchtower.flows import session_steps

        run_id = (run.options.run_id if run.options else None) or os.environ.get("TRACE_MIND_RUN_ID") or _make_uuid()
        try:
            self._host = host.FlowRunHost(
                run.ir,
                run.inputs,
                run_id=run_id,
                workspace=os.getcwd(),  # noqa: PTH109 - pathlib would be loaded for it
                allow_shell=_is_shell_allowed(run.options),
                concurrency=CONCURRENCY,
                tower=session_steps.CommandSessionSteps(),
            )
        except failures.FlowRejected as invalid:
            raise server.RepError(invalid.code, str(invalid), step_id=invalid.step_id, details=invalid.details) from None
        return run_id

    def poll(self) -> bytes:
        assert self._host is not None, "the server asks only about a run that was started"
        return self._host.poll()

    def cancel(self) -> None:
        assert self._host is not None, "the server cancels only a run that was started"
        self._host.cancel()

    def get_health(self) -> bytes:
        return b'{"ok":true,"details":{}}'

    def close(self) -> bool:
        """Returns whether nothing runs any more."""
        return self._host is None or self._host.close()


def _make_uuid() -> str:
    """Makes a UUID like `uuid.uuid4`, without loading that module."""
    digits = f"{int.from_bytes(os.urandom(16)) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _is_shell_allowed(options: "messages.RunOptions | None") -> bool:
    """rep 8: the variable is the policy. A run cannot ask for more than that, and a client that sends no options means the
    policy."""
    policy = os.environ.get("TRACE_MIND_ALLOW_SHELL")
    if policy == "0":
        return False
    return policy == "1" if options is None else options.allow_shell


def main() -> None:
    import signal

    runtime = RepRuntime()
    input_fd, output_fd = claim_stdio()
    # Output that is not read is dropped once the pipe's 64 KiB are full, so that it blocks nothing.
    spillway = StdoutRedirect()
    if os.environ.get("TRACE_MIND_LOG_JSON") == "1":
        _log_as_json()
    # A termination signal cancels the run: what it started ends with it.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGINT, _exit_on_signal)
    try:
        server.serve(input_fd, output_fd, runtime)
    finally:
        is_over = runtime.close()
        spillway.close()
        if not is_over:
            # Something does not end by itself, and no client waits for it any more.
            os._exit(errors.RepExitCode.RUNTIME_INTERNAL)


def _log_as_json() -> None:
    """rep 8: each line that is printed here, by a kind or as a traceback, becomes a JSON object. It goes to stderr, because
    stdout is the protocol's."""
    import sys

    from switchtower.engines.flow.runtime import event_buffer

    class JsonLines:
        encoding = "utf-8"

        def __init__(self, level: str) -> None:
            self._level = level
            self._unfinished = ""

        def write(self, text: str) -> int:
            *lines, self._unfinished = (self._unfinished + text).split("\n")
            for line in lines:
                told = {"timestamp": event_buffer.format_now(), "level": self._level, "message": line}
                os.write(2, json.dumps(told).encode() + b"\n")
            return len(text)

        def flush(self) -> None:
            """Every line is written when it is complete."""

        def isatty(self) -> bool:
            return False

    sys.stdout, sys.stderr = JsonLines("info"), JsonLines("error")


def _exit_on_signal(number: int, frame: object) -> None:
    import signal

    # The first signal counts: a second one must not interrupt the cleanup.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
