"""`dependsOn`: after others, if they succeed; never a deadlock."""

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient

QUESTION = "ask: ready? | yes | no"


@pytest.mark.requirement("pi:depends:success")
async def test_a_command_may_depend_on_what_has_succeeded(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    first = (await pi_client.request("set_session_name", sessionId=session_id, name="one"))["id"]
    second = (await pi_client.request("list_sessions"))["id"]
    assert (await pi_client.request("set_session_name", sessionId=session_id, name="two", dependsOn=[first, second]))["success"]


@pytest.mark.requirement("pi:depends:waits")
async def test_a_command_waits_for_one_under_way_in_another_lane(pi_client: CheckedClient) -> None:
    busy, other = await pi_client.start_session(), await pi_client.start_session()
    prompt = await pi_client.start_prompt(busy, QUESTION)
    waiting = await pi_client.begin("set_session_name", sessionId=other, name="after", dependsOn=[prompt])
    await pi_client.get_lifecycle_data(waiting, "command_started")
    assert "sessionName" not in await pi_client.execute("get_state", sessionId=other)
    await pi_client.execute("abort", sessionId=busy)
    assert (await pi_client.wait_for_response(waiting))["success"]
    places = [pi_client.frames.index(await pi_client.wait_for_response(id_)) for id_ in (prompt, waiting)]
    assert places == sorted(places)


@pytest.mark.requirement("pi:depends:waits")
async def test_a_session_can_be_made_and_used_in_one_write(pi_client: CheckedClient) -> None:
    session_id, ids = f"made-{pi_client.make_id()}", [pi_client.make_id() for _ in range(3)]
    await pi_client.send_frames(
        {"type": "create_session", "id": ids[0], "sessionId": session_id},
        {"type": "set_session_name", "id": ids[1], "sessionId": session_id, "name": "n", "dependsOn": [ids[0]]},
        {"type": "prompt", "id": ids[2], "sessionId": session_id, "message": "say: hi", "dependsOn": ids[:2]},
    )
    outcomes = [await pi_client.wait_for_response(id_) for id_ in ids]
    assert [outcome["success"] for outcome in outcomes] == [True] * 3, outcomes


@pytest.mark.requirement("pi:depends:unknown", "pi:error:dependency")
async def test_an_unknown_dependency_fails_the_command(pi_client: CheckedClient) -> None:
    response = await pi_client.request("list_sessions", dependsOn=["nobody"])
    assert response["error"] == "Dependency 'nobody' is unknown"
    assert pi_client.list_phases(response["id"]) == ["command_accepted", "command_started", "command_finished", "response"]


@pytest.mark.requirement("pi:depends:failed", "pi:error:dependency")
async def test_a_dependency_that_failed_fails_the_command(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    failed = (await pi_client.request("get_state", sessionId="nobody"))["id"]
    error = await pi_client.expect_refusal("set_session_name", sessionId=session_id, name="n", dependsOn=[failed])
    assert error == f"Dependency '{failed}' failed: Session nobody not found"
    assert await pi_client.get_version(session_id) == 0


@pytest.mark.requirement("pi:depends:failed")
async def test_a_dependency_that_fails_later_fails_the_command_then_and_those_behind_it(pi_client: CheckedClient) -> None:
    busy, other = await pi_client.start_session(), await pi_client.start_session()
    await pi_client.start_prompt(busy, QUESTION)
    doomed = await pi_client.begin("switch_session_file", sessionId=busy, sessionPath="/etc/passwd")
    prompt = await pi_client.begin("prompt", sessionId=busy, message="say: x", ifSessionVersion=99)
    waiting = await pi_client.begin("set_session_name", sessionId=other, name="n", dependsOn=[prompt])
    chained = await pi_client.begin("list_sessions", dependsOn=[waiting])
    await pi_client.execute("abort", sessionId=busy)
    assert (await pi_client.wait_for_response(doomed))["success"] is False
    assert "Session version mismatch" in (await pi_client.wait_for_response(waiting))["error"]
    assert (await pi_client.wait_for_response(chained))["error"].startswith(f"Dependency '{waiting}' failed: ")


@pytest.mark.requirement("pi:depends:itself")
async def test_a_command_cannot_depend_on_itself(pi_client: CheckedClient) -> None:
    id_ = pi_client.make_id()
    assert await pi_client.expect_refusal("list_sessions", id=id_, dependsOn=[id_]) == f"Command '{id_}' cannot depend on itself"


@pytest.mark.requirement("pi:depends:same-lane")
async def test_a_dependency_behind_the_command_in_its_own_lane_fails_fast(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.start_prompt(session_id, QUESTION)
    await pi_client.begin("prompt", sessionId=session_id, message="say: head of the lane")
    behind = pi_client.make_id()
    stuck = await pi_client.begin("set_session_name", sessionId=session_id, name="stuck", dependsOn=[behind])
    await pi_client.begin("set_session_name", id=behind, sessionId=session_id, name="behind")
    await pi_client.execute("abort", sessionId=session_id)
    assert (await pi_client.wait_for_response(stuck))["error"] == (
        f"Dependency '{behind}' is queued in the same lane and cannot be awaited from this command"
    )
    assert (await pi_client.wait_for_response(behind))["success"]


@pytest.mark.requirement("pi:depends:timeout", "pi:error:dependency")
async def test_waiting_for_a_dependency_has_an_end(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_dependency_timeout=0.2))
    busy, other = await pi.start_session(), await pi.start_session()
    prompt = await pi.start_prompt(busy, QUESTION)
    waiting = await pi.begin("set_session_name", sessionId=other, name="n", dependsOn=[prompt])
    response = await pi.wait_for_response(waiting)
    assert response["error"] == f"Dependency '{prompt}' timed out after 200ms"
    assert "response" not in pi.list_phases(prompt)
    assert await pi.get_version(other) == 0
    await pi.execute("abort", sessionId=busy)
    pi.frames.clear()
    again = await pi.request("set_session_name", id=waiting, sessionId=other, name="n", dependsOn=[prompt])
    assert again == {**response, "replayed": True}


@pytest.mark.requirement("pi:depends:waits", "pi:lane:control-passes")
async def test_a_command_may_wait_for_a_run_of_its_own_session_and_an_abort_passes_it(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    prompt = await pi_client.start_prompt(session_id, QUESTION)
    after = await pi_client.begin("set_session_name", sessionId=session_id, name="after", dependsOn=[prompt])
    await pi_client.get_lifecycle_data(after, "command_started")
    assert "response" not in pi_client.list_phases(after)
    assert (await pi_client.request("abort", sessionId=session_id))["success"]
    assert (await pi_client.wait_for_response(after))["success"]
