"""Lanes: one order within a session, none between sessions, and nobody who waits for a run that only takes its time."""

import itertools
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon

QUESTION = "ask: ready? | yes | no"
"""An agent with this to do works until somebody answers."""


@pytest.mark.requirement("pi:lane:serial")
async def test_commands_of_a_session_run_in_the_order_they_came(pi: CheckedClient) -> None:
    session_id = await pi.session()
    ids = [pi.new_id() for _ in range(30)]
    await pi.say(
        *(
            {"type": "set_session_name", "id": id_, "sessionId": session_id, "name": f"name {number}"}
            for number, id_ in enumerate(ids)
        )
    )
    versions = [(await pi.response(id_))["sessionVersion"] for id_ in ids]
    assert versions == list(range(1, 31))
    started = [frame["data"]["commandId"] for frame in pi.frames if frame["type"] == "command_started"]
    assert [id_ for id_ in started if id_ in ids] == ids
    told = [(frame["type"], frame["data"]["commandId"]) for frame in pi.frames if frame["type"].startswith("command_")]
    for earlier, later in itertools.pairwise(ids):
        assert told.index(("command_finished", earlier)) < told.index(("command_started", later))
    assert (await pi.do("get_state", sessionId=session_id))["sessionName"] == "name 29"


@pytest.mark.requirement("pi:lane:serial")
async def test_a_read_sees_what_was_written_before_it(pi: CheckedClient) -> None:
    session_id = await pi.session()
    write, read = pi.new_id(), pi.new_id()
    await pi.say(
        {"type": "set_session_name", "id": write, "sessionId": session_id, "name": "written"},
        {"type": "get_state", "id": read, "sessionId": session_id},
    )
    assert (await pi.response(read))["data"]["sessionName"] == "written"
    assert (await pi.response(read))["sessionVersion"] == 1


@pytest.mark.requirement("pi:lane:serial")
async def test_prompts_of_a_session_run_one_after_the_other(pi: CheckedClient) -> None:
    session_id = await pi.session()
    ids = [await pi.begin("prompt", sessionId=session_id, message=f"say: {word}") for word in ("one", "two", "three")]
    for id_ in ids:
        assert (await pi.response(id_))["success"]
    messages = (await pi.do("get_messages", sessionId=session_id))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    asked = [message["content"][0]["text"] for message in messages if message["role"] == "user"]
    assert asked == ["say: one", "say: two", "say: three"]


@pytest.mark.requirement("pi:lane:independent")
async def test_sessions_and_the_server_do_not_wait_for_each_other(pi: CheckedClient) -> None:
    busy, other = await pi.session(), await pi.session()
    await pi.running(busy, QUESTION)
    waiting = await pi.begin("prompt", sessionId=busy, message="say: later")
    assert (await pi.ask("prompt", sessionId=other, message="say: now"))["success"]
    assert (await pi.ask("list_sessions"))["success"]
    assert pi.phases(waiting)[-1] != "response"
    await pi.do("abort", sessionId=busy)
    assert (await pi.response(waiting))["success"]


@pytest.mark.requirement("pi:lane:key")
async def test_a_server_command_that_names_a_session_waits_in_that_sessions_lane(pi: CheckedClient) -> None:
    session_id = await pi.session()
    await pi.running(session_id, QUESTION)
    deletion = await pi.begin("delete_session", sessionId=session_id)
    await pi.quiet()
    assert "response" not in pi.phases(deletion)
    await pi.do("abort", sessionId=session_id)
    assert (await pi.response(deletion))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
async def test_a_running_prompt_delays_no_read_no_control_and_nobody_who_joins(
    pi: CheckedClient, pid: PiDaemon, join: Join, workspace: Path
) -> None:
    session_id = await pi.session(workspace)
    prompt = await pi.running(session_id, QUESTION)
    question = await pi.next_event("extension_ui_request")
    reads = ("get_state", "get_messages", "get_tools", "get_session_stats", "get_context_usage", "get_last_assistant_text")
    for read in (*reads, "get_commands", "get_available_models", "get_fork_messages", "list_session_files"):
        assert (await pi.ask(read, sessionId=session_id))["success"]
    assert (await pi.do("get_state", sessionId=session_id))["isStreaming"] is True
    joined = await join(pid)
    assert (await joined.do("switch_session", sessionId=session_id))["sessionInfo"]["isStreaming"] is True
    assert (await pi.ask("steer", sessionId=session_id, message="say: steered"))["success"]
    assert (await pi.ask("follow_up", sessionId=session_id, message="say: followed"))["success"]
    assert (await pi.ask("prompt", sessionId=session_id, message="say: x", streamingBehavior="followUp"))["success"]
    assert "response" not in pi.phases(prompt)
    answer = {"method": "select", "value": "yes"}
    response = await joined.ask("extension_ui_response", sessionId=session_id, requestId=question["requestId"], response=answer)
    assert response["success"]
    assert (await pi.response(prompt))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
async def test_abort_and_reads_pass_a_prompt_that_waits_for_its_turn(pi: CheckedClient) -> None:
    session_id = await pi.session()
    first = await pi.running(session_id, QUESTION)
    second = await pi.begin("prompt", sessionId=session_id, message="say: second")
    await pi.told(second, "command_accepted")
    assert (await pi.ask("get_state", sessionId=session_id))["success"]
    assert (await pi.ask("abort", sessionId=session_id))["success"]
    assert (await pi.response(first))["success"]
    assert (await pi.response(second))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
@pytest.mark.parametrize("waits", [{"type": "prompt", "message": "say: second"}, {"type": "new_session"}])
async def test_an_abort_passes_what_waits_also_when_both_came_in_one_write(pi: CheckedClient, waits: dict[str, str]) -> None:
    session_id = await pi.session()
    first = await pi.running(session_id, QUESTION)
    second, abort = pi.new_id(), pi.new_id()
    await pi.say({**waits, "id": second, "sessionId": session_id}, {"type": "abort", "id": abort, "sessionId": session_id})
    for id_ in (abort, first, second):
        assert (await pi.response(id_))["success"]
