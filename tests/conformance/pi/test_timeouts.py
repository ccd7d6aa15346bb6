"""A timeout is an outcome like any other: told, stored, replayed, and never unsaid. What it covered ends."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi

from switchtower import config

QUESTION = "ask: ready? | yes | no"


@pytest.mark.requirement("pi:timeout:outcome", "pi:timeout:replayed", "pi:timeout:not-overwritten", "pi:timeout:aborts")
async def test_a_timeout_is_stored_replayed_and_not_overwritten_and_its_work_ends(
    start_pi: StartPi, connect_pi: Join, workspace: Path
) -> None:
    pi = await connect_pi(start_pi(pi_command_timeout=3))
    session_id = await pi.start_session(workspace)
    command = "sleep 30; touch survived"
    id_ = await pi.begin("bash", sessionId=session_id, command=command)
    response = await pi.wait_for_response(id_)
    assert response == {
        "type": "response",
        "command": "bash",
        "success": False,
        "id": id_,
        "error": "Command 'bash' timed out after 3000ms",
        "timedOut": True,
    }
    finished = await pi.get_lifecycle_data(id_, "command_finished")
    assert (finished["success"], finished["error"]) == (False, response["error"])
    assert (await pi.next_event("bash_end"))["cancelled"] is True
    assert not (workspace / "survived").exists()
    pi.frames.clear()
    assert await pi.request("bash", id=id_, sessionId=session_id, command=command) == {**response, "replayed": True}
    assert pi.list_phases(id_) == ["command_accepted", "command_finished", "response"]
    assert await pi.get_version(session_id) == 0
    assert (await pi.request("bash", sessionId=session_id, command="true"))["success"]


@pytest.mark.requirement("pi:timeout:run-not-covered", "pi:timeout:waiting-for-people")
async def test_a_prompt_and_one_that_waits_behind_it_outlast_a_person_who_takes_long(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_command_timeout=0.4))
    session_id, other = await pi.start_session(), await pi.start_session()
    first = await pi.begin("prompt", sessionId=session_id, message=QUESTION)
    asked = await pi.next_event("extension_ui_request")
    second = await pi.begin("prompt", sessionId=session_id, message="say: and then")
    for _ in range(2):  # each takes as long as the others may
        assert (await pi.request("bash", sessionId=other, command="sleep 30"))["timedOut"] is True
    response = {"method": "select", "value": "yes"}
    await pi.execute("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response)
    assert (await pi.wait_for_response(first))["success"] is True
    assert (await pi.wait_for_response(second))["success"] is True


@pytest.mark.requirement("pi:timeout:dependents")
async def test_a_timeout_is_a_failure_to_those_that_depend_on_it(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_command_timeout=0.4))
    one, other = await pi.start_session(), await pi.start_session()
    slow = await pi.begin("bash", sessionId=one, command="sleep 30")
    dependent = await pi.begin("get_state", sessionId=other, dependsOn=[slow])
    assert (await pi.wait_for_response(dependent))["error"] == f"Dependency '{slow}' failed: Command 'bash' timed out after 400ms"


@pytest.mark.requirement("pi:timeout:defaults")
async def test_creating_a_session_has_no_limit_of_time(start_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(start_pi(pi_command_timeout=0.001))
    session_id = (await pi.execute("create_session"))["sessionId"]
    assert (await pi.request("bash", sessionId=session_id, command="sleep 30"))["timedOut"] is True


@pytest.mark.requirement("pi:timeout:defaults")
def test_reads_have_half_a_minute_and_the_rest_five_minutes(tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    assert (settings.pi_read_timeout, settings.pi_command_timeout) == (30, 300)
