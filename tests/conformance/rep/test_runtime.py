"""Our runtime's methods, asked by an orchestrator that is not ours. Each answer is held against closed types on its way."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.conformance.rep.conftest import Spawn
from tests.conformance.rep.peers import HELLO, NAP, Orchestrator, list_states, make_edge, make_flow, make_node

CONTROL = {"switch", "dsl.emit", "finish"}


# Capabilities


@pytest.mark.requirement("rep:capabilities:fields", "rep:capabilities:version", "rep:control:advertised")
def test_it_says_its_version_its_kinds_and_its_limits(runtime: Orchestrator) -> None:
    said = [runtime.ask("Runtime.Capabilities", *params) for params in ([{}], [None], [])]

    assert said[0] == said[1] == said[2]
    kinds = said[0]["step_kinds"]
    assert len(set(kinds)) == len(kinds)
    assert CONTROL | {"http.get", "mcp.call", "shell", "log"} <= set(kinds)


@pytest.mark.requirement("rep:capabilities:kinds-are-true")
def test_a_kind_is_known_exactly_when_it_was_said(runtime: Orchestrator) -> None:
    kinds = runtime.ask("Runtime.Capabilities", {})["step_kinds"]

    assert runtime.expect_refusal("Runtime.StartRun", {"ir": make_flow(make_node("a", "moon.landing"))})["code"] == 1002
    others = [make_node(f"n{number}", kind) for number, kind in enumerate(kinds) if kind not in CONTROL]
    # All of them start; what they are given is their own business, and none of it was asked for here.
    stop = [make_node("first", "assert", {"value": "no"}), *others]
    edges = [make_edge("first", other["id"]) for other in others]
    assert runtime.start(make_flow(*stop, edges=tuple(edges)), options={"allow_shell": True})


@pytest.mark.requirement("rep:capabilities:concurrency")
def test_no_more_steps_run_at_once_than_it_said(runtime: Orchestrator) -> None:
    limit = runtime.ask("Runtime.Capabilities", {})["limits"]["concurrency"]

    last, events = runtime.run(make_flow(*(make_node(f"n{number}", "sleep", {"ms": "20"}) for number in range(3 * limit))))

    running = most = 0
    for _, state, _ in list_states(events):
        running += 1 if state == "started" else -1
        most = max(most, running)
    assert (last["status"], last["summary"]["completed_steps"], most) == ("completed", 3 * limit, limit)


# StartRun


@pytest.mark.requirement("rep:start:run-id")
def test_a_run_has_the_id_that_it_was_given(runtime: Orchestrator) -> None:
    options = {"run_id": "0b2f7e0e-6d1c-4d0e-8b3e-5a0c8b0f4f11", "trace_id": "t", "allow_shell": False}
    assert runtime.start(HELLO, inputs={}, options=options) == options["run_id"]
    assert runtime.ask("Runtime.Poll", {"run_id": options["run_id"]})["status"]


@pytest.mark.requirement("rep:start:without-id")
@pytest.mark.parametrize("params", [{}, {"options": None}, {"options": {"run_id": None}, "inputs": None}])
def test_deployed_orchestrators_leave_out_the_options_or_send_a_null(runtime: Orchestrator, params: dict[str, Any]) -> None:
    run_id = runtime.start(HELLO, **params)
    assert runtime.ask("Runtime.Poll", {"run_id": run_id})["status"]
    assert runtime.poll_to_end()[-1]["status"] == "completed"
    assert runtime.ask("Runtime.Poll", {"run_id": None})["status"] == "completed"


@pytest.mark.requirement("rep:start:without-id", "rep:start:uuids")
def test_an_id_that_it_makes_up_is_a_uuid_and_no_other_run_s(start_runtime: Spawn) -> None:
    first, second = start_runtime().start(HELLO), start_runtime().start(HELLO)
    assert [(str(UUID(one)), UUID(one).version) for one in (first, second)] == [(first, 4), (second, 4)]
    assert first != second


@pytest.mark.requirement("rep:environment:runtime-reads")
def test_an_id_that_was_not_sent_is_the_one_of_the_environment(start_runtime: Spawn) -> None:
    assert start_runtime(TRACE_MIND_RUN_ID="from-around").start(HELLO, options={"run_id": None}) == "from-around"
    assert start_runtime(TRACE_MIND_RUN_ID="from-around").start(HELLO, options={"run_id": "sent"}) == "sent"


@pytest.mark.requirement("rep:start:version", "rep:errors:codes", "rep:errors:form")
@pytest.mark.parametrize("version", ["2.0.0", None])
def test_another_version_of_the_ir_is_refused_before_anything_else_of_it_is_read(runtime: Orchestrator, version: Any) -> None:
    error = runtime.expect_refusal("Runtime.StartRun", {"ir": {"version": version, "graph": "of the future"}})

    received = version if isinstance(version, str) else None
    assert error == {
        "code": 1001,
        "message": "Unsupported IR version",
        "data": {"step_id": None, "attempt": 0, "retriable": False, "details": {"expected": "1.0.0", "received": received}},
    }


@pytest.mark.requirement("rep:errors:codes", "rep:start:refused")
def test_what_cannot_be_run_is_refused_with_its_code_and_its_step_and_nothing_of_it_runs(
    runtime: Orchestrator, tmp_path: Path
) -> None:
    makes = make_node("makes", "file.write", {"path": "made", "content": "x"})
    refused = {
        1002: make_flow(makes, make_node("odd", "moon.landing")),
        1003: make_flow(makes, make_node("odd", "log", retry={"max": -1})),
    }
    for code, document in refused.items():
        error = runtime.expect_refusal("Runtime.StartRun", {"ir": document})
        assert (error["code"], error["data"]["step_id"]) == (code, "odd")
        assert error["data"]["details"]
    assert runtime.expect_refusal("Runtime.StartRun", {"ir": make_flow(makes, n="number"), "inputs": {"n": "x"}})["code"] == 1003

    assert runtime.run(HELLO)[0]["status"] == "completed"
    assert not (tmp_path / "made").exists()


@pytest.mark.requirement("rep:transport:one-run")
def test_a_process_has_one_run(runtime: Orchestrator) -> None:
    runtime.start(HELLO, options={"run_id": "first"})
    assert runtime.expect_refusal("Runtime.StartRun", {"ir": HELLO, "options": {"run_id": "second"}})["code"] == -32602
    assert runtime.expect_refusal("Runtime.Poll", {"run_id": "second"})["code"] == -32602
    assert runtime.poll_to_end()[-1]["status"] == "completed"
    assert runtime.expect_refusal("Runtime.StartRun", {"ir": HELLO})["code"] == -32602, "not after its end either"


@pytest.mark.requirement("rep:start:allow-shell")
@pytest.mark.parametrize(
    ("policy", "options", "allowed"),
    [
        (None, None, False),
        (None, {"allow_shell": True}, True),
        ("0", {"allow_shell": True}, False),
        ("1", {"allow_shell": False}, False),
    ],
)
def test_shell_steps_run_only_where_they_are_allowed(
    start_runtime: Spawn, tmp_path: Path, policy: str | None, options: Any, allowed: bool
) -> None:
    runtime = start_runtime(**({} if policy is None else {"TRACE_MIND_ALLOW_SHELL": policy}))
    params = {"ir": make_flow(make_node("sh", "shell", {"command": "echo made > made"})), "options": options}
    if allowed:
        runtime.ask("Runtime.StartRun", params)
        assert runtime.poll_to_end()[-1]["status"] == "completed"
    else:
        assert runtime.expect_refusal("Runtime.StartRun", params)["code"] == 1002
    assert (tmp_path / "made").exists() == allowed


# Poll


@pytest.mark.requirement("rep:poll:answer", "rep:poll:statuses", "rep:poll:drained", "rep:events:fields", "rep:events:log")
def test_polls_together_tell_the_run_once_and_in_order(runtime: Orchestrator) -> None:
    steps = [
        make_node("a", "log", {"message": "first"}),
        make_node("b", "sleep", {"ms": "30"}),
        make_node("c", "log", {"message": "last"}),
    ]
    runtime.start(make_flow(*steps, edges=(make_edge("a", "b"), make_edge("b", "c"))))
    polled = runtime.poll_to_end()

    order = ["pending", "running", "completed"]
    told = [order.index(each["status"]) for each in polled]
    assert told == sorted(told)
    assert any(each["status"] == "running" for each in polled), "a step that takes its time is seen under way"
    events = [event for each in polled for event in each["events"]]
    assert [(event["step_id"], event.get("state", event["type"])) for event in events] == [
        ("a", "started"), ("a", "log"), ("a", "succeeded"),
        ("b", "started"), ("b", "succeeded"),
        ("c", "started"), ("c", "log"), ("c", "succeeded"),
    ]  # fmt: skip
    assert all(before["timestamp"] <= after["timestamp"] for before, after in pairwise(events))
    assert [(event["level"], event["message"]) for event in events if event["type"] == "log"] == [
        ("info", "first"),
        ("info", "last"),
    ]
    assert polled[-1]["summary"] == {"completed_steps": 3, "failed_steps": 0, "outputs": {}}
    for _ in range(2):
        assert runtime.ask("Runtime.Poll", {}) == polled[-1] | {"events": []}, "an end stays as it is"


@pytest.mark.requirement("rep:settled:outputs", "rep:events:step")
def test_outputs_are_in_the_summary_and_in_the_event_of_their_step(runtime: Orchestrator) -> None:
    steps = [
        make_node("say", "log", {"message": "x"}),
        make_node("tell", "dsl.emit", {"n": "$input.n", "fixed": "72"}),
        make_node("end", "finish"),
    ]
    document = make_flow(*steps, edges=(make_edge("say", "tell"), make_edge("tell", "end")), n="object")

    last, events = runtime.run(document, inputs={"n": {"deep": [1, "ä"]}})

    outputs = {"n": {"deep": [1, "ä"]}, "fixed": "72"}
    assert last["summary"] == {"completed_steps": 3, "failed_steps": 0, "outputs": outputs}
    assert [event["outputs"] for event in events if event.get("state") == "succeeded"][1:] == [outputs, {}]


@pytest.mark.requirement("rep:settled:error", "rep:errors:codes", "rep:poll:failed", "rep:events:step")
def test_a_run_that_failed_says_why_in_its_summary_and_in_the_event(runtime: Orchestrator) -> None:
    last, events = runtime.run(
        make_flow(
            make_node("look", "file.read", {"path": "nowhere"}), make_node("after", "log"), edges=(make_edge("look", "after"),)
        )
    )

    assert (last["status"], last["summary"]["completed_steps"], last["summary"]["failed_steps"]) == ("failed", 0, 1)
    error = last["summary"]["error"]
    assert (error["code"], error["data"]["step_id"], error["data"]["attempt"]) == (2001, "look", 0)
    assert list_states(events) == [("look", "started", 0), ("look", "failed", 0)]
    assert events[-1]["error"] == error


@pytest.mark.requirement("rep:errors:panic", "rep:errors:retriable")
def test_a_kind_that_breaks_is_3002_and_its_words_are_not_for_the_wire(
    start_runtime: Spawn, foreign_kinds_environment: dict[str, Any]
) -> None:
    runtime = start_runtime(**foreign_kinds_environment)
    last, events = runtime.run(make_flow(make_node("b", "others.break", retry={"max": 3, "backoff_ms": 0})))

    error = last["summary"]["error"]
    assert (last["status"], error["code"], error["data"]["step_id"], error["data"]["retriable"]) == ("failed", 3002, "b", False)
    assert len(list_states(events)) == 2, "it is not tried again"
    assert "hunter2" not in str((last, events))
    assert runtime.ask("Runtime.Health") == {"ok": True, "details": {}}


@pytest.mark.requirement("rep:poll:unknown-run")
def test_a_run_that_is_not_there_cannot_be_polled_or_cancelled(runtime: Orchestrator) -> None:
    for method in ("Runtime.Poll", "Runtime.Cancel"):
        for params in ({}, {"run_id": "r"}, {"run_id": None}):
            assert runtime.expect_refusal(method, params)["code"] == -32602
    runtime.start(NAP, options={"run_id": "r"})
    for wrong in ("R", "r ", "", 7, ["r"], {"id": "r"}, True):
        for method in ("Runtime.Poll", "Runtime.Cancel"):
            assert runtime.expect_refusal(method, {"run_id": wrong})["code"] == -32602
    assert runtime.ask("Runtime.Poll", {"run_id": "r"})["status"] in ("pending", "running"), "nobody was cancelled"


# Cancel and health


@pytest.mark.requirement("rep:cancel:answer", "rep:cancel:ends", "rep:settled:cancelled")
def test_a_cancelled_run_has_failed_with_its_cause(runtime: Orchestrator) -> None:
    runtime.start(
        make_flow(make_node("nap", "sleep", {"seconds": "3600"}), make_node("after", "log"), edges=(make_edge("nap", "after"),))
    )
    for _ in range(3):
        assert runtime.ask("Runtime.Cancel", {}) == {"ok": True}
    last = runtime.poll_to_end()[-1]

    error = last["summary"]["error"]
    assert (last["status"], error["data"]["cause"], error["data"]["retriable"]) == ("failed", "Cancelled", False)
    assert last["summary"]["completed_steps"] == 0
    assert runtime.ask("Runtime.Cancel", {}) == {"ok": True}


@pytest.mark.requirement("rep:cancel:after-the-end")
def test_a_run_that_is_over_may_be_cancelled_and_stays_as_it_ended(runtime: Orchestrator) -> None:
    last, _ = runtime.run(HELLO)
    assert runtime.ask("Runtime.Cancel", {}) == {"ok": True}
    assert runtime.ask("Runtime.Poll", {}) == last | {"events": []}
    assert last["status"] == "completed"


@pytest.mark.requirement("rep:health:answer")
def test_health_is_answered_before_during_and_after_a_run(runtime: Orchestrator) -> None:
    well = {"ok": True, "details": {}}
    assert runtime.ask("Runtime.Health", {}) == runtime.ask("Runtime.Health") == well
    runtime.start(NAP)
    assert runtime.ask("Runtime.Health", {}) == well
    runtime.ask("Runtime.Cancel", {})
    runtime.poll_to_end()
    assert runtime.ask("Runtime.Health", {}) == well


@pytest.mark.requirement("rep:runtime:command")
def test_the_installed_command_is_the_same_runtime(start_runtime: Spawn) -> None:
    runtime = start_runtime(command=(sys.executable, "-P", "-m", "switchtower", "flow", "runtime"))
    assert set(runtime.ask("Runtime.Capabilities", {})["step_kinds"]) >= CONTROL
    assert runtime.run(HELLO, options={"run_id": "r"})[0]["status"] == "completed"
    assert runtime.close_input() == (0, b"")
