"""Lanes: one order within a session, none between sessions, and nobody who waits for a run that only takes its time."""

import itertools
from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon

QUESTION = "ask: ready? | yes | no"
"""An agent with this to do works until somebody answers."""


@pytest.mark.requirement("pi:lane:serial")
async def test_commands_of_a_session_run_in_the_order_they_came(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    ids = [pi_client.make_id() for _ in range(30)]
    await pi_client.send_frames(
        *(
            {"type": "set_session_name", "id": id_, "sessionId": session_id, "name": f"name {number}"}
            for number, id_ in enumerate(ids)
        )
    )
    versions = [(await pi_client.wait_for_response(id_))["sessionVersion"] for id_ in ids]
    assert versions == list(range(1, 31))
    started = [frame["data"]["commandId"] for frame in pi_client.frames if frame["type"] == "command_started"]
    assert [id_ for id_ in started if id_ in ids] == ids
    told = [(frame["type"], frame["data"]["commandId"]) for frame in pi_client.frames if frame["type"].startswith("command_")]
    for earlier, later in itertools.pairwise(ids):
        assert told.index(("command_finished", earlier)) < told.index(("command_started", later))
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "name 29"


@pytest.mark.requirement("pi:lane:serial")
async def test_a_read_sees_what_was_written_before_it(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    write, read = pi_client.make_id(), pi_client.make_id()
    await pi_client.send_frames(
        {"type": "set_session_name", "id": write, "sessionId": session_id, "name": "written"},
        {"type": "get_state", "id": read, "sessionId": session_id},
    )
    assert (await pi_client.wait_for_response(read))["data"]["sessionName"] == "written"
    assert (await pi_client.wait_for_response(read))["sessionVersion"] == 1


@pytest.mark.requirement("pi:lane:serial")
async def test_prompts_of_a_session_run_one_after_the_other(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    ids = [await pi_client.begin("prompt", sessionId=session_id, message=f"say: {word}") for word in ("one", "two", "three")]
    for id_ in ids:
        assert (await pi_client.wait_for_response(id_))["success"]
    messages = (await pi_client.execute("get_messages", sessionId=session_id))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    asked = [message["content"][0]["text"] for message in messages if message["role"] == "user"]
    assert asked == ["say: one", "say: two", "say: three"]


@pytest.mark.requirement("pi:lane:independent")
async def test_sessions_and_the_server_do_not_wait_for_each_other(pi_client: CheckedClient) -> None:
    busy, other = await pi_client.start_session(), await pi_client.start_session()
    await pi_client.start_prompt(busy, QUESTION)
    waiting = await pi_client.begin("prompt", sessionId=busy, message="say: later")
    assert (await pi_client.request("prompt", sessionId=other, message="say: now"))["success"]
    assert (await pi_client.request("list_sessions"))["success"]
    assert pi_client.list_phases(waiting)[-1] != "response"
    await pi_client.execute("abort", sessionId=busy)
    assert (await pi_client.wait_for_response(waiting))["success"]


@pytest.mark.requirement("pi:lane:key")
async def test_a_server_command_that_names_a_session_waits_in_that_sessions_lane(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.start_prompt(session_id, QUESTION)
    deletion = await pi_client.begin("delete_session", sessionId=session_id)
    await pi_client.drain()
    assert "response" not in pi_client.list_phases(deletion)
    await pi_client.execute("abort", sessionId=session_id)
    assert (await pi_client.wait_for_response(deletion))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
async def test_a_running_prompt_delays_no_read_no_control_and_nobody_who_joins(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join, workspace: Path
) -> None:
    session_id = await pi_client.start_session(workspace)
    prompt = await pi_client.start_prompt(session_id, QUESTION)
    question = await pi_client.next_event("extension_ui_request")
    reads = ("get_state", "get_messages", "get_tools", "get_session_stats", "get_context_usage", "get_last_assistant_text")
    for read in (*reads, "get_commands", "get_available_models", "get_fork_messages", "list_session_files"):
        assert (await pi_client.request(read, sessionId=session_id))["success"]
    assert (await pi_client.execute("get_state", sessionId=session_id))["isStreaming"] is True
    joined = await connect_pi(pi_daemon)
    assert (await joined.execute("switch_session", sessionId=session_id))["sessionInfo"]["isStreaming"] is True
    assert (await pi_client.request("steer", sessionId=session_id, message="say: steered"))["success"]
    assert (await pi_client.request("follow_up", sessionId=session_id, message="say: followed"))["success"]
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: x", streamingBehavior="followUp"))["success"]
    assert "response" not in pi_client.list_phases(prompt)
    answer = {"method": "select", "value": "yes"}
    response = await joined.request(
        "extension_ui_response", sessionId=session_id, requestId=question["requestId"], response=answer
    )
    assert response["success"]
    assert (await pi_client.wait_for_response(prompt))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
async def test_abort_and_reads_pass_a_prompt_that_waits_for_its_turn(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    first = await pi_client.start_prompt(session_id, QUESTION)
    second = await pi_client.begin("prompt", sessionId=session_id, message="say: second")
    await pi_client.get_lifecycle_data(second, "command_accepted")
    assert (await pi_client.request("get_state", sessionId=session_id))["success"]
    assert (await pi_client.request("abort", sessionId=session_id))["success"]
    assert (await pi_client.wait_for_response(first))["success"]
    assert (await pi_client.wait_for_response(second))["success"]


@pytest.mark.requirement("pi:lane:control-passes")
@pytest.mark.parametrize("waits", [{"type": "prompt", "message": "say: second"}, {"type": "new_session"}])
async def test_an_abort_passes_what_waits_also_when_both_came_in_one_write(
    pi_client: CheckedClient, waits: dict[str, str]
) -> None:
    session_id = await pi_client.start_session()
    first = await pi_client.start_prompt(session_id, QUESTION)
    second, abort = pi_client.make_id(), pi_client.make_id()
    await pi_client.send_frames(
        {**waits, "id": second, "sessionId": session_id}, {"type": "abort", "id": abort, "sessionId": session_id}
    )
    for id_ in (abort, first, second):
        assert (await pi_client.wait_for_response(id_))["success"]
