"""A timeout is an outcome like any other: told, stored, replayed, and never unsaid. What it covered ends."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi

from switchtower import config

QUESTION = "ask: ready? | yes | no"


@pytest.mark.requirement("pi:timeout:outcome", "pi:timeout:replayed", "pi:timeout:not-overwritten", "pi:timeout:aborts")
async def test_a_timeout_is_stored_replayed_and_not_overwritten_and_its_work_ends(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_command_timeout=0.4))
    session_id = await pi.session()
    id_ = await pi.begin("prompt", sessionId=session_id, message=QUESTION)
    response = await pi.response(id_)
    assert response == {
        "type": "response",
        "command": "prompt",
        "success": False,
        "id": id_,
        "error": "Command 'prompt' timed out after 400ms",
        "timedOut": True,
    }
    finished = await pi.told(id_, "command_finished")
    assert (finished["success"], finished["error"]) == (False, response["error"])
    await pi.next_event("agent_end")
    assert (await pi.do("get_state", sessionId=session_id))["isStreaming"] is False
    pi.frames.clear()
    assert await pi.ask("prompt", id=id_, sessionId=session_id, message=QUESTION) == {**response, "replayed": True}
    assert pi.phases(id_) == ["command_accepted", "command_finished", "response"]
    assert await pi.version(session_id) == 0
    assert (await pi.ask("prompt", sessionId=session_id, message="say: a fresh attempt"))["success"]


@pytest.mark.requirement("pi:timeout:aborts")
async def test_bash_that_takes_too_long_is_ended_with_its_processes(start_pi: StartPi, join: Join, workspace: Path) -> None:
    pi = await join(start_pi(pi_command_timeout=0.4))
    session_id = await pi.session(workspace)
    response = await pi.ask("bash", sessionId=session_id, command="sleep 30; touch survived")
    assert response["timedOut"] is True
    assert response["error"] == "Command 'bash' timed out after 400ms"
    assert (await pi.next_event("bash_end"))["cancelled"] is True
    assert not (workspace / "survived").exists()
    assert await pi.version(session_id) == 0


@pytest.mark.requirement("pi:timeout:dependents")
async def test_a_timeout_is_a_failure_to_those_that_depend_on_it(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_command_timeout=0.4))
    one, other = await pi.session(), await pi.session()
    slow = await pi.begin("prompt", sessionId=one, message=QUESTION)
    dependent = await pi.begin("get_state", sessionId=other, dependsOn=[slow])
    assert (await pi.response(dependent))["error"] == f"Dependency '{slow}' failed: Command 'prompt' timed out after 400ms"


@pytest.mark.requirement("pi:timeout:defaults")
async def test_creating_a_session_has_no_limit_of_time(start_pi: StartPi, join: Join) -> None:
    pi = await join(start_pi(pi_command_timeout=0.001))
    session_id = (await pi.do("create_session"))["sessionId"]
    assert (await pi.ask("prompt", sessionId=session_id, message=QUESTION))["timedOut"] is True


@pytest.mark.requirement("pi:timeout:defaults")
def test_reads_have_half_a_minute_and_the_rest_five_minutes(tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    assert (settings.pi_read_timeout, settings.pi_command_timeout) == (30, 300)
