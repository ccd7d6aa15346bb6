"""Runs: statuses in their order, what is told between them, how they end, and being aborted."""

from pathlib import Path

import pytest
from tests.conformance.minicodex.conftest import Enter, Play
from tests.conformance.minicodex.shorthand import in_short, result_text, without_pieces
from tests.conftest import StartDaemon

from switchtower.testing import model_server_script as script
from switchtower.testing.minicodex_client import MiniCodexClient

UUID = "01a1e2c0-bc06-e159-79bb-c9dbe2266e69"


@pytest.mark.requirement("minicodex:matrix:text-only", "minicodex:run:order", "minicodex:run:turn-done", "minicodex:run:accepted")
async def test_a_run_of_text_only_ends_with_finished_and_turn_done(mini: MiniCodexClient) -> None:
    state = await mini.run("say: hello there")
    assert in_short(mini.frames) == ["starting", "user_text", "running", "reasoning", "assistant_text", "finished", "turn_done"]
    assert mini.ledger.said == "hello there"
    accepted = next(place for place, frame in enumerate(mini.frames) if frame["type"] == "accepted")
    starting = next(place for place, frame in enumerate(mini.frames) if frame["type"] == "run_status")
    assert accepted < starting
    assert state["finished_at"] >= state["started_at"]
    done = mini.frames[-2]
    assert (done["type"], done["run_id"]) == ("turn_done", state["run_id"])
    assert (mini.ledger.session_state["run_counter"], mini.ledger.session_state.get("active_run_id")) == (1, None)


@pytest.mark.requirement("minicodex:run:turn-done", "minicodex:run:one-output-a-call")
async def test_a_run_with_tool_outputs_ends_without_turn_done(mini: MiniCodexClient) -> None:
    await mini.run("read README.md\nlist .")
    told = without_pieces(mini.frames)
    assert told == [
        *("starting", "user_text", "running"),
        *("tool_call", "function_call_output", "tool_call", "function_call_output"),
        "finished",
    ]
    calls = [item for item in mini.ledger.transcript if item["type"] == "tool_call"]
    outputs = [item for item in mini.ledger.transcript if item["type"] == "function_call_output"]
    assert [call["name"] for call in calls] == ["read_file", "list_dir"]
    assert [call["call_id"] for call in calls] == [output["call_id"] for output in outputs]
    assert "# A workspace" in result_text(outputs[0])


@pytest.mark.requirement("minicodex:run:items", "minicodex:events:monotonic", "minicodex:events:one-run")
async def test_every_event_names_its_run_and_its_place(mini: MiniCodexClient) -> None:
    first = await mini.run("think: hm\nsay: one\nread README.md")
    second = await mini.run("say: two")
    assert first["run_id"] != second["run_id"]
    told = [frame for frame in mini.frames if "event_id" in frame and frame["type"] != "snapshot"]
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
async def test_a_run_that_fails_says_why_and_ends_as_error(play: Play) -> None:
    mini = await play(script.Refusal(401, "no such key"), script.say("better"))
    state = await mini.run("go")
    assert state["status"] == "error"
    told = without_pieces(mini.frames)
    assert told[:3] == ["starting", "user_text", "running"]
    assert told[-2:] == ["error", "turn_done"]
    assert len([frame for frame in mini.frames if frame["type"] == "error"]) == 1
    assert mini.ledger.session_state["active_run_id"] is None
    assert (await mini.run("again"))["status"] == "finished"
    assert await mini.snapshot() == mini.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:matrix:abort", "minicodex:abort:order")
async def test_an_abort_in_the_middle_of_a_stream_ends_as_finished_after_aborting_and_the_error(
    enter: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    mini = await enter(start_daemon(demo_delay_ms=2), cwd=workspace)
    await mini.hello()
    await mini.do("send", text="count 100000")
    for _ in range(20):
        await mini.next_of("assistant_text")
    await mini.do("abort", run_id=mini.ledger.session_state["active_run_id"])
    assert (await mini.ended())["status"] == "finished"
    told = [word for word in in_short(mini.frames) if word != "reasoning"]
    aborting = told.index("aborting")
    assert told[:aborting] == ["starting", "user_text", "running", "assistant_text"]
    assert [word for word in told[aborting:] if word != "assistant_text"] == ["aborting", "ABORTED", "finished", "turn_done"]
    assert await mini.snapshot() == mini.ledger.as_snapshot()
    assert (await mini.run("say: and on"))["status"] == "finished"


@pytest.mark.requirement("minicodex:abort:open-calls")
async def test_an_abort_while_an_approval_waits_gives_every_call_its_output_first(mini: MiniCodexClient, workspace: Path) -> None:
    await mini.do("send", text="run: touch ran")
    pending = await mini.next_of("approval_pending")
    await mini.status("awaiting_approval")
    await mini.do("abort")
    await mini.ended()
    told = without_pieces(mini.frames)
    assert told[told.index("aborting") :] == ["aborting", *told[told.index("aborting") + 1 : -2], "ABORTED", "finished"]
    outputs = [item for item in mini.ledger.transcript if item["type"] == "function_call_output"]
    assert [(output["call_id"], output["result"]["isError"]) for output in outputs] == [(pending["call_id"], True)]
    assert told.index("function_call_output") < told.index("finished")
    assert mini.ledger.run_state is not None
    assert mini.ledger.run_state["pending_approvals"] == []
    assert not (workspace / "ran").exists()
    assert await mini.refused("approve", call_id=pending["call_id"]) == "APPROVAL_CONFLICT"


@pytest.mark.requirement("minicodex:abort:open-calls")
async def test_an_abort_while_tools_run_gives_every_call_its_output_first(play: Play, workspace: Path) -> None:
    calls = tuple(script.Call("run", {"command": f"echo on > began{n}; sleep 600"}) for n in range(2))
    mini = await play(script.Reply(calls), script.say("never"), policy="yolo")
    await mini.do("send", text="go")
    await mini.next_of("tool_call")
    await mini.do("abort")
    assert (await mini.ended())["status"] == "finished"
    called = [item["call_id"] for item in mini.ledger.transcript if item["type"] == "tool_call"]
    outputs = {i["call_id"]: i["result"]["isError"] for i in mini.ledger.transcript if i["type"] == "function_call_output"}
    assert called
    assert outputs == dict.fromkeys(called, True)
    told = without_pieces(mini.frames)
    assert told[-2:] == ["ABORTED", "finished"]
    assert max(place for place, word in enumerate(told) if word == "function_call_output") < told.index("ABORTED")
    assert await mini.snapshot() == mini.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:abort:stale", "minicodex:abort:not-running", "minicodex:errors:no-state-change")
async def test_only_the_active_run_can_be_aborted_by_its_id(mini: MiniCodexClient) -> None:
    earlier = await mini.run("say: one")
    assert await mini.refused("abort") == "NOT_RUNNING"
    assert await mini.refused("abort", run_id=earlier["run_id"]) == "NOT_RUNNING"
    await mini.do("send", text="run: echo hi")
    await mini.status("awaiting_approval")
    before = await mini.snapshot()
    for run_id in (earlier["run_id"], UUID):
        assert await mini.refused("abort", run_id=run_id) == "STALE_RUN_ID"
    assert await mini.snapshot() == before
    await mini.do("abort", run_id=before["session_state"]["active_run_id"].upper())
    await mini.ended()


@pytest.mark.requirement("minicodex:run:busy", "minicodex:errors:no-state-change")
async def test_a_second_message_while_a_run_is_active_is_refused_as_busy(mini: MiniCodexClient, other: MiniCodexClient) -> None:
    await mini.do("send", text="run: echo hi")
    await mini.status("awaiting_approval")
    await other.status("awaiting_approval")
    before = await mini.snapshot()
    for client in (mini, other):
        assert await client.refused("send", text="say: no") == "BUSY"
        assert await client.refused("send", text="say: no", client_msg_id="fresh") == "BUSY"
        assert await client.snapshot() == before
    await mini.do("abort")
    await mini.ended()


@pytest.mark.requirement("minicodex:send:idempotent", "minicodex:matrix:dedupe")
async def test_a_message_with_the_same_id_is_accepted_and_ignored_while_the_run_is_active_and_after(
    mini: MiniCodexClient, other: MiniCodexClient
) -> None:
    await mini.do("send", text="run: echo hi", client_msg_id="m1")
    await mini.status("awaiting_approval")
    await other.status("awaiting_approval")
    before = await mini.snapshot()
    for client in (mini, other):
        await client.do("send", text="run: echo hi", client_msg_id="m1")
        assert await client.snapshot() == before
    await mini.do("deny", call_id=before["run_state"]["pending_approvals"][0]["call_id"])
    await mini.ended()
    after = await mini.snapshot()
    await mini.do("send", text="run: echo hi", client_msg_id="m1")
    await other.do("send", text="run: echo hi", client_msg_id="m1")
    assert await mini.snapshot() == after
    await mini.run("say: new", client_msg_id="m2")
    assert mini.ledger.session_state["run_counter"] == 2


@pytest.mark.requirement("minicodex:send:another-text", "minicodex:errors:no-state-change")
async def test_another_text_under_the_id_of_an_earlier_message_is_refused_and_not_lost_silently(mini: MiniCodexClient) -> None:
    await mini.run("say: first", client_msg_id="m1")
    before = await mini.snapshot()
    assert await mini.refused("send", text="say: second", client_msg_id="m1") == "BAD_ARGUMENT"
    await mini.do("send", text="say: first", client_msg_id="m1")
    assert await mini.snapshot() == before
    await mini.run("say: second", client_msg_id="m2")


@pytest.mark.requirement("minicodex:run:busy-names-the-run")
async def test_busy_names_the_run_as_this_protocol_knows_it(mini: MiniCodexClient) -> None:
    await mini.do("send", text="run: echo hi")
    await mini.status("awaiting_approval")
    answer = await mini.ask("send", text="say: no")
    assert (answer["code"], answer["message"]) == (
        "BUSY",
        f"A run is already active in this session: {mini.ledger.session_state['active_run_id']}",
    )
    await mini.do("abort")
    await mini.ended()


@pytest.mark.requirement("minicodex:run:reasoning")
async def test_reasoning_and_text_are_told_apart(mini: MiniCodexClient) -> None:
    await mini.run("think: let me see\nsay: it is moss")
    reasoning = "".join(item["text"] for item in mini.ledger.transcript if item["type"] == "reasoning")
    assert mini.ledger.said == "it is moss"
    assert "let me see" in reasoning
    assert "moss" not in reasoning
