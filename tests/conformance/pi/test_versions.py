"""`sessionVersion`: 0 at first, one more with every success that changes something, and `ifSessionVersion` to hold it to."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon


@pytest.mark.requirement("pi:session-version:initial")
async def test_a_new_session_begins_at_version_nought(pi_client: CheckedClient) -> None:
    assert (await pi_client.request("create_session"))["sessionVersion"] == 0


@pytest.mark.requirement("pi:session-version:reads")
async def test_reading_changes_no_version(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    reads = [
        "get_state",
        "get_messages",
        "get_available_models",
        "get_commands",
        "get_skills",
        "get_tools",
        "list_session_files",
        "get_session_stats",
        "get_fork_messages",
        "get_last_assistant_text",
        "get_context_usage",
        "switch_session",
    ]
    for read in reads:
        assert (await pi_client.request(read, sessionId=session_id))["sessionVersion"] == 0
    for server in ("list_sessions", "get_metrics", "list_stored_sessions"):
        await pi_client.execute(server)
        await pi_client.execute(server, sessionId=session_id)
    assert await pi_client.get_version(session_id) == 0


@pytest.mark.requirement("pi:session-version:mutations")
async def test_every_success_that_changes_something_adds_one(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    expected = 0

    async def mutate(type_: str, **fields: object) -> None:
        nonlocal expected
        expected += 1
        response = await pi_client.request(type_, sessionId=session_id, **fields)
        assert response["success"], response
        assert response["sessionVersion"] == expected, type_
        assert await pi_client.get_version(session_id) == expected

    await mutate("prompt", message="say: hello")
    await mutate("set_session_name", name="n")
    await mutate("set_model", provider="demo", modelId="demo")
    await mutate("cycle_model")
    await mutate("set_thinking_level", level="low")
    await mutate("cycle_thinking_level")
    await mutate("set_auto_compaction", enabled=False)
    await mutate("set_auto_retry", enabled=False)
    await mutate("abort")
    await mutate("abort_compaction")
    await mutate("abort_retry")
    await mutate("abort_bash")
    await mutate("bash", command="true")
    await mutate("export_html", outputPath="page.html")
    entry = (await pi_client.execute("get_fork_messages", sessionId=session_id))["messages"][0]["entryId"]
    await mutate("fork", entryId=entry)
    await mutate("steer", message="say: steered")
    await mutate("follow_up", message="say: followed")
    await mutate("new_session")
    path = (await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]
    await mutate("switch_session_file", sessionPath=path)


@pytest.mark.requirement("pi:session-version:mutations")
async def test_an_answer_to_a_question_changes_no_version(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, "ask: ready? | yes | no")
    question = await pi_client.next_event("extension_ui_request")
    answer = {"method": "select", "value": "yes"}
    response = await pi_client.request(
        "extension_ui_response", sessionId=session_id, requestId=question["requestId"], response=answer
    )
    assert (response["success"], response["sessionVersion"]) == (True, 0)
    assert (await pi_client.wait_for_response(prompt))["sessionVersion"] == 1


@pytest.mark.requirement("pi:session-version:failures")
async def test_a_failure_changes_no_version(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.expect_refusal("set_model", sessionId=session_id, provider="no", modelId="no")
    await pi_client.expect_refusal("switch_session_file", sessionId=session_id, sessionPath="/etc/passwd")
    await pi_client.expect_refusal("fork", sessionId=session_id, entryId="nothing")
    await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="n", ifSessionVersion=7)
    assert await pi_client.get_version(session_id) == 0


@pytest.mark.requirement("pi:if-version:mismatch", "pi:error:version-mismatch")
async def test_a_write_for_another_version_fails(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("set_session_name", sessionId=session_id, name="one")
    for given in (0, 2):
        error = await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="two", ifSessionVersion=given)
        assert error == f"Session version mismatch: expected {given}, got 1"
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "one"


@pytest.mark.requirement("pi:if-version:match")
async def test_a_write_for_this_very_version_proceeds(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    for version in range(3):
        response = await pi_client.request("set_session_name", sessionId=session_id, name=f"n{version}", ifSessionVersion=version)
        assert response["sessionVersion"] == version + 1


@pytest.mark.requirement("pi:if-version:missing-session")
async def test_a_version_of_a_session_that_is_not_there_fails(pi_client: CheckedClient) -> None:
    error = await pi_client.expect_refusal("set_session_name", sessionId="nobody", name="n", ifSessionVersion=0)
    assert error == "Session nobody not found"
    assert await pi_client.expect_refusal("get_state", sessionId="nobody", ifSessionVersion=0) == "Session nobody not found"
    gone = await pi_client.start_session()
    await pi_client.execute("delete_session", sessionId=gone)
    assert await pi_client.expect_refusal("get_state", sessionId=gone, ifSessionVersion=0) == f"Session {gone} not found"


@pytest.mark.requirement("pi:if-version:match")
async def test_of_writers_that_race_for_one_version_one_wins(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    session_id = await pi_client.start_session()
    rival = await connect_pi(pi_daemon)
    ids = [
        await writer.begin("set_session_name", sessionId=session_id, name=f"n{number}", ifSessionVersion=0)
        for number, writer in enumerate((pi_client, rival, pi_client, rival))
    ]
    outcomes = [await (pi_client, rival)[number % 2].wait_for_response(id_) for number, id_ in enumerate(ids)]
    assert [outcome["success"] for outcome in outcomes].count(True) == 1
    assert await pi_client.get_version(session_id) == 1


@pytest.mark.requirement("pi:session-version:deleted")
async def test_an_unloaded_session_has_no_version_and_a_loaded_one_begins_anew(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("set_session_name", sessionId=session_id, name="n")
    path = (await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]
    await pi_client.execute("delete_session", sessionId=session_id)
    assert await pi_client.expect_refusal("get_state", sessionId=session_id) == f"Session {session_id} not found"
    assert (await pi_client.request("load_session", sessionPath=path))["sessionVersion"] == 0
    assert await pi_client.get_version(session_id) == 0


@pytest.mark.requirement("pi:session-version:monotonic")
async def test_what_is_told_of_a_sessions_version_never_falls(pi_client: CheckedClient) -> None:
    session_id, ids = await pi_client.start_session(), [pi_client.make_id() for _ in range(40)]
    await pi_client.send_frames(
        *(
            {"type": "get_state", "id": id_, "sessionId": session_id}
            if number % 2
            else {"type": "cycle_thinking_level", "id": id_, "sessionId": session_id}
            for number, id_ in enumerate(ids)
        )
    )
    for id_ in ids:
        await pi_client.wait_for_response(id_)
    told = [frame["sessionVersion"] for frame in pi_client.frames if frame["type"] == "response" and frame["id"] in ids]
    assert told == sorted(told)
    assert told[-1] == 20
