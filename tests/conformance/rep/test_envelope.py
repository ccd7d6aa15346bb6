"""Our runtime's lines: one object each, under the id of what was asked, whatever is sent to it."""

import json
import signal
from typing import Any

import pytest
from tests.conformance.rep.conftest import Spawn
from tests.conformance.rep.peers import HELLO, NAP, TIMEOUT, Orchestrator, make_flow, make_node

HEALTH = b'{"jsonrpc":"2.0","id":%d,"method":"Runtime.Health","params":{}}\n'


@pytest.mark.requirement("rep:envelope:echo", "rep:transport:lines", "rep:transport:stdio")
def test_an_answer_is_one_line_under_the_id_of_its_request(runtime: Orchestrator) -> None:
    for request_id in (1, 2, 7, 2**53, -1, 0, 1.5, "a", "", "ä\n\u2028", None):
        asked = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "Runtime.Health", "params": {}}, ensure_ascii=False)
        runtime.write(asked.encode() + b"\n")
        assert runtime.read("Runtime.Health")["id"] == request_id
    for spelled in (b"1e400", b"-1e400", b"true", b"[1]"):
        runtime.write(b'{"jsonrpc":"2.0","id":%b,"method":"Runtime.Health"}\n' % spelled)
        refused = runtime.read()
        assert (refused["id"], refused["error"]["code"]) == (None, -32602), spelled
    assert runtime.close_input() == (0, b"")


@pytest.mark.requirement("rep:transport:pieces")
@pytest.mark.parametrize("size", [1, 100_000])
def test_requests_may_come_in_any_pieces_and_are_answered_in_their_order(runtime: Orchestrator, size: int) -> None:
    content = b"\n \r\n" + HEALTH % 1 + (HEALTH % 2).replace(b"\n", b"\r\n") + b"\n" + HEALTH % 3 + (HEALTH % 4).rstrip()
    for place in range(0, len(content), size):
        runtime.write(content[place : place + size])
    assert [runtime.read("Runtime.Health")["id"] for _ in range(3)] == [1, 2, 3]
    assert runtime.close_input() == (0, b'{"jsonrpc":"2.0","id":4,"result":{"ok":true,"details":{}}}\n')


@pytest.mark.requirement("rep:envelope:unknown-fields")
def test_fields_that_nobody_knows_are_ignored_everywhere(runtime: Orchestrator) -> None:
    more = {"more": {"deep": [1]}}
    options = {"run_id": "r", "trace_id": "t", "allow_shell": False, **more}
    start = {"ir": {**HELLO, **more}, "inputs": {"more": 1}, "options": options, **more}
    for number, (method, params) in enumerate([("Capabilities", more), ("StartRun", start), ("Poll", {"run_id": "r", **more})]):
        asked = {"jsonrpc": "2.0", "id": number, "method": f"Runtime.{method}", "params": params, **more}
        runtime.write(json.dumps(asked).encode() + b"\n")
        assert "result" in runtime.read(f"Runtime.{method}")
    assert runtime.poll_to_end()[-1]["status"] == "completed"


@pytest.mark.requirement("rep:envelope:not-json", "rep:errors:form")
def test_what_is_no_request_is_answered_and_the_conversation_goes_on(runtime: Orchestrator) -> None:
    runtime.start(NAP)
    for line in (b"{", b"\xff\xfe\x00", b"Content-Length: 5", b"[]", b"null", b"[" * 100_000, b'{"id": Infinity}', b"7"):
        runtime.write(line + b"\n")
        answered = runtime.read()
        assert (answered["id"], answered["error"]["code"]) == (None, 3001), line[:20]
    assert runtime.ask("Runtime.Poll", {})["status"] in ("pending", "running"), "the run goes on too"


@pytest.mark.requirement("rep:errors:json-rpc")
def test_what_cannot_be_done_is_refused_with_the_codes_of_json_rpc(runtime: Orchestrator) -> None:
    for method in ("Runtime.Stop", "Poll", "runtime.poll", "", "x" * 10_000):
        error = runtime.expect_refusal(method, {})
        assert error["code"] == -32601
        assert len(error["message"]) < 200
    for method, params in (
        ("Runtime.Poll", []),
        ("Runtime.Poll", "r"),
        ("Runtime.StartRun", {"ir": HELLO, "options": "none"}),
        ("Runtime.StartRun", {"ir": HELLO, "options": {"run_id": 7}}),
    ):
        assert runtime.expect_refusal(method, params)["code"] == -32602
    assert runtime.start(HELLO), "after all that a run can be started"


@pytest.mark.requirement("rep:errors:payload")
def test_an_ir_or_inputs_that_are_none_are_a_validation_error(runtime: Orchestrator) -> None:
    for params in ({}, {"ir": None}, {"ir": "1.0.0"}, {"ir": [HELLO]}, {"ir": HELLO, "inputs": []}, {"ir": HELLO, "inputs": "x"}):
        assert runtime.expect_refusal("Runtime.StartRun", params)["code"] == 1003, params
    assert runtime.start(HELLO)


@pytest.mark.requirement("rep:envelope:version")
def test_a_request_without_the_version_of_json_rpc_is_a_protocol_mismatch(runtime: Orchestrator) -> None:
    for version in (None, "1.0", 2.0, "2"):
        asked = {"id": 7, "method": "Runtime.StartRun", "params": {"ir": HELLO}}
        runtime.write(json.dumps(asked if version is None else {**asked, "jsonrpc": version}).encode() + b"\n")
        answered = runtime.read()
        assert (answered["id"], answered["error"]["code"]) == (7, 3001), version
    assert runtime.start(HELLO), "none of them has started a run"


@pytest.mark.requirement("rep:envelope:notifications")
def test_a_notification_is_obeyed_without_an_answer(runtime: Orchestrator) -> None:
    runtime.start(NAP)
    runtime.write(b'{"jsonrpc":"2.0","method":"Runtime.Cancel","params":{}}\n{"jsonrpc":"2.0","method":"Runtime.Nothing"}\n')
    assert runtime.poll_to_end()[-1]["summary"]["error"]["data"]["cause"] == "Cancelled"
    assert runtime.close_input() == (0, b"")


@pytest.mark.requirement("rep:transport:stderr-unread")
def test_a_kind_that_prints_more_than_a_pipe_holds_does_not_stall_a_runtime_that_nobody_drains(
    start_runtime: Spawn, foreign_kinds_environment: dict[str, Any]
) -> None:
    runtime = start_runtime(stderr=-1, **foreign_kinds_environment)  # a pipe of which nobody reads
    last, _ = runtime.run(make_flow(make_node("p", "others.print", {"text": "x" * 300_000})))
    assert last["status"] == "completed"
    assert runtime.close_input() == (0, b"")


@pytest.mark.requirement("rep:transport:stdout-is-protocol")
def test_what_a_step_prints_is_not_among_the_answers(start_runtime: Spawn, foreign_kinds_environment: dict[str, Any]) -> None:
    runtime = start_runtime(**foreign_kinds_environment)
    last, _ = runtime.run(make_flow(make_node("p", "others.print", {"text": '{"jsonrpc":"2.0","id":1,"result":{}}'})))
    assert last["status"] == "completed"
    assert runtime.close_input() == (0, b"")


@pytest.mark.requirement("rep:lifecycle:eof")
@pytest.mark.parametrize(("document", "rest"), [(None, b""), (HELLO, b'{"jsonrpc":"2.0","id":9,"meth'), (NAP, b"")])
def test_it_leaves_when_its_input_ends(runtime: Orchestrator, document: dict[str, Any] | None, rest: bytes) -> None:
    if document is not None:
        runtime.start(document)
    runtime.write(rest)
    code, said = runtime.close_input()
    assert code == 0
    assert [json.loads(line)["error"]["code"] for line in said.splitlines()] == ([3001] if rest else [])


@pytest.mark.requirement("rep:lifecycle:sigterm")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_leaves_when_it_is_told_to(runtime: Orchestrator, number: signal.Signals) -> None:
    runtime.start(NAP)
    runtime.process.send_signal(number)
    assert runtime.process.wait(TIMEOUT) == 128 + number


@pytest.mark.requirement("rep:transport:stderr-unread")
def test_commands_that_write_more_than_a_pipe_to_stderr_do_not_stall_a_runtime_that_nobody_drains(start_runtime: Spawn) -> None:
    runtime = start_runtime(stderr=-1)  # a pipe of which nobody reads
    loud = "head -c 300000 /dev/zero | tr '\\0' x >&2"
    last, _ = runtime.run(make_flow(make_node("sh", "shell", {"command": loud})), options={"allow_shell": True})
    assert last["status"] == "completed"
    assert runtime.close_input() == (0, b"")
