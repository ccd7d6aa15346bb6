"""The command's envelope and the response's: what is valid, what is refused before admission, and what an answer carries."""

from typing import Any

import pytest
from tests.conformance.pi.stage import CheckedClient

LONG = "x" * 257

INVALID: list[tuple[dict[str, Any], str]] = [
    ({"type": 1}, "type"),
    ({"type": None}, "type"),
    ({}, "type"),
    ({"type": "list_sessions", "id": 5}, "id"),
    ({"type": "list_sessions", "id": ""}, "id"),
    ({"type": "list_sessions", "id": LONG}, "id"),
    ({"type": "list_sessions", "id": "anon:1:1"}, "id"),
    ({"type": "list_sessions", "id": "a", "dependsOn": "b"}, "dependsOn"),
    ({"type": "list_sessions", "id": "a", "dependsOn": [1]}, "dependsOn"),
    ({"type": "list_sessions", "id": "a", "dependsOn": [""]}, "dependsOn"),
    ({"type": "list_sessions", "id": "a", "dependsOn": ["b"] * 33}, "dependsOn"),
    ({"type": "list_sessions", "dependsOn": ["b"]}, "id"),
    ({"type": "list_sessions", "idempotencyKey": 1}, "idempotencyKey"),
    ({"type": "list_sessions", "idempotencyKey": LONG}, "idempotencyKey"),
    ({"type": "get_state", "sessionId": "s", "ifSessionVersion": "1"}, "ifSessionVersion"),
    ({"type": "get_state", "sessionId": "s", "ifSessionVersion": -1}, "ifSessionVersion"),
    ({"type": "get_state", "sessionId": "s", "ifSessionVersion": 1.5}, "ifSessionVersion"),
    ({"type": "get_state"}, "sessionId"),
    ({"type": "get_state", "sessionId": ""}, "sessionId"),
    ({"type": "get_state", "sessionId": "a/b"}, "sessionId"),
    ({"type": "get_state", "sessionId": "x" * 257}, "sessionId"),
    ({"type": "create_session", "sessionId": "no spaces"}, "sessionId"),
    ({"type": "create_session", "cwd": "/" + "x" * 4_096}, "cwd"),
    ({"type": "load_session"}, "sessionPath"),
    ({"type": "load_session", "sessionPath": 7}, "sessionPath"),
    ({"type": "prompt", "sessionId": "s"}, "message"),
    ({"type": "prompt", "sessionId": "s", "message": 1}, "message"),
    ({"type": "prompt", "sessionId": "s", "message": "x" * 200_001}, "message"),
    ({"type": "steer", "sessionId": "s", "message": "x" * 200_001}, "message"),
    ({"type": "follow_up", "sessionId": "s"}, "message"),
    ({"type": "prompt", "sessionId": "s", "message": "m", "streamingBehavior": "later"}, "streamingBehavior"),
    ({"type": "prompt", "sessionId": "s", "message": "m", "images": "one"}, "images"),
    ({"type": "bash", "sessionId": "s"}, "command"),
    ({"type": "bash", "sessionId": "s", "command": "x" * 20_001}, "command"),
    ({"type": "set_session_name", "sessionId": "s", "name": LONG}, "name"),
    ({"type": "set_session_name", "sessionId": "s", "name": ""}, "name"),
    ({"type": "set_model", "sessionId": "s", "provider": "demo"}, "modelId"),
    ({"type": "cycle_model", "sessionId": "s", "direction": "up"}, "direction"),
    ({"type": "set_thinking_level", "sessionId": "s", "level": "extreme"}, "level"),
    ({"type": "set_auto_compaction", "sessionId": "s", "enabled": "yes"}, "enabled"),
    ({"type": "set_auto_retry", "sessionId": "s"}, "enabled"),
    ({"type": "export_html", "sessionId": "s", "outputPath": "x" * 4_097}, "outputPath"),
    ({"type": "switch_session_file", "sessionId": "s"}, "sessionPath"),
    ({"type": "fork", "sessionId": "s"}, "entryId"),
    ({"type": "extension_ui_response", "sessionId": "s", "requestId": LONG, "response": {"method": "cancelled"}}, "requestId"),
    ({"type": "extension_ui_response", "sessionId": "s", "requestId": "r", "response": {"method": "shout"}}, "response"),
    ({"type": "extension_ui_response", "sessionId": "s", "requestId": "r"}, "response"),
]


@pytest.mark.requirement(
    "pi:envelope:type-required",
    "pi:envelope:invalid-fails",
    "pi:envelope:rejected-silently",
    "pi:envelope:field-limits",
    "pi:envelope:depends-needs-id",
    "pi:envelope:anon-refused",
    "pi:error:validation",
    "pi:lifecycle:only-admitted",
)
async def test_an_invalid_command_fails_naming_the_field_and_has_no_lifecycle(pi_client: CheckedClient) -> None:
    before = len(pi_client.frames)
    for command, field in INVALID:
        await pi_client.send_frames(command)
        response = await pi_client.receive()
        assert response["type"] == "response", command
        assert response["success"] is False
        assert response["error"].startswith(f"Validation failed: {field}"), (command, response)
        assert response["command"] == (command.get("type") if isinstance(command.get("type"), str) else "unknown")
    assert [frame["type"] for frame in pi_client.frames[before:]] == ["response"] * len(INVALID)


@pytest.mark.requirement("pi:envelope:field-limits")
async def test_what_is_just_within_the_limits_is_admitted(pi_client: CheckedClient) -> None:
    stamp = pi_client.make_id()
    id_ = stamp + "x" * (256 - len(stamp))
    await pi_client.send_frames({"type": "list_sessions", "id": id_, "idempotencyKey": id_})
    assert (await pi_client.wait_for_response(id_))["success"]
    session_id = stamp + "_." + "x" * (254 - len(stamp))
    assert (await pi_client.execute("create_session", sessionId=session_id))["sessionId"] == session_id
    assert (await pi_client.request("set_session_name", sessionId=session_id, name="n" * 256))["success"]
    assert (await pi_client.request("bash", sessionId=session_id, command="true " + "#" * 19_995))["success"]
    known = [id_] * 32
    assert (await pi_client.request("list_sessions", dependsOn=known))["success"]


@pytest.mark.requirement("pi:envelope:unknown-type", "pi:error:unknown-command")
async def test_an_unknown_command_is_refused_before_admission(pi_client: CheckedClient) -> None:
    response = await pi_client.request("sing")
    assert response == {
        "type": "response",
        "command": "sing",
        "success": False,
        "id": response["id"],
        "error": "Unknown command type 'sing'",
    }
    assert pi_client.list_phases(response["id"]) == ["response"]


@pytest.mark.requirement("pi:envelope:null-is-absent")
async def test_null_counts_as_left_out(pi_client: CheckedClient) -> None:
    response = await pi_client.request("create_session", sessionId=None, cwd=None, dependsOn=None, idempotencyKey=None)
    assert response["success"]


@pytest.mark.requirement("pi:response:fields", "pi:response:id", "pi:response:data-key")
async def test_a_response_has_its_type_command_success_id_and_data(pi_client: CheckedClient) -> None:
    response = await pi_client.request("list_sessions")
    assert response.keys() == {"type", "command", "success", "id", "data"}
    assert (response["type"], response["command"], response["success"]) == ("response", "list_sessions", True)


@pytest.mark.requirement("pi:response:id")
async def test_an_invalid_command_is_answered_with_its_id_too(pi_client: CheckedClient) -> None:
    response = await pi_client.request("get_state")
    assert response["id"]
    assert response["success"] is False


@pytest.mark.requirement("pi:response:no-id")
async def test_a_command_without_id_is_answered_without_one(pi_client: CheckedClient) -> None:
    await pi_client.send_frames({"type": "list_sessions"})
    response = await pi_client.wait_for(lambda frame: frame["type"] == "response")
    assert "id" not in response
    assert response["success"]


@pytest.mark.requirement("pi:response:version-where")
async def test_the_version_is_on_every_success_of_a_session_and_on_nothing_else(pi_client: CheckedClient) -> None:
    created = await pi_client.request("create_session")
    session_id = created["data"]["sessionId"]
    assert created["sessionVersion"] == 0
    assert (await pi_client.request("switch_session", sessionId=session_id))["sessionVersion"] == 0
    for read in ("get_state", "get_messages", "get_tools", "get_fork_messages", "get_session_stats"):
        assert (await pi_client.request(read, sessionId=session_id))["sessionVersion"] == 0
    assert (await pi_client.request("set_session_name", sessionId=session_id, name="n"))["sessionVersion"] == 1
    failed = await pi_client.request("set_model", sessionId=session_id, provider="no", modelId="no")
    assert "sessionVersion" not in failed
    for server in ("list_sessions", "get_metrics", "health_check", "list_stored_sessions"):
        assert "sessionVersion" not in await pi_client.request(server)
    assert "sessionVersion" not in await pi_client.request("delete_session", sessionId=session_id)


@pytest.mark.requirement("pi:response:failure", "pi:error:shape")
async def test_a_failure_has_a_readable_error_and_no_data(pi_client: CheckedClient) -> None:
    response = await pi_client.request("get_state", sessionId="nobody")
    assert response == {
        "type": "response",
        "command": "get_state",
        "success": False,
        "id": response["id"],
        "error": "Session nobody not found",
    }
