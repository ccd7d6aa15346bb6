"""What there is to choose from: models, slash commands, skills, tools, session files; and how the server is."""

from pathlib import Path

import pytest
from tests.conformance.pi.stage import CheckedClient


@pytest.mark.requirement("pi:discovery:models")
async def test_models_are_listed_and_the_session_has_one_of_them(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    models = (await pi_client.execute("get_available_models", sessionId=session_id))["models"]
    assert (await pi_client.execute("get_state", sessionId=session_id))["model"] in models


@pytest.mark.requirement("pi:discovery:commands", "pi:discovery:skills")
async def test_commands_and_skills_are_listed_with_their_source(pi_client: CheckedClient, workspace: Path) -> None:
    skills = workspace / ".tower" / "skills"
    skills.mkdir(parents=True)
    (skills / "release.md").write_text("---\ndescription: How we release\n---\nTag it.\n")
    prompts = workspace / ".tower" / "prompts"
    prompts.mkdir()
    (prompts / "fix.md").write_text("---\ndescription: Fix something\n---\nFix $1.\n")
    session_id = await pi_client.start_session(workspace)
    commands = {
        command["name"]: command for command in (await pi_client.execute("get_commands", sessionId=session_id))["commands"]
    }
    assert commands["review"]["source"] == commands["brief"]["source"] == "extension"
    assert (commands["release"]["source"], commands["fix"]["source"]) == ("skill", "prompt")
    assert commands["fix"]["path"] == str(prompts / "fix.md")
    [skill] = [
        skill for skill in (await pi_client.execute("get_skills", sessionId=session_id))["skills"] if skill["name"] == "release"
    ]
    assert (skill["description"], skill["filePath"]) == ("How we release", str(skills / "release.md"))


@pytest.mark.requirement("pi:discovery:tools")
async def test_tools_are_listed_with_what_they_do(pi_client: CheckedClient) -> None:
    tools = (await pi_client.execute("get_tools", sessionId=await pi_client.start_session()))["tools"]
    assert {"read_file", "write_file", "run"} <= {tool["name"] for tool in tools}


@pytest.mark.requirement("pi:discovery:session-files")
async def test_session_files_are_those_of_the_sessions_folder(pi_client: CheckedClient, workspace: Path) -> None:
    session_id, elsewhere = await pi_client.start_session(workspace), await pi_client.start_session()
    files = (await pi_client.execute("list_session_files", sessionId=session_id))["files"]
    assert [file["path"] for file in files] == [(await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]]
    assert files[0]["name"] == f"{session_id}.jsonl"
    assert elsewhere not in str(files)


@pytest.mark.requirement("pi:discovery:unknown-session")
@pytest.mark.parametrize(
    "command", ["get_available_models", "get_commands", "get_skills", "get_tools", "list_session_files", "get_session_stats"]
)
async def test_discovery_needs_a_session_that_is_there(pi_client: CheckedClient, command: str) -> None:
    assert await pi_client.expect_refusal(command, sessionId="nobody") == "Session nobody not found"


@pytest.mark.requirement("pi:server:health")
async def test_a_server_without_troubles_is_healthy(pi_client: CheckedClient) -> None:
    assert await pi_client.execute("health_check") == {
        "healthy": True,
        "issues": [],
        "hasOpenCircuit": False,
        "hasOpenBashCircuit": False,
    }


@pytest.mark.requirement("pi:server:metrics")
async def test_metrics_count_what_happens(pi_client: CheckedClient) -> None:
    before = await pi_client.execute("get_metrics")
    session_id, key = await pi_client.start_session(), pi_client.make_id()
    await pi_client.execute("set_session_name", sessionId=session_id, name="n", idempotencyKey=key)
    await pi_client.start_prompt(session_id, "ask: ready? | yes | no")
    await pi_client.next_event("extension_ui_request")
    await pi_client.expect_refusal("get_state")
    after = await pi_client.execute("get_metrics")
    assert after["sessionCount"] == before["sessionCount"] + 1
    assert after["totalCommandsExecuted"] > before["totalCommandsExecuted"]
    assert after["connectionCount"] >= 1
    assert after["stores"]["version"]["sessionCount"] == after["sessionCount"]
    assert after["stores"]["replay"]["inFlightCount"] >= 1
    assert after["stores"]["replay"]["outcomeCount"] >= 3
    assert after["stores"]["replay"]["idempotencyCacheSize"] >= 1
    assert after["stores"]["extensionUI"]["pendingCount"] >= 1
    assert after["commandsRejected"]["validation"] > before["commandsRejected"]["validation"]
    await pi_client.execute("abort", sessionId=session_id)
