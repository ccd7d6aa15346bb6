"""`bash`: output and exit code, its place in the conversation, its end when somebody wants it, and its breaker."""

from pathlib import Path

import pytest
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient
from tests.conformance.pi.theatre import Theatre

from switchtower.testing import model_server_script as script


@pytest.mark.requirement("pi:bash:result")
async def test_a_command_runs_in_the_sessions_folder_and_its_output_and_code_come_back(
    pi: CheckedClient, workspace: Path
) -> None:
    session_id = await pi.session(workspace)
    result = await pi.do("bash", sessionId=session_id, command="ls; echo oops >&2; exit 3")
    assert (result["exitCode"], result["cancelled"]) == (3, False)
    assert "README.md" in result["output"]
    assert "oops" in result["output"]


@pytest.mark.requirement("pi:bash:abort")
async def test_a_command_can_be_aborted(pi: CheckedClient, workspace: Path) -> None:
    session_id = await pi.session(workspace)
    bash = await pi.begin("bash", sessionId=session_id, command="echo begun; sleep 60; touch survived")
    await pi.next_event("bash_start")
    assert (await pi.ask("abort_bash", sessionId=session_id))["success"]
    response = await pi.response(bash)
    assert (response["success"], response["data"]["cancelled"]) == (True, True)
    assert not (workspace / "survived").exists()


@pytest.mark.requirement("pi:bash:context")
async def test_the_model_sees_the_output_unless_it_is_excluded(theatre: Theatre, join: Join, workspace: Path) -> None:
    pi = await join(theatre.daemon)
    session_id = await theatre.session(pi, script.say("ok"), cwd=workspace)
    await pi.do("bash", sessionId=session_id, command="echo seen-$((40+2))")
    await pi.do("bash", sessionId=session_id, command="echo hidden-$((40+3))", excludeFromContext=True)
    await pi.do("prompt", sessionId=session_id, message="what did it say?")
    assert theatre.server is not None
    sent = str(theatre.server.requests[-1].body)
    assert "seen-42" in sent
    assert "hidden-43" not in sent


@pytest.mark.requirement("pi:bash:result", "pi:lane:control-passes")
async def test_a_command_that_runs_delays_nobody(pi: CheckedClient, workspace: Path) -> None:
    session_id = await pi.session(workspace)
    bash = await pi.begin("bash", sessionId=session_id, command="sleep 60")
    await pi.next_event("bash_start")
    assert (await pi.ask("get_state", sessionId=session_id))["success"]
    assert (await pi.ask("prompt", sessionId=session_id, message="say: meanwhile"))["success"]
    await pi.do("abort_bash", sessionId=session_id)
    await pi.response(bash)


@pytest.mark.requirement("pi:bash:result")
async def test_output_that_is_no_text_or_has_no_end_in_sight_is_bounded(pi: CheckedClient, workspace: Path) -> None:
    session_id = await pi.session(workspace)
    result = await pi.do("bash", sessionId=session_id, command="head -c 20000000 /dev/urandom; echo the end")
    assert result["exitCode"] == 0
    assert "the end" in result["output"]
    assert len(result["output"]) < 10_000_000


@pytest.mark.requirement("pi:breaker:bash", "pi:error:bash-breaker", "pi:server:health")
async def test_commands_that_keep_timing_out_are_refused_for_a_while(own_pi: StartPi, join: Join) -> None:
    pi = await join(own_pi(pi_command_timeout=0.5))
    session_id, other = await pi.session(), await pi.session()
    for _ in range(5):
        assert (await pi.ask("bash", sessionId=session_id, command="sleep 30"))["timedOut"] is True
    assert (await pi.refused("bash", sessionId=session_id, command="true")).startswith("Bash circuit breaker open")
    assert (await pi.ask("bash", sessionId=other, command="true"))["success"]
    health = await pi.do("health_check")
    assert (health["healthy"], health["hasOpenCircuit"], health["hasOpenBashCircuit"]) == (False, False, True)
    breaker = (await pi.do("get_metrics"))["bashCircuitBreaker"]
    assert (breaker["enabled"], breaker["totalTimeouts"], breaker["totalRejected"]) == (True, 5, 1)
    assert breaker["openSessionCount"] == 1
