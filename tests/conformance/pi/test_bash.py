"""`bash`: output and exit code, its place in the conversation, its end when somebody wants it, and its breaker."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import ScriptedModels

from switchtower.testing import model_script as script


@pytest.mark.requirement("pi:bash:result")
async def test_a_command_runs_in_the_sessions_folder_and_its_output_and_code_come_back(
    pi_client: CheckedClient, workspace: Path
) -> None:
    session_id = await pi_client.start_session(workspace)
    result = await pi_client.execute("bash", sessionId=session_id, command="ls; echo oops >&2; exit 3")
    assert (result["exitCode"], result["cancelled"]) == (3, False)
    assert "README.md" in result["output"]
    assert "oops" in result["output"]


@pytest.mark.requirement("pi:bash:abort")
async def test_a_command_can_be_aborted(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    bash = await pi_client.begin("bash", sessionId=session_id, command="echo begun; sleep 60; touch survived")
    await pi_client.next_event("bash_start")
    assert (await pi_client.request("abort_bash", sessionId=session_id))["success"]
    response = await pi_client.wait_for_response(bash)
    assert (response["success"], response["data"]["cancelled"]) == (True, True)
    assert not (workspace / "survived").exists()


@pytest.mark.requirement("pi:bash:context")
async def test_the_model_sees_the_output_unless_it_is_excluded(
    scripted_models: ScriptedModels, connect_pi: Join, workspace: Path
) -> None:
    pi = await connect_pi(scripted_models.daemon)
    session_id = await scripted_models.start_session(pi, script.reply_text("ok"), cwd=workspace)
    await pi.execute("bash", sessionId=session_id, command="echo seen-$((40+2))")
    await pi.execute("bash", sessionId=session_id, command="echo hidden-$((40+3))", excludeFromContext=True)
    await pi.execute("prompt", sessionId=session_id, message="what did it say?")
    assert scripted_models.server is not None
    sent = str(scripted_models.server.requests[-1].body)
    assert "seen-42" in sent
    assert "hidden-43" not in sent


@pytest.mark.requirement("pi:bash:result", "pi:lane:control-passes")
async def test_a_command_that_runs_delays_nobody(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    bash = await pi_client.begin("bash", sessionId=session_id, command="sleep 60")
    await pi_client.next_event("bash_start")
    assert (await pi_client.request("get_state", sessionId=session_id))["success"]
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: meanwhile"))["success"]
    await pi_client.execute("abort_bash", sessionId=session_id)
    await pi_client.wait_for_response(bash)


@pytest.mark.requirement("pi:bash:result")
async def test_output_that_is_no_text_or_has_no_end_in_sight_is_bounded(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    result = await pi_client.execute("bash", sessionId=session_id, command="head -c 20000000 /dev/urandom; echo the end")
    assert result["exitCode"] == 0
    assert "the end" in result["output"]
    assert len(result["output"]) < 10_000_000


@pytest.mark.requirement("pi:breaker:bash", "pi:error:bash-breaker", "pi:server:health")
async def test_commands_that_keep_timing_out_are_refused_for_a_while(dedicated_pi: StartPi, connect_pi: Join) -> None:
    pi = await connect_pi(dedicated_pi(pi_command_timeout=0.5))
    session_id, other = await pi.start_session(), await pi.start_session()
    for _ in range(5):
        assert (await pi.request("bash", sessionId=session_id, command="sleep 30"))["timedOut"] is True
    assert (await pi.expect_refusal("bash", sessionId=session_id, command="true")).startswith("Bash circuit breaker open")
    assert (await pi.request("bash", sessionId=other, command="true"))["success"]
    health = await pi.execute("health_check")
    assert (health["healthy"], health["hasOpenCircuit"], health["hasOpenBashCircuit"]) == (False, False, True)
    breaker = (await pi.execute("get_metrics"))["bashCircuitBreaker"]
    assert (breaker["enabled"], breaker["totalTimeouts"], breaker["totalRejected"]) == (True, 5, 1)
    assert breaker["openSessionCount"] == 1
