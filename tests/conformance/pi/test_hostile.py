"""Whatever a client sends gets exactly one answer, in words, and harms nobody."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.pi import closed
from tests.conformance.pi.conftest import Join
from tests.conformance.pi.stage import CheckedClient, PiDaemon

TEXTS = [
    "x",
    "true",
    "e3",
    "e-1",
    "/etc/passwd",
    "..",
    "a" * 300,
    "off",
    "demo",
    "page.html",
    "\0",
    "é\u2028🚂",
    " ",
    "e" + "9" * 40,
]
RUBBISH: list[Any] = [*TEXTS, 0, -1, 1.5, 2**70, True, None, [], ["x"], {}, {"method": "cancelled"}, {"type": "image"}]
FIELDS = [
    "message",
    "images",
    "streamingBehavior",
    "sessionPath",
    "cwd",
    "provider",
    "modelId",
    "direction",
    "level",
    "name",
    "customInstructions",
    "enabled",
    "command",
    "excludeFromContext",
    "outputPath",
    "parentSession",
    "entryId",
    "requestId",
    "response",
    "ifSessionVersion",
    "dependsOn",
    "idempotencyKey",
]
LIKELY: dict[str, list[Any]] = {
    "message": ["say: x"],
    "direction": ["forward", "backward"],
    "level": ["low", "off"],
    "enabled": [True, False],
    "command": ["true", "exit 3"],
    "response": [{"method": "cancelled"}, {"method": "confirm", "confirmed": True}, {"method": "interview", "responses": {}}],
    "entryId": TEXTS,
    "sessionPath": [f"/x/.pi/sessions/{text}" for text in TEXTS],
    "outputPath": TEXTS,
    "name": TEXTS,
    "requestId": TEXTS,
    "provider": ["demo", "x"],
    "modelId": ["demo", "x"],
    "cwd": ["/tmp", "/nowhere", "relative"],
}


def make_random_commands(seed: int, count: int, session_ids: list[str]) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    made = []
    for _ in range(count):
        command: dict[str, Any] = {"type": dice.choice(sorted(closed.DATA)), "sessionId": dice.choice([*session_ids, "nobody"])}
        for field in FIELDS:
            if field in LIKELY and dice.random() < 0.8:
                command[field] = dice.choice(LIKELY[field])
            elif dice.random() < 0.1:
                command[field] = dice.choice(RUBBISH)
        made.append(command)
    return made


@pytest.mark.requirement("pi:error:no-internal", "pi:envelope:invalid-fails", "pi:lifecycle:finished-once")
@pytest.mark.parametrize("seed", range(2))
async def test_commands_of_whatever_shape_get_one_answer_each(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join, workspace: Path, seed: int
) -> None:
    watcher = await connect_pi(pi_daemon)
    session_ids = [await pi_client.start_session(workspace) for _ in range(3)]
    ids = []
    for command in make_random_commands(seed, 150, session_ids):
        id_ = pi_client.make_id()
        ids.append(id_)
        if command["type"] != "delete_session":
            await pi_client.send_frames({**command, "id": id_})
        else:
            await pi_client.send_frames({"type": "list_sessions", "id": id_})
    for id_ in ids:
        response = await pi_client.wait_for_response(id_)
        assert response.get("error") != "Internal error", response
    await pi_client.drain()
    for id_ in ids:
        assert pi_client.list_phases(id_).count("response") == 1
        assert pi_client.list_phases(id_) in (
            ["response"],
            ["command_accepted", "command_finished", "response"],
            ["command_accepted", "command_started", "command_finished", "response"],
        )
    await watcher.drain()


@pytest.mark.requirement("pi:error:no-internal")
async def test_a_client_that_vanishes_with_work_under_way_leaves_the_work_and_everybody_else_alone(
    pi_client: CheckedClient, pi_daemon: PiDaemon, connect_pi: Join
) -> None:
    session_id = await pi_client.start_session()
    leaver = await connect_pi(pi_daemon, door="websocket")
    prompt = await leaver.begin("prompt", sessionId=session_id, message="say: still here")
    await leaver.send_frames(*({"type": "get_state", "sessionId": session_id} for _ in range(500)))
    leaver.wire.abort()
    await pi_client.get_lifecycle_data(prompt, "command_finished")
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": "still here"}
