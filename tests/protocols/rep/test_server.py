"""REP's serving end: the conversation with a recording runtime, and the real executable as a process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract_proc.driving import DRIVER_TIMEOUT

from switchtower.protocols.rep import messages, server


class RecordingRepRuntime:
    """Implements the port and remembers what it was asked."""

    def __init__(self) -> None:
        self.started: list[messages.StartRun] = []
        self.cancelled = 0

    def get_capabilities(self) -> bytes:
        return b'{"version":"1.2.3","step_kinds":[],"limits":{"concurrency":1}}'

    def start(self, run: messages.StartRun) -> str:
        if "refuse" in run.ir:
            raise server.RepError(1002, "Unsupported step kind", step_id="a", details={"kind": "odd"})
        if "break" in run.ir:
            raise KeyError("hunter2")
        self.started.append(run)
        return (run.options and run.options.run_id) or "made"

    def poll(self) -> bytes:
        return b'{"status":"running"}'

    def cancel(self) -> None:
        self.cancelled += 1

    def get_health(self) -> bytes:
        return b'{"ok":true,"details":{}}'


@pytest.fixture
def runtime() -> RecordingRepRuntime:
    return RecordingRepRuntime()


@pytest.fixture
def conversation(runtime: RecordingRepRuntime) -> server.RepServer:
    return server.RepServer(runtime)


def ask(conversation: server.RepServer, method: str, params: Any = None, *, request_id: Any = 1) -> Any:
    line = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()
    answer = conversation.handle_line(line)
    assert answer is not None
    assert answer.endswith(b"}\n")
    assert answer.count(b"\n") == 1
    return json.loads(answer)


def get_error_code(answer: Any) -> int:
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert set(answer["error"]["data"]) == {"step_id", "attempt", "retriable", "details"}
    return int(answer["error"]["code"])


@pytest.mark.requirement("rep:envelope:echo")
def test_every_method_of_the_document_is_answered_under_its_id(conversation: server.RepServer) -> None:
    asked = [
        (messages.CAPABILITIES, {}, {"version": "1.2.3", "step_kinds": [], "limits": {"concurrency": 1}}),
        (messages.HEALTH, {}, {"ok": True, "details": {}}),
        (messages.START_RUN, {"ir": {}, "inputs": {}, "options": {"run_id": "r"}}, {"run_id": "r"}),
        (messages.POLL, {"run_id": "r"}, {"status": "running"}),
        (messages.CANCEL, {"run_id": "r"}, {"ok": True}),
    ]
    for request_id, (method, params, result) in enumerate(asked, start=1):
        answer = ask(conversation, method, params, request_id=request_id)
        assert answer == {"jsonrpc": "2.0", "id": request_id, "result": result}


@pytest.mark.requirement("rep:start:without-id")
@pytest.mark.parametrize(
    "params",
    [
        {"ir": {}},
        {"ir": {}, "inputs": None, "options": None},
        {"ir": {}, "inputs": {}, "options": {}},
        {"ir": {}, "options": {"run_id": None, "trace_id": None}, "unknown": 1},
    ],
)
def test_a_run_starts_without_options_and_with_a_null_for_its_id(conversation: server.RepServer, params: Any) -> None:
    assert ask(conversation, messages.START_RUN, params)["result"] == {"run_id": "made"}
    assert ask(conversation, messages.POLL, {"run_id": None})["result"]
    assert ask(conversation, messages.POLL)["result"]


@pytest.mark.requirement("rep:errors:json-rpc", "rep:start:refused")
@pytest.mark.parametrize(
    ("params", "refusal"),
    [
        *(([], -32602), ("x", -32602), (7, -32602), ({"ir": {}, "options": {"allow_shell": "yes"}}, -32602)),
        *(({}, 1003), ({"ir": []}, 1003), ({"ir": {}, "inputs": 1}, 1003)),
    ],
)
def test_wrong_params_of_a_start_are_refused_and_a_later_start_works(
    conversation: server.RepServer, params: Any, refusal: int
) -> None:
    assert get_error_code(ask(conversation, messages.START_RUN, params)) == refusal
    assert "result" in ask(conversation, messages.START_RUN, {"ir": {}})


@pytest.mark.requirement("rep:errors:form", "rep:start:refused")
def test_what_the_runtime_refuses_goes_out_in_the_taxonomy_and_another_start_may_follow(conversation: server.RepServer) -> None:
    answer = ask(conversation, messages.START_RUN, {"ir": {"refuse": 1}})
    assert answer["error"] == {
        "code": 1002,
        "message": "Unsupported step kind",
        "data": {"step_id": "a", "attempt": 0, "retriable": False, "details": {"kind": "odd"}},
    }
    assert "result" in ask(conversation, messages.START_RUN, {"ir": {}})


@pytest.mark.requirement("rep:errors:panic")
def test_a_runtime_that_breaks_is_3002_without_its_words(
    conversation: server.RepServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(conversation, messages.START_RUN, {"ir": {"break": 1}})
    assert get_error_code(answer) == 3002
    assert "hunter2" not in str(answer)
    assert "hunter2" in capsys.readouterr().err


@pytest.mark.requirement("rep:transport:one-run", "rep:poll:unknown-run")
def test_there_is_one_run_in_a_process(conversation: server.RepServer, runtime: RecordingRepRuntime) -> None:
    assert get_error_code(ask(conversation, messages.POLL)) == -32602
    assert get_error_code(ask(conversation, messages.CANCEL)) == -32602
    ask(conversation, messages.START_RUN, {"ir": {}})
    assert get_error_code(ask(conversation, messages.START_RUN, {"ir": {}})) == -32602
    assert get_error_code(ask(conversation, messages.POLL, {"run_id": "other"})) == -32602
    assert get_error_code(ask(conversation, messages.CANCEL, {"run_id": ["made"]})) == -32602
    assert (len(runtime.started), runtime.cancelled) == (1, 0)


@pytest.mark.requirement("rep:errors:json-rpc")
@pytest.mark.parametrize("method", ["Runtime.Nope", "", None, 7, ["Runtime.Poll"]])
def test_a_method_that_is_not_there_is_not_found(conversation: server.RepServer, method: Any) -> None:
    assert get_error_code(ask(conversation, method)) == -32601


@pytest.mark.requirement("rep:envelope:not-json")
@pytest.mark.parametrize(
    "line",
    [b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"\0", b'{"id": NaN}', b"[" * 100_000, b"1" * 10_000, None],
    ids=range(11),
)
def test_a_line_that_is_no_request_is_a_parse_error_with_a_null_for_its_id(
    conversation: server.RepServer, line: bytes | None
) -> None:
    answer = json.loads(conversation.handle_line(line) or b"")
    assert (get_error_code(answer), answer["id"]) == (3001, None)
    assert "result" in ask(conversation, messages.HEALTH)


@pytest.mark.requirement("rep:envelope:echo")
@pytest.mark.parametrize("request_id", ["text", 0, -1, 1.5, 10**30, None, "\ud800"])
def test_an_id_comes_back_as_it_was(conversation: server.RepServer, request_id: Any) -> None:
    assert ask(conversation, messages.HEALTH, request_id=request_id)["id"] == request_id


@pytest.mark.parametrize("request_id", [True, [], {}])
def test_an_id_that_is_none_is_refused(conversation: server.RepServer, request_id: Any) -> None:
    answer = ask(conversation, messages.HEALTH, request_id=request_id)
    assert (get_error_code(answer), answer["id"]) == (-32602, None)


@pytest.mark.requirement("rep:envelope:notifications")
def test_a_notification_is_obeyed_and_not_answered(conversation: server.RepServer, runtime: RecordingRepRuntime) -> None:
    ask(conversation, messages.START_RUN, {"ir": {}})
    assert conversation.handle_line(b'{"jsonrpc":"2.0","method":"Runtime.Cancel"}') is None
    assert conversation.handle_line(b'{"jsonrpc":"2.0","method":"Nope"}') is None
    assert runtime.cancelled == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(["id", "method", "params"]), inner),
    max_leaves=12,
)


@pytest.mark.requirement("rep:envelope:not-json")
@given(line=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_line_breaks_the_conversation(line: bytes) -> None:
    conversation = server.RepServer(RecordingRepRuntime())
    answer = conversation.handle_line(line)
    assert answer is None or get_error_code(json.loads(answer)) in (3001, 1003, -32601, -32602)
    assert "result" in ask(conversation, messages.HEALTH)


@pytest.mark.requirement("rep:transport:pieces")
@given(lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))), cuts=st.lists(st.integers(1, 20)))
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"\n".join(lines)
    expected = [None if len(line) > 20 else line.strip() for line in lines if len(line) > 20 or line.strip()]
    reading = server.BoundedLineSplitter(longest=20)
    got: list[bytes | None] = []
    for size in [*cuts, *([7] * len(whole))]:
        got += reading.feed(whole[:size])
        whole = whole[size:]
    assert got + reading.take_rest() == expected


# The executable.


class RepChildProcess:
    def __init__(self, folder: Path, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchtower.flows.rep_runtime"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, **variables},
        )
        self._asked = 0

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any = None) -> Any:
        self._asked += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}).encode() + b"\n")
        answer = self.read()
        assert answer["id"] == self._asked
        return answer.get("result", answer.get("error"))

    def read_to_end(self) -> tuple[Any, list[Any]]:
        events: list[Any] = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            polled = self.ask(messages.POLL)
            events += polled["events"]
            if polled["status"] in ("completed", "failed"):
                return polled, events
            time.sleep(0.002)
        raise AssertionError("the run does not end")

    def close_input(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DRIVER_TIMEOUT)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[RepChildProcess]:
    started = RepChildProcess(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()
    for stream in (started.process.stdin, started.process.stdout):
        assert stream is not None
        stream.close()


def make_flow(kind: str, **given: Any) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "flow": {"name": "one", "timeout_ms": 0},
        "constants": {"policyRef": "none", "policy": {}},
        "inputs_schema": {},
        "graph": {"nodes": [{"id": "only", "type": kind, "with": given}], "edges": []},
        "metadata": {"generated_at": "2026-01-02T03:04:05Z", "source_file": "one.yaml"},
    }


@pytest.mark.requirement("rep:lifecycle:eof")
def test_the_executable_runs_a_flow_and_leaves_when_its_input_ends(child: RepChildProcess) -> None:
    capabilities = child.ask(messages.CAPABILITIES)
    assert {*messages.CONTROL_KINDS, "http.get", "shell", "file.read"} <= set(capabilities["step_kinds"])
    run_id = child.ask(messages.START_RUN, {"ir": make_flow("dsl.emit", x="1"), "options": {"run_id": None}})["run_id"]
    assert run_id
    polled, events = child.read_to_end()
    assert polled["summary"] == {"completed_steps": 1, "failed_steps": 0, "outputs": {"x": "1"}}
    assert [event["state"] for event in events] == ["started", "succeeded"]
    assert child.close_input() == 0


@pytest.mark.requirement("rep:environment:runtime-reads", "rep:start:allow-shell")
def test_the_executable_takes_its_run_id_and_its_policy_from_the_environment(tmp_path: Path) -> None:
    for policy, options, is_allowed in (
        ("1", None, True),
        ("1", {"allow_shell": False}, False),
        ("0", {"allow_shell": True}, False),
    ):
        child = RepChildProcess(tmp_path, TRACE_MIND_RUN_ID="from-around", TRACE_MIND_ALLOW_SHELL=policy)
        with child.process:
            answer = child.ask(messages.START_RUN, {"ir": make_flow("shell", command="true"), "options": options})
            assert answer.get("run_id") == ("from-around" if is_allowed else None)
            assert answer.get("code") == (None if is_allowed else 1002)
            assert child.close_input() == 0


@pytest.mark.requirement("rep:errors:codes")
def test_refusals_of_the_executable_carry_their_codes(child: RepChildProcess) -> None:
    for document, wanted in (
        ({"version": "9"}, 1001),
        (make_flow("nope"), 1002),
        ({"version": "1.0.0"}, 1003),
    ):
        refused = child.ask(messages.START_RUN, {"ir": document})
        assert refused["code"] == wanted
        assert refused["data"]["details"]


@pytest.mark.requirement("rep:envelope:too-long")
def test_an_oversized_line_and_rubbish_are_answered_and_survived(child: RepChildProcess) -> None:
    sending = threading.Thread(target=lambda: child.send(b'{"x":"' + b"y" * server.MAX_LINE_BYTES + b'"}\n\xff\xfe\n\n'))
    sending.start()
    assert [child.read()["error"]["code"] for _ in range(2)] == [3001, 3001]
    sending.join()
    assert child.ask(messages.HEALTH) == {"ok": True, "details": {}}
    assert child.ask(messages.START_RUN, {"ir": make_flow("log", message="z" * (15 * 1024 * 1024))})["run_id"]
    assert child.read_to_end()[0]["status"] == "completed"


@pytest.mark.requirement("rep:lifecycle:steps-end-too")
@pytest.mark.parametrize("how", ["hang up", "terminate"])
def test_what_runs_is_gone_when_the_executable_leaves(child: RepChildProcess, tmp_path: Path, how: str) -> None:
    command = "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait"
    child.ask(messages.START_RUN, {"ir": make_flow("shell", command=command), "options": {"allow_shell": True}})
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    if how == "hang up":
        assert child.close_input() == 0
    else:
        child.process.terminate()
        assert child.process.wait(DRIVER_TIMEOUT) == 128 + signal.SIGTERM
    pid = (tmp_path / "pid").read_text().strip()
    status = Path(f"/proc/{pid}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.requirement("rep:settled:cancelled")
def test_a_cancelled_run_fails_with_its_cause(child: RepChildProcess) -> None:
    child.ask(messages.START_RUN, {"ir": make_flow("sleep", seconds="1000")})
    assert child.ask(messages.CANCEL) == {"ok": True}
    polled, _ = child.read_to_end()
    assert polled["status"] == "failed"
    assert polled["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert child.ask(messages.CANCEL) == {"ok": True}


def test_the_first_answer_needs_none_of_the_heavy_rooms() -> None:
    check = (
        "import sys, switchtower.flows.rep_runtime as r; r.RepRuntime().get_capabilities();"
        "print(sorted({'asyncio','msgspec','yaml','httpx2','mcp','typing','threading','pathlib','importlib.metadata'}"
        " & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=True, text=True).stdout == "[]\n"


def test_a_small_flow_is_executed_without_loading_an_event_loop() -> None:
    check = (
        "import sys, time, msgspec, switchtower.flows.rep_runtime as r\n"
        "from switchtower.protocols.rep import messages\n"
        f"runtime = r.RepRuntime(); runtime.start(messages.StartRun(ir={make_flow('log', message='x')!r}))\n"
        "assert runtime.close(); print(b'\"completed\"' in runtime.poll(), 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=True, text=True).stdout == "True False\n"


def test_a_run_begins_without_typing_extensions_which_others_can_still_load() -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": messages.START_RUN, "params": {"ir": make_flow("log", message="x")}}
    check = (
        "import sys, switchtower.flows.rep_runtime as r\n"
        "from switchtower.protocols.rep import server\n"
        f"answer = server.RepServer(r.RepRuntime()).handle_line({json.dumps(request).encode()!r})\n"
        "before = {'typing_extensions', 'inspect'} & set(sys.modules)\n"
        "import typing_extensions\n"
        "print(b'run_id' in answer, before, bool(typing_extensions))"
    )
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, check=True, text=True).stdout
    assert shown == "True set() True\n"


def test_pipes_that_do_not_wait_are_served_all_the_same() -> None:
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    os.set_blocking(ours_in, False)
    os.set_blocking(ours_out, False)
    serving = threading.Thread(target=server.serve, args=(ours_in, ours_out, RecordingRepRuntime()))
    serving.start()
    asked = 3000
    requests = b'{"jsonrpc":"2.0","id":1,"method":"Runtime.Capabilities"}\n' * asked
    sending = threading.Thread(target=lambda: (os.write(theirs_out, requests), os.close(theirs_out)))
    sending.start()
    with os.fdopen(theirs_in, "rb") as answers:
        assert sum(b'"result"' in answers.readline() for _ in range(asked)) == asked
    sending.join()
    serving.join(10)
    assert not serving.is_alive()
    os.close(ours_in)
    os.close(ours_out)


def test_serving_ends_when_nobody_reads_the_answers() -> None:
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    os.close(theirs_in)
    os.write(theirs_out, b'{"id":1}\n')
    server.serve(ours_in, ours_out, RecordingRepRuntime())
    for descriptor in (theirs_out, ours_in, ours_out):
        os.close(descriptor)
