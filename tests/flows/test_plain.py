"""Flows that a runtime runs whole, as sessions of a daemon: what is told, and how each end comes out."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.contract_proc.driving import IR
from tests.crash.tower_process import find_run_processes
from tests.flows.flowing import (
    count_runs,
    get_foreign_runtime,
    list_steps,
    make_chain,
    make_counting_step,
    make_document,
    make_edge,
    make_node,
    make_shell_step,
    report,
    run,
    start,
    wait_for_end,
)

from switchtower.testing.push_client import PushClient


async def check_nothing_left(client: PushClient, run_id: str) -> None:
    await client.ping()
    assert find_run_processes({run_id}) == {}


@pytest.mark.requirement("rep:tower:session", "rep:tower:steps-are-calls")
async def test_a_flow_is_a_session_and_its_steps_are_calls(client: PushClient, workspace: Path) -> None:
    flow = make_chain(
        make_node("greet", "log", message="$input.who"),
        make_shell_step("make", "echo made"),
        make_node("tell", "dsl.emit", said="$step.make.stdout"),
        who="string",
    )
    events, told = await run(client, workspace, flow, inputs={"who": "Ann"})

    calls = [(event.payload["toolName"], event.payload["args"].get("step")) for event in events if event.type == "tool_call"]
    assert calls == [("flow", None), ("log", "greet"), ("shell", "make"), ("dsl.emit", "tell")]
    results = [event.payload["toolName"] for event in events if event.type == "tool_result"]
    assert results == ["log", "shell", "dsl.emit", "flow"]
    assert any(event.type == "status" and event.payload["detail"] == "[info] Ann\n" for event in events)
    assert (events[-1].payload["outcome"], events[-1].payload["summary"]) == ("success", "staged: completed, 3 steps")
    assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))
    assert (told["flow"], told["status"], told["exitCode"], told["eventsLeftOut"]) == ("staged", "completed", 0, 0)
    assert told["summary"] == {"completed_steps": 3, "failed_steps": 0, "outputs": {"said": "made\n"}}
    assert list_steps(told) == [(step, state, 0) for step in ("greet", "make", "tell") for state in ("started", "succeeded")]
    assert [event["message"] for event in told["events"] if event["type"] == "log"] == ["Ann"]
    await check_nothing_left(client, str(events[-1].run_id))


@pytest.mark.requirement("rep:tower:report")
async def test_who_comes_later_reads_the_same(
    client: PushClient, connect: Any, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    session_id = await start(client, workspace, IR)
    events = await wait_for_end(client, session_id)
    late: PushClient = await connect(push_daemon)
    await late.attach(session_id)

    seen = [event for event in await wait_for_end(late, session_id) if event.seq >= events[0].seq]
    assert [event.raw for event in seen] == [event.raw for event in events]
    assert await report(late, session_id) == await report(client, session_id)


async def test_a_client_is_told_that_there_are_flows(client: PushClient) -> None:
    assert "flows" in (await client.send_hello())["capabilities"]


async def test_a_report_of_what_is_no_flow_is_refused(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id

    answer = await client.request("get_flow", {"sessionId": session_id}, session_id=session_id)
    assert (answer.ok, answer.code) == (False, "INVALID_REQUEST")


@pytest.mark.requirement("rep:tower:no-talk")
async def test_a_flow_takes_no_messages(client: PushClient, workspace: Path) -> None:
    session_id = await start(client, workspace, IR)
    await wait_for_end(client, session_id)

    payload = {"sessionId": session_id, "clientMessageId": "msg_1", "text": "hello"}
    answer = await client.request("send_user_message", payload, session_id=session_id)
    assert answer.ok is False
    assert answer.error is not None
    assert "a flow takes no messages" in answer.error["message"]


@pytest.mark.requirement("rep:tower:failed")
async def test_a_step_that_fails_fails_the_run_with_its_error(client: PushClient, workspace: Path) -> None:
    flow = make_chain(make_shell_step("no", "echo sorry; exit 3", retries=1), make_counting_step("never"))
    events, told = await run(client, workspace, flow)

    assert events[-1].payload["outcome"] == "failed"
    assert events[-1].payload["summary"].startswith("staged failed in step `no`: ")
    assert [event.payload["code"] for event in events if event.type == "error"] == ["FLOW_FAILED"]
    assert (told["status"], told["exitCode"], told["summary"]["failed_steps"]) == ("failed", 1, 1)
    error = told["summary"]["error"]
    assert (error["code"], error["data"]["step_id"]) == (2001, "no")
    assert count_runs(workspace, "never") == 0


async def test_shell_steps_need_to_be_allowed(client: PushClient, workspace: Path) -> None:
    _, told = await run(client, workspace, make_chain(make_counting_step("no")), allowShell=False)

    assert told["status"] == "failed"
    assert count_runs(workspace, "no") == 0


@pytest.mark.requirement("rep:tower:refused")
@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"document": {}}, "version"),
        ({"document": make_document([make_node("a", "log")], [make_edge("a", "nobody")])}, "nobody"),
        (
            {
                "document": make_document(
                    [make_node("a", "log"), make_node("b", "log")], [make_edge("a", "b"), make_edge("b", "a")]
                )
            },
            "wait for each other",
        ),
        (
            {"document": make_document([make_node("a", "log")], who="string"), "inputs": {"who": 1}},
            "the input `who` must be a string",
        ),
        ({"document": make_document([make_node("a", "log")], who="string")}, "who"),
        ({"document": IR, "argv": ["a\0b"]}, "not one that can be started"),
    ],
    ids=["empty", "edge", "circle", "inputs", "missing input", "argv"],
)
async def test_a_flow_that_is_not_valid_begins_no_session(
    client: PushClient, workspace: Path, wish: dict[str, Any], complaint: str
) -> None:
    payload = {
        "mode": "interactive",
        "provider": "flow",
        "sandboxProvider": "local",
        "repo": {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"},
        "engine": "flow",
        "flow": wish,
    }
    answer = await client.request("start_session", payload)

    assert answer.error is not None
    assert complaint in answer.error["message"]
    listed = await client.request_payload("list_sessions", {"limit": 100})
    assert not any(session.get("workspace") == str(workspace) for session in listed["sessions"])


@pytest.mark.parametrize(
    "fields", [{"engine": "flow"}, {"flow": {"document": IR}}, {"engine": "agent", "flow": {"document": IR}}]
)
async def test_the_engine_and_the_flow_belong_together(client: PushClient, workspace: Path, fields: dict[str, Any]) -> None:
    repo = {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"}
    payload = {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo, **fields}

    assert (await client.request("start_session", payload)).code == "INVALID_REQUEST"


@pytest.mark.requirement("rep:tower:runtime-broke")
@pytest.mark.parametrize(
    ("name", "exit_code", "error_code"),
    [
        ("good", 0, None),
        ("fails_step", 1, 2001),
        ("lies", 3, 1002),
        ("dies_mid_run", 4, 3001),
        ("half_a_line", 4, 3001),
        ("exits_at_once", 4, 3001),
        ("closes_stdout", 4, 3001),
    ],
)
async def test_whatever_a_foreign_runtime_does_the_run_ends_and_nothing_is_left(
    client: PushClient, workspace: Path, name: str, exit_code: int, error_code: int | None
) -> None:
    events, told = await run(client, workspace, IR, **get_foreign_runtime(name))

    error = told["summary"].get("error")
    assert (told["exitCode"], error and error["code"]) == (exit_code, error_code)
    assert told["status"] == ("completed" if exit_code == 0 else "failed")
    assert events[-1].payload["outcome"] == ("success" if exit_code == 0 else "failed")
    if exit_code == 4:
        assert [event.payload["code"] for event in events if event.type == "error"] == ["FLOW_BROKEN"]
    assert "swordfish" not in str([event.payload for event in events])
    await check_nothing_left(client, str(events[-1].run_id))


@pytest.mark.requirement("rep:tower:lacks-a-kind")
async def test_a_runtime_that_lacks_a_kind_runs_nothing(client: PushClient, workspace: Path) -> None:
    _, told = await run(client, workspace, make_chain(make_node("one", "moon.landing")), **get_foreign_runtime("good"))

    assert (told["exitCode"], told["summary"]["error"]["code"], list_steps(told)) == (3, 1002, [])
    assert "hint: " in told["summary"]["error"]["message"]


async def test_a_runtime_that_is_not_there_is_a_failed_run(client: PushClient, workspace: Path) -> None:
    _, told = await run(client, workspace, IR, runtime="proc", argv=["./nowhere"])

    assert (told["exitCode"], told["summary"]["error"]["code"]) == (4, 3001)


@pytest.mark.requirement("rep:tower:timeout")
@pytest.mark.parametrize("name", ["never_answers", "obeys_cancel"])
async def test_a_runtime_that_takes_too_long_is_ended(client: PushClient, workspace: Path, name: str) -> None:
    events, told = await run(client, workspace, IR, timeoutSeconds=0.5, **get_foreign_runtime(name))

    assert (told["exitCode"], told["summary"]["error"]["data"]["cause"]) == (4, "Timeout")
    await check_nothing_left(client, str(events[-1].run_id))


@pytest.mark.requirement("rep:tower:cancel")
@pytest.mark.parametrize("name", ["obeys_cancel", "ignores_sigterm"])
async def test_an_endless_run_can_be_cancelled(client: PushClient, workspace: Path, name: str) -> None:
    session_id = await start(client, workspace, IR, **get_foreign_runtime(name))
    call = await client.next_event()
    while call.type != "tool_call":
        call = await client.next_event()
    assert (await client.cancel(session_id, str(call.run_id))).ok
    events = await wait_for_end(client, session_id)
    told = await report(client, session_id)

    assert events[-1].payload["outcome"] == "cancelled"
    assert (told["status"], told["summary"]["error"]["data"]["cause"]) == ("failed", "Cancelled")
    await check_nothing_left(client, str(call.run_id))


async def test_a_runtime_without_control_kinds_is_directed(client: PushClient, workspace: Path) -> None:
    flow = make_chain(make_node("one", "log", do="hello"), make_node("tell", "dsl.emit", said="$step.one.said"))
    _, told = await run(client, workspace, flow, **get_foreign_runtime("foreign"))

    assert (told["status"], told["summary"]["outputs"]) == ("completed", {"said": "hello"})
    assert list_steps(told) == [(step, state, 0) for step in ("one", "tell") for state in ("started", "succeeded")]


async def test_steps_side_by_side_and_large_outputs_come_through(client: PushClient, workspace: Path) -> None:
    wide = [make_node(f"n{number}", "log", message=f"{number}") for number in range(40)]
    long = make_shell_step("long", "head -c 300000 /dev/zero | tr '\\0' x")
    tell = make_node("tell", "dsl.emit", text="$step.long.stdout")
    _, told = await run(client, workspace, make_document([*wide, long, tell], [make_edge("long", "tell")]))

    assert told["status"] == "completed"
    assert len(list_steps(told)) == 84
    assert {event["message"] for event in told["events"] if event["type"] == "log"} == {str(number) for number in range(40)}
    assert len(told["summary"]["outputs"]["text"]) > 50_000
