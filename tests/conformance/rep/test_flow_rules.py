"""What a Flow IR means, shown on our runtime as a process: edges, tries, time limits, switches, references."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.rep.peers import Orchestrator, list_states, make_edge, make_flow, make_node

SHELL = {"allow_shell": True}
COUNTS = "echo x >> tries; test $(wc -l < tries) -ge {wanted}"

ABSENT = object()
WHOLE = make_flow(
    make_node("a", "log", {"message": "x"}, timeout_ms=0, retry={"max": 0, "backoff_ms": 0}),
    make_node("b", "log", {"message": "x"}),
    edges=(make_edge("a", "b"),),
)


def change_document(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value there, or with none."""
    copied = copy.deepcopy(document)
    place: Any = copied
    *way, last = path.split(".")
    for name in way:
        place = place[int(name) if isinstance(place, list) else name]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return copied


def list_succeeded(events: list[dict[str, Any]]) -> list[str]:
    return [step for step, state, _ in list_states(events) if state == "succeeded"]


@pytest.mark.requirement(
    "rep:ir:required", "rep:ir:closed", "rep:ir:names", "rep:ir:bounds", "rep:ir:unique-ids", "rep:ir:existing-nodes"
)
def test_what_the_ir_does_not_allow_is_refused(runtime: Orchestrator) -> None:
    for path, value in (
        *((name, ABSENT) for name in ("flow", "constants", "inputs_schema", "graph", "metadata")),
        *((f"{closed}.more", 1) for closed in ("flow", "constants", "graph", "graph.nodes.0.retry")),
        ("flow.name", "two words"),
        ("flow.name", ""),
        ("flow.timeout_ms", -1),
        ("flow.timeout_ms", 2**31),
        ("constants.policyRef", ""),
        ("constants.policy", []),
        ("inputs_schema", []),
        ("graph.nodes", []),
        ("graph.nodes.0.id", "a/b"),
        ("graph.nodes.0.type", ""),
        ("graph.nodes.0.with", []),
        ("graph.nodes.0.timeout_ms", 2**31),
        ("graph.nodes.0.retry.max", -1),
        ("graph.nodes.1.id", "a"),
        ("graph.edges.0.on", "always"),
        ("graph.edges.0.to", "nowhere"),
        ("graph.edges.0.from", "nowhere"),
        ("metadata.generated_at", "yesterday"),
    ):
        error = runtime.expect_refusal("Runtime.StartRun", {"ir": change_document(WHOLE, path, value)})
        assert (error["code"], bool(error["data"]["details"]["problems"])) == (1003, True), path
    assert runtime.expect_refusal("Runtime.StartRun", {"ir": change_document(WHOLE, "version", ABSENT)})["code"] == 1001
    assert runtime.run(WHOLE)[0]["status"] == "completed", "with none of that it is fine"


@pytest.mark.requirement("rep:ir:open", "rep:ir:bounds")
def test_what_the_ir_leaves_open_is_taken(runtime: Orchestrator) -> None:
    document = WHOLE
    for path in ("more", "graph.nodes.0.more", "graph.edges.0.more", "metadata.more"):
        document = change_document(document, path, {"deep": [1]})
    document = change_document(change_document(document, "flow.timeout_ms", 2**31 - 1), "graph.nodes.0.timeout_ms", 2**31 - 1)
    assert runtime.run(document)[0]["status"] == "completed"


@pytest.mark.requirement("rep:ir:retry", "rep:faults:retry", "rep:errors:retriable")
@pytest.mark.parametrize(("retries", "status"), [(0, "failed"), (1, "failed"), (2, "completed")])
def test_retry_max_is_the_number_of_tries_after_the_first(
    runtime: Orchestrator, tmp_path: Path, retries: int, status: str
) -> None:
    step = make_node("sh", "shell", {"command": COUNTS.format(wanted=3)}, retry={"max": retries, "backoff_ms": 1})
    last, events = runtime.run(make_flow(step), options=SHELL)

    assert last["status"] == status
    assert len((tmp_path / "tries").read_text()) // 2 == retries + 1
    tries = [attempt for _, state, attempt in list_states(events) if state == "started"]
    assert tries == list(range(retries + 1))
    failed = [event["error"]["data"] for event in events if event.get("state") == "failed"]
    assert [(data["attempt"], data["retriable"]) for data in failed] == [(each, True) for each in range(min(retries + 1, 2))]


@pytest.mark.requirement("rep:ir:backoff")
def test_a_pause_lies_between_two_tries_and_can_be_cancelled(runtime: Orchestrator) -> None:
    runtime.start(
        make_flow(make_node("sh", "shell", {"command": "false"}, retry={"max": 9, "backoff_ms": 3_600_000})), options=SHELL
    )
    seen: list[dict[str, Any]] = []
    while ("sh", "failed", 0) not in list_states(seen):
        seen += runtime.ask("Runtime.Poll", {})["events"]
    runtime.ask("Runtime.Cancel", {})
    polled = runtime.poll_to_end()

    assert polled[-1]["summary"]["error"]["data"]["cause"] == "Cancelled"
    seen += [event for each in polled for event in each["events"]]
    assert [attempt for _, state, attempt in list_states(seen) if state == "started"] == [0]


@pytest.mark.requirement("rep:timeouts:step", "rep:faults:timeouts")
def test_a_step_that_takes_too_long_is_a_failed_try(runtime: Orchestrator) -> None:
    nap = make_node("nap", "sleep", {"seconds": "3600"}, timeout_ms=20, retry={"max": 1, "backoff_ms": 0})
    rescue = make_node("rescue", "dsl.emit", {"why": "$step.nap.error.data.cause"})
    last, events = runtime.run(make_flow(nap, rescue, edges=(make_edge("nap", "rescue", "failure"),)))

    errors = [event["error"] for event in events if event.get("state") == "failed"]
    assert [(error["code"], error["data"]["cause"], error["data"]["attempt"]) for error in errors] == [
        (2001, "Timeout", 0),
        (2001, "Timeout", 1),
    ]
    assert (last["status"], last["summary"]["outputs"]) == ("completed", {"why": "Timeout"})


@pytest.mark.requirement("rep:timeouts:flow", "rep:settled:timeout", "rep:faults:timeouts")
def test_a_flow_that_takes_too_long_is_3001_with_its_cause(runtime: Orchestrator) -> None:
    last, _ = runtime.run(make_flow(make_node("nap", "sleep", {"seconds": "3600"}), timeout_ms=30))

    error = last["summary"]["error"]
    assert (last["status"], error["code"], error["data"]["cause"]) == ("failed", 3001, "Timeout")


@pytest.mark.requirement("rep:events:ends")
def test_steps_that_a_time_limit_of_the_flow_cuts_have_their_end_and_count(runtime: Orchestrator) -> None:
    naps = [make_node(name, "sleep", {"seconds": "3600"}) for name in ("a", "b")]
    last, events = runtime.run(make_flow(*naps, timeout_ms=300))

    assert sorted(list_states(events)) == [(name, state, 0) for name in ("a", "b") for state in ("failed", "started")]
    ends = [event["error"] for event in events if event["state"] == "failed"]
    assert [(error["code"], error["message"], error["data"]["cause"]) for error in ends] == [
        (3001, "the step was ended: the flow took longer than 300 ms", "Timeout")
    ] * 2
    assert (last["summary"]["completed_steps"], last["summary"]["failed_steps"]) == (0, 2)


@pytest.mark.requirement("rep:ir:retry-assert")
def test_an_assertion_is_tried_again_as_its_retry_says(runtime: Orchestrator) -> None:
    claim = make_node("claim", "assert", {"value": "no"}, retry={"max": 2, "backoff_ms": 1})
    last, events = runtime.run(make_flow(claim))

    assert list_states(events) == [("claim", state, attempt) for attempt in range(3) for state in ("started", "failed")]
    assert last["summary"]["error"]["data"]["attempt"] == 2


@pytest.mark.requirement("rep:ir:timeout-zero")
def test_a_timeout_of_zero_is_none(runtime: Orchestrator) -> None:
    last, _ = runtime.run(make_flow(make_node("nap", "sleep", {"ms": "20"}, timeout_ms=0), timeout_ms=0))
    assert last["status"] == "completed"


@pytest.mark.requirement("rep:ir:edges")
@pytest.mark.parametrize(("path", "went"), [("there", "good"), ("nowhere", "bad")])
def test_a_step_is_followed_along_the_edge_of_how_it_ended(runtime: Orchestrator, tmp_path: Path, path: str, went: str) -> None:
    (tmp_path / "there").write_text("x")
    steps = [make_node("look", "file.read", {"path": path}), make_node("good", "log"), make_node("bad", "log")]
    for step in steps[1:]:
        step["with"] = {"message": "went"}
    last, events = runtime.run(make_flow(*steps, edges=(make_edge("look", "good"), make_edge("look", "bad", "failure"))))

    assert last["status"] == "completed"
    assert list_succeeded(events)[-1] == went
    assert last["summary"]["failed_steps"] == (0 if went == "good" else 1)


@pytest.mark.requirement("rep:control:switch", "rep:faults:switch")
@pytest.mark.parametrize(
    ("key_from", "value", "went", "default"),
    [
        ("$.inputs.way", "left", "l", "case"),
        ("$.inputs.way", "up", "d", "case"),
        ("$.inputs.way", "up", "d", "field"),
        ("$.vars.ask.way", "right", "r", "field"),
        ("$.vars.ask.nothing", "left", "d", "field"),
    ],
)
def test_a_switch_goes_one_way(runtime: Orchestrator, key_from: str, value: str, went: str, default: str) -> None:
    cases = {"left": "l", "right": "r"}
    given = {"key_from": key_from, "cases": cases | ({"_DEFAULT": "d"} if default == "case" else {})}
    if default == "field":
        given["default"] = "d"
    ways = [make_node(name, "log", {"message": name}) for name in ("l", "r", "d")]
    out = [make_edge("which", target, case=case) for case, target in {**cases, "_DEFAULT": "d"}.items()]
    steps = [make_node("ask", "dsl.emit", {"way": "$input.way"}), make_node("which", "switch", given), *ways]
    last, events = runtime.run(make_flow(*steps, edges=(make_edge("ask", "which"), *out), way="string"), inputs={"way": value})

    assert last["status"] == "completed"
    assert list_succeeded(events) == ["ask", "which", went]


@pytest.mark.requirement("rep:control:emit", "rep:control:finish")
def test_emits_add_to_the_outputs_and_a_finish_ends_the_run(runtime: Orchestrator) -> None:
    steps = [
        make_node("one", "dsl.emit", {"a": "1"}),
        make_node("two", "dsl.emit", {"b": "2"}),
        make_node("end", "finish"),
        make_node("nap", "sleep", {"seconds": "3600"}),
    ]
    last, _ = runtime.run(make_flow(*steps, edges=(make_edge("one", "two"), make_edge("two", "end"))))

    assert (last["status"], last["summary"]["outputs"]) == ("completed", {"a": "1", "b": "2"})


@pytest.mark.requirement("rep:ir:references", "rep:ir:scalars")
def test_values_are_references_or_literals(runtime: Orchestrator) -> None:
    given = {
        "path": "$input.a.b",
        "whole": "$input.a",
        "of_a_step": "$step.first.made.deep",
        "scalar": "72",
        "literal": "costs $input.a",
        "nested": {"list": ["$input.a.b", "x"]},
    }
    steps = [
        make_node("first", "dsl.emit", {"made": {"deep": "here"}}),
        make_node("tell", "dsl.emit", given),
        make_node("nap", "sleep", {"ms": "1"}),
    ]
    last, events = runtime.run(
        make_flow(*steps, edges=(make_edge("first", "tell"), make_edge("tell", "nap")), a="object"),
        inputs={"a": {"b": [1, None]}},
    )

    assert last["summary"]["outputs"] == {
        "made": {"deep": "here"},
        "path": [1, None],
        "whole": {"b": [1, None]},
        "of_a_step": "here",
        "scalar": "72",
        "literal": "costs $input.a",
        "nested": {"list": [[1, None], "x"]},
    }
    assert events[-1]["outputs"] == {"seconds": 0.001}, "a number may be spelled as a text"
