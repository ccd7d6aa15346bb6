"""Runs: statuses in their order, what is told between them, how they end, and being aborted."""

from pathlib import Path

import pytest
from tests.conformance.minicodex.conftest import Enter, Play
from tests.conformance.minicodex.shorthand import drop_deltas, get_result_text, summarise_events
from tests.conftest import StartDaemon

from switchtower.testing import model_script as script
from switchtower.testing.minicodex_client import MiniCodexClient

UUID = "01a1e2c0-bc06-e159-79bb-c9dbe2266e69"


@pytest.mark.requirement("minicodex:matrix:text-only", "minicodex:run:order", "minicodex:run:turn-done", "minicodex:run:accepted")
async def test_a_run_of_text_only_ends_with_finished_and_turn_done(minicodex_client: MiniCodexClient) -> None:
    state = await minicodex_client.run("say: hello there")
    assert summarise_events(minicodex_client.frames) == [
        "starting",
        "user_text",
        "running",
        "reasoning",
        "assistant_text",
        "finished",
        "turn_done",
    ]
    assert minicodex_client.ledger.assistant_text == "hello there"
    accepted = next(place for place, frame in enumerate(minicodex_client.frames) if frame["type"] == "accepted")
    starting = next(place for place, frame in enumerate(minicodex_client.frames) if frame["type"] == "run_status")
    assert accepted < starting
    assert state["finished_at"] >= state["started_at"]
    done = minicodex_client.frames[-2]
    assert (done["type"], done["run_id"]) == ("turn_done", state["run_id"])
    assert (minicodex_client.ledger.session_state["run_counter"], minicodex_client.ledger.session_state.get("active_run_id")) == (
        1,
        None,
    )


@pytest.mark.requirement("minicodex:run:turn-done", "minicodex:run:one-output-a-call")
async def test_a_run_with_tool_outputs_ends_without_turn_done(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.run("read README.md\nlist .")
    told = drop_deltas(minicodex_client.frames)
    assert told == [
        *("starting", "user_text", "running"),
        *("tool_call", "function_call_output", "tool_call", "function_call_output"),
        "finished",
    ]
    calls = [item for item in minicodex_client.ledger.transcript if item["type"] == "tool_call"]
    outputs = [item for item in minicodex_client.ledger.transcript if item["type"] == "function_call_output"]
    assert [call["name"] for call in calls] == ["read_file", "list_dir"]
    assert [call["call_id"] for call in calls] == [output["call_id"] for output in outputs]
    assert "# A workspace" in get_result_text(outputs[0])


@pytest.mark.requirement("minicodex:run:items", "minicodex:events:monotonic", "minicodex:events:one-run")
async def test_every_event_names_its_run_and_its_place(minicodex_client: MiniCodexClient) -> None:
    first = await minicodex_client.run("think: hm\nsay: one\nread README.md")
    second = await minicodex_client.run("say: two")
    assert first["run_id"] != second["run_id"]
    told = [frame for frame in minicodex_client.frames if "event_id" in frame and frame["type"] != "snapshot"]
    assert {frame["type"] for frame in told} >= {
        *("user_text", "assistant_text", "tool_call", "function_call_output", "reasoning"),
        *("run_status", "turn_done"),
    }
    assert all(frame["ts"] for frame in told)
    ids = [frame["event_id"] for frame in told]
    assert ids == sorted(set(ids))
    runs = [frame["run_id"] for frame in told]
    assert runs == sorted(runs, key=[first["run_id"], second["run_id"]].index)


@pytest.mark.requirement("minicodex:run:failure")
async def test_a_run_that_fails_says_why_and_ends_as_error(start_scripted_session: Play) -> None:
    mini = await start_scripted_session(script.ScriptedRefusal(401, "no such key"), script.reply_text("better"))
    state = await mini.run("go")
    assert state["status"] == "error"
    told = drop_deltas(mini.frames)
    assert told[:3] == ["starting", "user_text", "running"]
    assert told[-2:] == ["error", "turn_done"]
    assert len([frame for frame in mini.frames if frame["type"] == "error"]) == 1
    assert mini.ledger.session_state["active_run_id"] is None
    assert (await mini.run("again"))["status"] == "finished"
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:matrix:abort", "minicodex:abort:order")
async def test_an_abort_in_the_middle_of_a_stream_ends_as_finished_after_aborting_and_the_error(
    connect_minicodex: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    mini = await connect_minicodex(start_daemon(demo_delay_ms=2), cwd=workspace)
    await mini.send_hello()
    await mini.execute("send", text="count 100000")
    for _ in range(20):
        await mini.next_of_type("assistant_text")
    await mini.execute("abort", run_id=mini.ledger.session_state["active_run_id"])
    assert (await mini.wait_for_end())["status"] == "finished"
    told = [word for word in summarise_events(mini.frames) if word != "reasoning"]
    aborting = told.index("aborting")
    assert told[:aborting] == ["starting", "user_text", "running", "assistant_text"]
    assert [word for word in told[aborting:] if word != "assistant_text"] == ["aborting", "ABORTED", "finished", "turn_done"]
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()
    assert (await mini.run("say: and on"))["status"] == "finished"


@pytest.mark.requirement("minicodex:abort:open-calls")
async def test_an_abort_while_an_approval_waits_gives_every_call_its_output_first(
    minicodex_client: MiniCodexClient, workspace: Path
) -> None:
    await minicodex_client.execute("send", text="run: touch ran")
    pending = await minicodex_client.next_of_type("approval_pending")
    await minicodex_client.wait_for_status("awaiting_approval")
    await minicodex_client.execute("abort")
    await minicodex_client.wait_for_end()
    told = drop_deltas(minicodex_client.frames)
    assert told[told.index("aborting") :] == ["aborting", *told[told.index("aborting") + 1 : -2], "ABORTED", "finished"]
    outputs = [item for item in minicodex_client.ledger.transcript if item["type"] == "function_call_output"]
    assert [(output["call_id"], output["result"]["isError"]) for output in outputs] == [(pending["call_id"], True)]
    assert told.index("function_call_output") < told.index("finished")
    assert minicodex_client.ledger.run_state is not None
    assert minicodex_client.ledger.run_state["pending_approvals"] == []
    assert not (workspace / "ran").exists()
    assert await minicodex_client.expect_error("approve", call_id=pending["call_id"]) == "APPROVAL_CONFLICT"


@pytest.mark.requirement("minicodex:abort:open-calls")
async def test_an_abort_while_tools_run_gives_every_call_its_output_first(start_scripted_session: Play, workspace: Path) -> None:
    calls = tuple(script.CallStep("run", {"command": f"echo on > began{n}; sleep 600"}) for n in range(2))
    mini = await start_scripted_session(script.ScriptedReply(calls), script.reply_text("never"), policy="yolo")
    await mini.execute("send", text="go")
    await mini.next_of_type("tool_call")
    await mini.execute("abort")
    assert (await mini.wait_for_end())["status"] == "finished"
    called = [item["call_id"] for item in mini.ledger.transcript if item["type"] == "tool_call"]
    outputs = {i["call_id"]: i["result"]["isError"] for i in mini.ledger.transcript if i["type"] == "function_call_output"}
    assert called
    assert outputs == dict.fromkeys(called, True)
    told = drop_deltas(mini.frames)
    assert told[-2:] == ["ABORTED", "finished"]
    assert max(place for place, word in enumerate(told) if word == "function_call_output") < told.index("ABORTED")
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:abort:stale", "minicodex:abort:not-running", "minicodex:errors:no-state-change")
async def test_only_the_active_run_can_be_aborted_by_its_id(minicodex_client: MiniCodexClient) -> None:
    earlier = await minicodex_client.run("say: one")
    assert await minicodex_client.expect_error("abort") == "NOT_RUNNING"
    assert await minicodex_client.expect_error("abort", run_id=earlier["run_id"]) == "NOT_RUNNING"
    await minicodex_client.execute("send", text="run: echo hi")
    await minicodex_client.wait_for_status("awaiting_approval")
    before = await minicodex_client.request_snapshot()
    for run_id in (earlier["run_id"], UUID):
        assert await minicodex_client.expect_error("abort", run_id=run_id) == "STALE_RUN_ID"
    assert await minicodex_client.request_snapshot() == before
    await minicodex_client.execute("abort", run_id=before["session_state"]["active_run_id"].upper())
    await minicodex_client.wait_for_end()


@pytest.mark.requirement("minicodex:run:busy", "minicodex:errors:no-state-change")
async def test_a_second_message_while_a_run_is_active_is_refused_as_busy(
    minicodex_client: MiniCodexClient, second_client: MiniCodexClient
) -> None:
    await minicodex_client.execute("send", text="run: echo hi")
    await minicodex_client.wait_for_status("awaiting_approval")
    await second_client.wait_for_status("awaiting_approval")
    before = await minicodex_client.request_snapshot()
    for client in (minicodex_client, second_client):
        assert await client.expect_error("send", text="say: no") == "BUSY"
        assert await client.expect_error("send", text="say: no", client_msg_id="fresh") == "BUSY"
        assert await client.request_snapshot() == before
    await minicodex_client.execute("abort")
    await minicodex_client.wait_for_end()


@pytest.mark.requirement("minicodex:send:idempotent", "minicodex:matrix:dedupe")
async def test_a_message_with_the_same_id_is_accepted_and_ignored_while_the_run_is_active_and_after(
    minicodex_client: MiniCodexClient, second_client: MiniCodexClient
) -> None:
    await minicodex_client.execute("send", text="run: echo hi", client_msg_id="m1")
    await minicodex_client.wait_for_status("awaiting_approval")
    await second_client.wait_for_status("awaiting_approval")
    before = await minicodex_client.request_snapshot()
    for client in (minicodex_client, second_client):
        await client.execute("send", text="run: echo hi", client_msg_id="m1")
        assert await client.request_snapshot() == before
    await minicodex_client.execute("deny", call_id=before["run_state"]["pending_approvals"][0]["call_id"])
    await minicodex_client.wait_for_end()
    after = await minicodex_client.request_snapshot()
    await minicodex_client.execute("send", text="run: echo hi", client_msg_id="m1")
    await second_client.execute("send", text="run: echo hi", client_msg_id="m1")
    assert await minicodex_client.request_snapshot() == after
    await minicodex_client.run("say: new", client_msg_id="m2")
    assert minicodex_client.ledger.session_state["run_counter"] == 2


@pytest.mark.requirement("minicodex:send:another-text", "minicodex:errors:no-state-change")
async def test_another_text_under_the_id_of_an_earlier_message_is_refused_and_not_lost_silently(
    minicodex_client: MiniCodexClient,
) -> None:
    await minicodex_client.run("say: first", client_msg_id="m1")
    before = await minicodex_client.request_snapshot()
    assert await minicodex_client.expect_error("send", text="say: second", client_msg_id="m1") == "BAD_ARGUMENT"
    await minicodex_client.execute("send", text="say: first", client_msg_id="m1")
    assert await minicodex_client.request_snapshot() == before
    await minicodex_client.run("say: second", client_msg_id="m2")


@pytest.mark.requirement("minicodex:run:busy-names-the-run")
async def test_busy_names_the_run_as_this_protocol_knows_it(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.execute("send", text="run: echo hi")
    await minicodex_client.wait_for_status("awaiting_approval")
    answer = await minicodex_client.request("send", text="say: no")
    assert (answer["code"], answer["message"]) == (
        "BUSY",
        f"A run is already active in this session: {minicodex_client.ledger.session_state['active_run_id']}",
    )
    await minicodex_client.execute("abort")
    await minicodex_client.wait_for_end()


@pytest.mark.requirement("minicodex:run:reasoning")
async def test_reasoning_and_text_are_told_apart(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.run("think: let me see\nsay: it is moss")
    reasoning = "".join(item["text"] for item in minicodex_client.ledger.transcript if item["type"] == "reasoning")
    assert minicodex_client.ledger.assistant_text == "it is moss"
    assert "let me see" in reasoning
    assert "moss" not in reasoning
