"""Our orchestrator as its users have it, `tm`, with foreign runtimes: what it asks, what it makes of the answers, how it ends."""

import json
from typing import Any

import pytest
from tests.conformance.rep import closed
from tests.conformance.rep.peers import HELLO, OURS, TmCommand, get_foreign_runtime, make_edge, make_flow, make_node


def write_manifest_arguments(tm: TmCommand, document: dict[str, Any], *kinds: str) -> tuple[str, ...]:
    """The arguments with which `tm runtime run` takes the flow out of a manifest."""
    tm.write("m/flow.json", document)
    # sha256 of `{}`
    digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    entry = {"name": "shown", "source_file": "shown.yaml", "policyRef": "none", "step_kinds": sorted(kinds)}
    tm.write("m/manifest.json", [{**entry, "inputs_schema_hash": digest, "ir_path": "flow.json"}])
    return "runtime", "run", "--manifest", "m/manifest.json", "--flow", "shown"


# What is asked


@pytest.mark.requirement(
    "rep:envelope:ids", "rep:envelope:methods", "rep:envelope:no-notifications", "rep:lifecycle:order", "rep:transport:lines",
    "rep:transport:stdio", "rep:start:params", "rep:start:payload", "rep:capabilities:params", "rep:poll:params",
    "rep:health:not-needed",
)  # fmt: skip
def test_requests_are_those_of_the_document_in_its_order(tm_command: TmCommand) -> None:
    ended = tm_command.run(HELLO, tm_command.make_tap(get_foreign_runtime("good")))

    assert ended.code == 0
    sent = tm_command.read_sent()
    assert [request["id"] for request in sent] == list(range(1, len(sent) + 1))
    methods = [request["method"] for request in sent]
    assert methods[:2] == ["Runtime.Capabilities", "Runtime.StartRun"]
    assert set(methods[2:]) == {"Runtime.Poll"}
    started = sent[1]["params"]
    assert (started["ir"], started["inputs"]) == (HELLO, {})
    assert {request["params"]["run_id"] for request in sent[2:]} == {started["options"]["run_id"]}


@pytest.mark.requirement("rep:transport:process-per-run", "rep:start:ids-are-new")
def test_each_run_has_a_process_and_ids_of_its_own(tm_command: TmCommand) -> None:
    runtime = tm_command.make_tap(get_foreign_runtime("good"))
    for _ in range(2):
        assert tm_command.run(HELLO, runtime).code == 0

    assert len(set((tm_command.folder / "pids").read_text().split())) == 2
    options = [request["params"]["options"] for request in tm_command.read_sent() if request["method"] == "Runtime.StartRun"]
    assert len({one[name] for one in options for name in ("run_id", "trace_id")}) == 4
    assert [request["method"] for request in tm_command.read_sent() if request["id"] == 1] == ["Runtime.Capabilities"] * 2


@pytest.mark.requirement("rep:transport:pairs")
def test_nothing_is_asked_while_an_answer_is_due(tm_command: TmCommand) -> None:
    assert tm_command.run(HELLO, get_foreign_runtime("minds_pairs")).outcome["summary"]["outputs"] == {"heard": ""}


@pytest.mark.requirement("rep:start:inputs", "rep:start:allow-shell")
def test_inputs_and_the_policy_go_with_the_run(tm_command: TmCommand) -> None:
    document = make_flow(make_node("say", "log", {"message": "$input.who"}), who="string")
    ended = tm_command.run(document, get_foreign_runtime("good"), "--inputs", '{"who": "ä"}', "--allow-shell")

    assert ended.code == 0
    params = tm_command.read_requests()[1]["params"]
    assert (params["inputs"], params["options"]["allow_shell"]) == ({"who": "ä"}, True)
    assert ended.outcome["summary"]["outputs"]["TRACE_MIND_ALLOW_SHELL"] == "1"


@pytest.mark.requirement("rep:environment:variables", "rep:lifecycle:default-timeout", "rep:faults:variables")
def test_a_runtime_is_told_about_its_run_in_its_environment(tm_command: TmCommand) -> None:
    seen = tm_command.run(HELLO, get_foreign_runtime("good"), TRACE_MIND_RUN_ID="of another run").outcome["summary"]["outputs"]

    options = tm_command.read_requests()[1]["params"]["options"]
    assert seen == {
        "TRACE_MIND_RUN_ID": options["run_id"],
        "TRACE_MIND_TRACE_ID": options["trace_id"],
        "TRACE_MIND_ENGINE_TIMEOUT": "120",
        "TRACE_MIND_ALLOW_SHELL": "0",
        "TRACE_MIND_LOG_JSON": "1",
    }
    assert options["allow_shell"] is False


@pytest.mark.requirement("rep:environment:log-json")
def test_without_json_no_structured_logs_are_asked_for(tm_command: TmCommand) -> None:
    ended = tm_command("run", tm_command.write("flow.json", HELLO), "--executor-path", get_foreign_runtime("good"))

    assert json.loads(ended.stdout)["TRACE_MIND_LOG_JSON"] == "0"


@pytest.mark.requirement("rep:start:answered-id", "rep:envelope:unknown-fields", "rep:events:unknown-types", "rep:poll:drained")
def test_a_runtime_may_say_more_and_name_the_run_itself(tm_command: TmCommand) -> None:
    ended = tm_command.run(HELLO, get_foreign_runtime("says_more"))

    assert ended.code == 0
    assert {request["params"]["run_id"] for request in tm_command.read_requests() if request["method"] == "Runtime.Poll"} == {
        "a name of its own"
    }
    events = ended.outcome["events"]
    assert [event["number"] for event in events if event["type"] == "novel"] == [1, 2, 3]
    assert [event["message"] for event in events if event["type"] == "log"] == ["poll 1", "poll 2", "poll 3"]
    assert "novel" not in ended.stderr
    assert ended.outcome["summary"]["outputs"] == {"polls": 3}


@pytest.mark.requirement("rep:poll:adaptive", "rep:faults:polls")
def test_a_step_of_50_ms_takes_few_polls(tm_command: TmCommand) -> None:
    """By the runtime's own clock, so that a slow machine makes them fewer and not more. The public tool needs 318."""
    assert tm_command.run(HELLO, get_foreign_runtime("takes_a_moment")).code == 0

    assert 2 <= tm_command.list_methods().count("Runtime.Poll") <= 25


@pytest.mark.requirement("rep:transport:spellings")
def test_a_runtime_may_spell_its_json_as_json_allows(tm_command: TmCommand) -> None:
    ended = tm_command.run(HELLO, get_foreign_runtime("spells_oddly"))

    assert ended.code == 0, ended.stderr
    assert ended.outcome["summary"]["outputs"] == {"half": "a\ufffd", "whole": "😀", "slash": "\\ud800"}
    assert [event["message"] for event in ended.outcome["events"]] == ["cut off \ufffd"]


# Negotiation


@pytest.mark.requirement("rep:capabilities:required")
def test_capabilities_without_a_required_field_end_with_3(tm_command: TmCommand) -> None:
    ended = tm_command.run(
        HELLO, get_foreign_runtime("bad_capabilities"), CAPABILITIES='{"version": "0.1.0", "limits": {"concurrency": 1}}'
    )

    assert (ended.code, ended.error["data"]["details"]) == (3, {"missing": ["step_kinds"]})
    assert 1000 <= ended.error["code"] <= 1999
    assert tm_command.list_methods() == ["Runtime.Capabilities"], "no run was asked for"


@pytest.mark.requirement("rep:negotiation:manifest", "rep:negotiation:mismatch", "rep:negotiation:cache", "rep:faults:cache")
def test_a_flow_of_a_manifest_that_needs_another_kind_ends_with_3_and_what_was_said_is_kept(tm_command: TmCommand) -> None:
    arguments = write_manifest_arguments(
        tm_command, make_flow(make_node("say", "log"), make_node("far", "moon.landing")), "log", "moon.landing"
    )
    ended = tm_command(*arguments, "--executor-path", get_foreign_runtime("good"))

    assert (ended.code, ended.error["code"], ended.error["data"]["details"]["missing"]) == (3, 1002, ["moon.landing"])
    assert "hint: " in ended.stderr
    assert tm_command.list_methods() == ["Runtime.Capabilities"]
    kept = json.loads((tm_command.home / ".trace_mind/runtime_capabilities/proc.json").read_bytes())
    assert kept == {"version": "0.1.0", "step_kinds": ["log", "switch", "dsl.emit", "finish"], "limits": {"concurrency": 1}}


@pytest.mark.requirement("rep:control:foreign")
def test_control_nodes_are_driven_for_a_runtime_that_has_none(tm_command: TmCommand) -> None:
    steps = [
        make_node("which", "switch", {"key_from": "$.inputs.way", "cases": {"left": "l", "_DEFAULT": "r"}}),
        make_node("l", "log", {"do": "l"}),
        make_node("r", "log", {"do": "r"}),
        make_node("tell_l", "dsl.emit", {"went": "$step.l.said"}),
        make_node("tell_r", "dsl.emit", {"went": "$step.r.said"}),
        make_node("end", "finish"),
    ]
    ways = (make_edge("which", "l", case="left"), make_edge("which", "r", case="_DEFAULT"))
    rest = (make_edge("l", "tell_l"), make_edge("r", "tell_r"), make_edge("tell_l", "end"), make_edge("tell_r", "end"))
    ended = tm_command.run(
        make_flow(*steps, edges=ways + rest, way="string"), get_foreign_runtime("foreign"), "--inputs", '{"way": "up"}'
    )

    assert (ended.code, ended.outcome["summary"]["outputs"]) == (0, {"went": "r"})
    asked = [
        request["params"]["ir"]["graph"]["nodes"]
        for request in tm_command.read_requests()
        if request["method"] == "Runtime.StartRun"
    ]
    assert [[step["id"] for step in nodes] for nodes in asked] == [["r"]], "it was asked for what it can do"


@pytest.mark.requirement("rep:start:uuids")
def test_lent_steps_have_uuids_of_their_own_and_the_trace_of_the_run(tm_command: TmCommand) -> None:
    steps = [make_node(name, "log", {"do": name}) for name in ("a", "b")]
    document = make_flow(
        *steps, make_node("tell", "dsl.emit", {"x": "$step.b.said"}), edges=(make_edge("a", "b"), make_edge("b", "tell"))
    )
    ended = tm_command.run(document, tm_command.make_tap(get_foreign_runtime("foreign")))

    assert ended.code == 0, ended.stderr
    options = [request["params"]["options"] for request in tm_command.read_sent() if request["method"] == "Runtime.StartRun"]
    assert len({one["run_id"] for one in options}) == 2, "the closed types of both have seen that they are UUIDs"
    assert len({one["trace_id"] for one in options}) == 1


# The project


@pytest.mark.requirement("rep:project:one-runtime", "rep:project:override")
def test_the_project_s_runtime_is_used_unless_another_is_named(tm_command: TmCommand) -> None:
    assert tm_command("init", "--runtime", get_foreign_runtime("good")).code == 0

    assert tm_command.run(HELLO).code == 0
    assert "Runtime.StartRun" in tm_command.list_methods()
    assert tm_command.run(HELLO, get_foreign_runtime("fails_step")).code == 1


@pytest.mark.requirement("rep:project:family")
def test_plugins_of_another_family_are_a_validation_error_with_a_remedy(tm_command: TmCommand) -> None:
    said = f"runtime: {{engine: proc, language: rust, plugins_language: c, executor_path: {get_foreign_runtime('good')}}}\n"
    tm_command.write("tm/config/runtime.yaml", said)
    ended = tm_command.run(HELLO)

    assert ended.code == 3
    assert 1000 <= ended.error["code"] <= 1999
    assert "`rust`" in ended.stderr
    assert "`c`; hint: run `tm init` again" in ended.stderr
    assert tm_command.read_requests() == []


# How it ends


@pytest.mark.requirement("rep:exits:table", "rep:faults:exits", "rep:manifest:command")
@pytest.mark.parametrize(
    ("runtime", "code", "error", "arguments"),
    [
        ("good", 0, None, ()),
        ("fails_step", 1, 2001, ()),
        ("lies", 3, 1002, ()),
        ("half_a_line", 4, 3001, ()),
        ("never_answers", 4, 3001, ("--timeout", "0.5")),
    ],
)
def test_a_run_ends_with_its_object_and_the_exit_code_of_its_error(
    tm_command: TmCommand, runtime: str, code: int, error: int | None, arguments: tuple[str, ...]
) -> None:
    ended = tm_command(
        *write_manifest_arguments(tm_command, HELLO, "log"), "--executor-path", get_foreign_runtime(runtime), *arguments
    )

    assert ended.code == code, ended.stderr
    told = ended.outcome
    assert (told["flow"], told["status"]) == ("shown", "failed" if code else "completed")
    assert (told["summary"].get("error") or {}).get("code") == error


@pytest.mark.requirement("rep:exits:before-handshake", "rep:ir:unique-ids", "rep:ir:existing-nodes")
def test_an_ir_that_is_not_valid_ends_with_2_and_starts_nothing(tm_command: TmCommand) -> None:
    document = make_flow(make_node("a", "log"), make_node("b", "log"), edges=(make_edge("a", "nowhere"),))
    document["graph"]["nodes"][1]["id"] = "a"
    ended = tm_command.run(document, get_foreign_runtime("good"))

    assert (ended.code, ended.error["code"]) == (2, 1003)
    assert ended.outcome["events"] == []
    assert len(ended.error["data"]["details"]["problems"]) == 2, "all that is wrong is told"
    assert tm_command.read_requests() == []


@pytest.mark.requirement("rep:exits:refusals")
@pytest.mark.parametrize(
    ("method", "code", "exit_code"),
    [("Capabilities", -32601, 4), ("Poll", -32601, 4), ("StartRun", -32602, 3), ("Poll", 2999, 1)],
)
def test_what_a_runtime_refuses_with_decides_the_exit_code(tm_command: TmCommand, method: str, code: int, exit_code: int) -> None:
    ended = tm_command.run(HELLO, get_foreign_runtime("refuses"), METHOD=f"Runtime.{method}", CODE=str(code))

    assert (ended.code, ended.error["code"], ended.error["message"]) == (exit_code, code, "it will not do")
    assert ended.error["data"] == {"step_id": "one", "attempt": 0, "retriable": False, "details": {"expected": "1.0.0"}}


@pytest.mark.requirement("rep:timeouts:engine", "rep:settled:timeout", "rep:faults:engine-timeout", "rep:lifecycle:no-leftovers")
def test_a_run_without_an_end_is_ended_by_the_engine_timeout(tm_command: TmCommand) -> None:
    ended = tm_command.run(HELLO, get_foreign_runtime("ignores_sigterm"), "--timeout", "0.6")

    assert (ended.code, ended.error["code"], ended.error["data"]["cause"]) == (4, 3001, "Timeout")
    assert tm_command.list_processes() == []


@pytest.mark.requirement("rep:transport:stderr-drained")
def test_megabytes_of_errors_stall_nobody_and_are_no_answers(tm_command: TmCommand) -> None:
    assert tm_command.run(HELLO, get_foreign_runtime("noisy")).outcome["status"] == "completed"


@pytest.mark.requirement("rep:settled:eof-at-once", "rep:errors:transport")
def test_an_end_is_noticed_without_waiting_for_any_timeout(tm_command: TmCommand) -> None:
    """With an engine timeout of days there is nothing else that could end it."""
    ended = tm_command.run(HELLO, get_foreign_runtime("dies_mid_run"), "--timeout", "1000000")

    assert (ended.code, ended.error["code"]) == (4, 3001)
    assert "cause" not in ended.error["data"]


# Both of ours


@pytest.mark.requirement("rep:together:a-run")
def test_our_two_ends_understand_each_other_in_the_closed_types_of_both(tm_command: TmCommand) -> None:
    steps = [
        make_node("which", "switch", {"key_from": "$.inputs.way", "cases": {"left": "nap"}, "default": "end"}),
        make_node("nap", "sleep", {"ms": "5"}),
        make_node("look", "file.read", {"path": "nowhere"}, retry={"max": 1, "backoff_ms": 0}),
        make_node("tell", "dsl.emit", {"why": "$step.look.error.message"}),
        make_node("end", "finish"),
    ]
    ways = (make_edge("which", "nap", case="left"), make_edge("which", "end", case="_DEFAULT"))
    rest = (make_edge("nap", "look"), make_edge("look", "tell", "failure"), make_edge("tell", "end"))
    document = make_flow(*steps, edges=ways + rest, way="string")
    ended = tm_command.run(document, tm_command.make_tap(*OURS), "--inputs", '{"way": "left"}')

    assert ended.code == 0, ended.stderr
    sent = tm_command.read_sent()
    lines = (tm_command.folder / "answered").read_bytes().splitlines(keepends=True)
    answers = [closed.answer(line, request["method"]) for line, request in zip(lines, sent, strict=True)]
    assert [answer["id"] for answer in answers] == [request["id"] for request in sent]
    assert answers[1]["result"]["run_id"] == sent[1]["params"]["options"]["run_id"]
    told = ended.outcome
    assert told["summary"] == answers[-1]["result"]["summary"]
    assert told["events"] == [event for answer in answers[2:] for event in answer["result"]["events"]]
    assert (told["summary"]["completed_steps"], told["summary"]["failed_steps"]) == (4, 1)


@pytest.mark.requirement("rep:events:logged")
def test_events_are_told_as_they_come_and_stdout_stays_data(tm_command: TmCommand) -> None:
    ended = tm_command.run(HELLO)

    assert [event["type"] for event in ended.outcome["events"]] == ["step", "log", "step"]
    assert ended.stderr.splitlines()[:2] == ["say: started", "say: [info] hello"]
