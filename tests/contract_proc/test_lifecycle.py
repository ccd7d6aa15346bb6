"""rep 11: the handshake, the run from start to end, and what each way of ending makes of the exit code."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.contract_proc.driving import IR, RUNTIMES, drive, drive_order, make_order, read_notes

from switchtower.engines.flow.ir import flow, parser
from switchtower.protocols.rep import errors


@pytest.mark.requirement("rep:contract:handshake", "rep:contract:lifecycle", "rep:lifecycle:order", "rep:environment:variables")
async def test_a_run_that_completes_has_all_events_the_outputs_and_exit_code_0(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    asked = tmp_path / "asked"
    wanted = make_order("good", inputs={"who": "you"}, allow_shell=True, timeout_s=12.5, env={"NOTES": str(asked)})

    ended = await drive_order(wanted, on_event=heard.append)

    assert ended.exit_code is errors.RepExitCode.OK
    started, novel, succeeded = heard
    assert ended.make_report() == {
        "flow": "greet",
        "status": "completed",
        "summary": {
            "completed_steps": 1,
            "failed_steps": 0,
            "outputs": {
                "TRACE_MIND_RUN_ID": wanted.run_id,
                "TRACE_MIND_TRACE_ID": "trace-1",
                "TRACE_MIND_ENGINE_TIMEOUT": "12.5",
                "TRACE_MIND_ALLOW_SHELL": "1",
                "TRACE_MIND_LOG_JSON": "0",
            },
        },
        "events": [started, novel, succeeded],
    }
    assert (started["state"], novel["type"], succeeded["state"]) == ("started", "novel", "succeeded")
    requests = read_notes(asked)
    assert [request["id"] for request in requests] == [1, 2, 3, 4, 5]
    assert requests[0] == {"jsonrpc": "2.0", "id": 1, "method": "Runtime.Capabilities", "params": {}}
    assert requests[1]["params"] == {
        "ir": IR,
        "inputs": {"who": "you"},
        "options": {"run_id": wanted.run_id, "trace_id": "trace-1", "allow_shell": True},
    }
    assert [request["method"] for request in requests[2:]] == ["Runtime.Poll"] * 3
    assert requests[2]["params"] == {"run_id": wanted.run_id}


async def test_a_script_with_a_shebang_can_be_the_runtime() -> None:
    script = RUNTIMES / "good.py"
    assert script.stat().st_mode & stat.S_IXUSR

    assert (await drive("good", argv=["./good.py"])).status == "completed"


@pytest.mark.requirement("rep:contract:lifecycle", "rep:exits:table", "rep:settled:error")
async def test_a_step_that_fails_ends_the_run_with_its_error_and_exit_code_1() -> None:
    ended = await drive("fails_step")

    assert (ended.status, ended.exit_code) == ("failed", errors.RepExitCode.STEP_FAILURE)
    assert ended.summary == {
        "completed_steps": 0,
        "failed_steps": 1,
        "error": {
            "code": 2001,
            "message": "no such host",
            "data": {"step_id": "one", "attempt": 2, "retriable": True, "details": {}},
        },
    }


@pytest.mark.requirement("rep:poll:failed")
@pytest.mark.parametrize(
    ("told_by", "message"), [("event", "told by the step"), ("nothing", "the run failed; the runtime gave no reason")]
)
async def test_a_failure_without_an_error_in_the_summary_is_a_step_failure(told_by: str, message: str) -> None:
    ended = await drive("fails_silently", env={"TOLD_BY": told_by})

    assert ended.error is not None
    assert (ended.error["code"], ended.error["message"], ended.exit_code) == (2001, message, errors.RepExitCode.STEP_FAILURE)
    assert ended.summary["failed_steps"] == 0


@pytest.mark.requirement("rep:contract:handshake", "rep:negotiation:mismatch")
async def test_a_kind_that_the_runtime_lacks_ends_with_exit_code_3_and_a_remedy(tmp_path: Path) -> None:
    remembered: list[dict[str, Any]] = []
    asked = tmp_path / "asked"

    ended = await drive(
        "good",
        required=["log", "agent.run", "http.get"],
        engine="mine",
        on_capabilities=remembered.append,
        env={"NOTES": str(asked)},
    )

    assert (ended.status, ended.exit_code) == ("failed", errors.RepExitCode.VALIDATION)
    assert ended.error is not None
    assert ended.error["code"] == errors.RepErrorCode.UNSUPPORTED_STEP_KIND
    assert ended.error["message"] == (
        "the runtime does not support the step kinds `agent.run`, `http.get`; hint: use another runtime, or look at what this "
        "one says with `tm runtime cache show --engine mine`"
    )
    assert ended.error["data"]["details"]["missing"] == ["agent.run", "http.get"]
    assert [known["version"] for known in remembered] == ["0.1.0"]
    assert [request["method"] for request in read_notes(asked)] == ["Runtime.Capabilities"], "no run was asked for"


@pytest.mark.requirement("rep:contract:handshake", "rep:capabilities:required")
@pytest.mark.parametrize(
    ("capabilities", "complaint"),
    [
        ({"version": "1", "limits": {}}, "lack `step_kinds`"),
        ({}, "lack `version`, `step_kinds`, `limits`"),
        ([], "lack `version`"),
        ("all", "lack `version`"),
        (None, "lack `version`"),
        ({"version": 1, "step_kinds": "log", "limits": []}, "`version` is not a string, `step_kinds` is not a list"),
        ({"version": "1.0.0", "step_kinds": ["log", 7], "limits": {}}, "holds something else than strings"),
    ],
)
async def test_capabilities_that_lack_something_end_with_exit_code_3(capabilities: Any, complaint: str) -> None:
    ended = await drive("bad_capabilities", env={"CAPABILITIES": json.dumps(capabilities)})

    assert ended.exit_code is errors.RepExitCode.VALIDATION
    assert ended.error is not None
    assert complaint in ended.error["message"]


@pytest.mark.requirement("rep:capabilities:semver")
@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0.0", "01.0.0", "1.0.0-", "latest", "", "1.0.0\n"])
async def test_a_version_that_is_not_semantic_ends_with_exit_code_3(version: str) -> None:
    capabilities = {"version": version, "step_kinds": ["log"], "limits": {}}
    ended = await drive("bad_capabilities", env={"CAPABILITIES": json.dumps(capabilities)})

    assert ended.exit_code is errors.RepExitCode.VALIDATION
    assert ended.error is not None
    assert "not a semantic version such as `0.1.0`" in ended.error["message"]


@pytest.mark.requirement("rep:exits:mismatch")
async def test_a_runtime_that_refuses_to_be_polled_is_a_protocol_mismatch() -> None:
    ended = await drive("refuses", env={"METHOD": "Runtime.Poll", "CODE": "-32602"})

    assert ended.error is not None
    assert (ended.exit_code, ended.error["code"]) == (errors.RepExitCode.RUNTIME_INTERNAL, errors.RepErrorCode.BROKEN_TRANSPORT)
    assert ended.error["message"] == "the runtime refuses `Runtime.Poll` for the run that it has started: it will not do"


@pytest.mark.requirement("rep:exits:refusals", "rep:exits:mismatch")
@pytest.mark.parametrize(
    ("method", "code", "exit_code"),
    [
        ("Runtime.Capabilities", -32601, 4),
        ("Runtime.StartRun", -32601, 4),
        ("Runtime.Poll", -32601, 4),
        ("Runtime.StartRun", 1001, 3),
        ("Runtime.StartRun", 1003, 3),
        ("Runtime.StartRun", -32602, 3),
        ("Runtime.StartRun", 2001, 1),
        ("Runtime.Poll", 3002, 4),
        ("Runtime.Poll", 2500, 1),
        ("Runtime.Poll", -32603, 4),
        ("Runtime.Poll", 77, 4),
    ],
)
async def test_a_refusal_is_told_as_the_runtime_told_it_and_its_class_is_the_exit_code(
    method: str, code: int, exit_code: int
) -> None:
    ended = await drive("refuses", env={"METHOD": method, "CODE": str(code)})

    assert ended.exit_code == exit_code
    assert ended.error == {
        "code": code,
        "message": "it will not do",
        "data": {"step_id": "one", "attempt": 0, "retriable": False, "details": {"expected": "1.0.0"}},
    }


@pytest.mark.requirement("rep:exits:refusals")
async def test_a_refusal_without_an_id_answers_what_was_asked() -> None:
    ended = await drive("cannot_parse")

    assert ended.error is not None
    assert (ended.error["code"], ended.exit_code) == (-32700, errors.RepExitCode.RUNTIME_INTERNAL)


@pytest.mark.requirement("rep:exits:not-started")
@pytest.mark.parametrize("argv", [["./no_such_runtime"], ["no-such-runtime-anywhere"], [str(RUNTIMES)], []])
async def test_a_runtime_that_cannot_be_started_is_told_with_a_remedy(argv: list[str]) -> None:
    ended = await drive("good", argv=argv)

    assert ended.exit_code is errors.RepExitCode.RUNTIME_INTERNAL
    assert ended.error is not None
    assert ended.error["code"] == errors.RepErrorCode.BROKEN_TRANSPORT
    assert "hint: " in ended.error["message"]


@pytest.mark.requirement("rep:exits:not-started")
async def test_what_is_wrong_with_a_runtime_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    script = tmp_path / "not executable"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    for argv, reason in (
        (str(script), f"the runtime `{script}` cannot be started: Permission denied; hint: make it executable with `chmod +x`"),
        (str(tmp_path), "Is a directory; hint: give the path of the program in that folder"),
        (str(tmp_path / "nowhere"), "No such file or directory; hint: see whether the path is right"),
    ):
        ended = await drive("good", argv=[argv])
        assert ended.error is not None
        assert ended.error["message"].endswith(reason)


def find_problem(document: dict[str, Any]) -> str | None:
    try:
        parser.parse_flow(document)
    except flow.InvalidFlow as invalid:
        return str(invalid)
    return None


@pytest.mark.requirement("rep:contract:exit-2", "rep:exits:before-handshake")
async def test_an_ir_that_is_not_valid_ends_with_exit_code_2_and_no_runtime_is_asked(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    nodes = [{"id": "one", "type": "log", "retry": {"max": -1}}]

    ended = await drive("good", ir=IR | {"graph": {"nodes": nodes, "edges": []}}, check=find_problem, env={"NOTES": str(asked)})

    assert (ended.flow, ended.status, ended.exit_code) == ("greet", "failed", errors.RepExitCode.INVALID_BEFORE_HANDSHAKE)
    assert ended.error is not None
    assert ended.error["code"] == errors.RepErrorCode.INVALID_IR
    assert "node `one`" in ended.error["message"]
    assert read_notes(asked) == []


async def test_an_ir_that_is_valid_passes_the_check() -> None:
    assert (await drive("good", check=find_problem)).exit_code is errors.RepExitCode.OK


@pytest.mark.parametrize("ir", [{}, {"flow": []}, {"flow": {"name": 7}}])
async def test_a_flow_without_a_name_is_refused_all_the_same(ir: dict[str, Any]) -> None:
    ended = await drive("good", ir=ir, check=find_problem)

    assert (ended.flow, ended.exit_code) == ("", errors.RepExitCode.INVALID_BEFORE_HANDSHAKE)


async def test_an_error_of_whoever_listens_comes_out_and_leaves_nothing_behind() -> None:
    def listen(event: dict[str, Any]) -> None:
        raise LookupError(event["type"])

    with pytest.raises(LookupError):
        await drive("good", on_event=listen)


async def test_a_listener_may_take_its_time() -> None:
    heard = []

    async def listen(event: dict[str, Any]) -> None:
        heard.append(event["type"])

    await drive("good", on_event=listen)

    assert heard == ["step", "novel", "step"]
