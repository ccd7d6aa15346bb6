"""A daemon that dies in the middle of a command, and the client that asks again: nothing is done twice, nothing is forgotten."""

import asyncio
from pathlib import Path

import pytest
from tests.daemon.pi_stage import PiHarness, answer_to

from switchtower.testing.pi_client import Frame, PiClient

REPLAYED = ["command_accepted", "command_finished", "response"]


async def wait_for_file(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.01)


async def repeat_command(client: PiClient, command: Frame) -> Frame:
    """The very same command; its answer, which must be a replay (pi-server 7.4)."""
    answer = await answer_to(client, command)
    assert [frame["type"] for frame in client.list_lifecycle(command["id"])] == REPLAYED
    assert answer["replayed"] is True
    return answer


def drop_fields(answer: Frame, *names: str) -> Frame:
    return {name: value for name, value in answer.items() if name not in names}


async def test_a_prompt_that_was_cut_off_is_answered_as_interrupted_and_not_begun_again(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=5)
    before = await pi_harness.connect()
    session_id = await pi_harness.start_session(before)
    prompt = {"type": "prompt", "id": "p-1", "idempotencyKey": "k-1", "sessionId": session_id, "message": "count 100000"}
    await before.send_frames(prompt)
    await before.next_event("message_update")
    await pi_harness.open_again()

    client = await pi_harness.connect()
    answer = await repeat_command(client, prompt)
    assert answer["success"] is False
    assert answer["error"] == "the daemon ended while the run was working"
    # By its key alone, and by another id: it is the same command (8.2).
    by_key = await client.request("prompt", sessionId=session_id, message="count 100000", idempotencyKey="k-1")
    assert drop_fields(by_key, "id") == drop_fields(answer, "id")
    other = await answer_to(client, {**prompt, "message": "something else"})
    assert other["error"] == "Conflicting idempotencyKey 'k-1': previously used for 'prompt', now used for 'prompt'"
    messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
    assert [message["role"] for message in messages].count("user") == 1
    assert (await client.execute("get_state", sessionId=session_id))["isStreaming"] is False
    # And the session goes on.
    await client.execute("prompt", sessionId=session_id, message="say: here again")
    assert (await client.execute("get_last_assistant_text", sessionId=session_id))["text"] == "here again"


async def test_a_shell_command_that_was_cut_off_is_not_run_again(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    before = await pi_harness.connect()
    session_id = await pi_harness.start_session(before)
    written, begun = pi_harness.workspace / "written", pi_harness.workspace / "begun"
    bash = {
        "type": "bash",
        "id": "b-1",
        "sessionId": session_id,
        "command": "echo once >> written; touch begun; sleep 1000",
    }
    await before.send_frames(bash)
    await wait_for_file(begun)
    await pi_harness.open_again()

    client = await pi_harness.connect()
    answer = await repeat_command(client, bash)
    assert written.read_text() == "once\n"
    assert answer["success"] is False or answer["data"]["cancelled"] is True
    assert await answer_to(client, bash) == answer
    other = await answer_to(client, {**bash, "command": "echo other >> written"})
    assert other["error"] == "Conflicting id 'b-1': previously used for 'bash', now used for 'bash'"
    assert written.read_text() == "once\n"
    assert (await client.execute("bash", sessionId=session_id, command="echo twice >> written"))["exitCode"] == 0
    assert written.read_text() == "once\ntwice\n"


async def test_a_prompt_that_waits_for_an_approval_waits_on_and_is_carried_out_once(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    before = await pi_harness.connect()
    session_id = await pi_harness.start_session(before)
    prompt = {"type": "prompt", "id": "p-1", "sessionId": session_id, "message": "run: echo once >> written\nsay: done"}
    await before.send_frames(prompt)
    asked = await before.next_event("extension_ui_request")
    await pi_harness.open_again()

    client, follower = await pi_harness.connect(), await pi_harness.connect()
    await client.execute("switch_session", sessionId=session_id)
    repeated = await client.next_event("extension_ui_request")
    assert drop_fields(repeated, "timeout") == drop_fields(asked, "timeout")
    assert not (pi_harness.workspace / "written").exists()
    # Both ask for the outcome while there is none yet; then somebody answers the question.
    for waiting in (client, follower):
        await waiting.send_frames(prompt)
        await waiting.wait_for(lambda frame: frame["type"] == "command_accepted" and frame["data"]["commandId"] == "p-1")
    response = {"method": "confirm", "confirmed": True}
    answered = await client.request(
        "extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response
    )
    assert answered["success"] is True
    for waiting in (client, follower):
        answer = await waiting.wait_for_response("p-1")
        assert (answer["success"], answer["replayed"]) == (True, True)
    assert (pi_harness.workspace / "written").read_text() == "once\n"
    assert (await client.execute("get_last_assistant_text", sessionId=session_id))["text"].startswith("It says")


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
async def test_what_was_finished_is_answered_again_after_a_restart_and_sessions_are_at_hand(
    pi_harness: PiHarness, end: str
) -> None:
    await pi_harness.open(policy="yolo")
    before = await pi_harness.connect()
    created: Frame = {"type": "create_session", "id": "c-1", "cwd": str(pi_harness.workspace), "sessionId": "chosen"}
    commands: list[Frame] = [
        created,
        {"type": "prompt", "id": "p-1", "sessionId": "chosen", "message": "run: echo prompt >> written"},
        {"type": "bash", "id": "b-1", "sessionId": "chosen", "command": "echo bash >> written", "idempotencyKey": "k"},
        {"type": "set_session_name", "id": "n-1", "sessionId": "chosen", "name": "A name"},
        {"type": "set_thinking_level", "id": "t-1", "sessionId": "chosen", "level": "high"},
        {"type": "cycle_thinking_level", "id": "t-2", "sessionId": "chosen"},
        {"type": "set_auto_retry", "id": "r-1", "sessionId": "chosen", "enabled": False},
        {"type": "set_model", "id": "m-1", "sessionId": "chosen", "provider": "demo", "modelId": "demo"},
        {"type": "set_model", "id": "m-2", "sessionId": "chosen", "provider": "nobody", "modelId": "nothing"},
        {"type": "abort", "id": "a-1", "sessionId": "chosen"},
        {"type": "export_html", "id": "e-1", "sessionId": "chosen"},
        {"type": "create_session", "id": "c-2", "cwd": str(pi_harness.workspace)},
    ]
    answers = {}
    for command in commands:
        await before.send_frames(command)
        answers[command["id"]] = await before.wait_for_response(command["id"])
    point = (await before.execute("get_fork_messages", sessionId="chosen"))["messages"][0]["entryId"]
    for command in (
        {"type": "fork", "id": "f-1", "sessionId": "chosen", "entryId": point},
        {"type": "new_session", "id": "w-1", "sessionId": "chosen"},
        {"type": "delete_session", "id": "d-1", "sessionId": answers["c-2"]["data"]["sessionId"]},
    ):
        commands.append(command)
        await before.send_frames(command)
        answers[command["id"]] = await before.wait_for_response(command["id"])
    failed = {id_: answer.get("error") for id_, answer in answers.items() if not answer["success"]}
    assert failed == {"m-2": "Model not found: nobody/nothing"}
    listed = (await before.execute("list_sessions"))["sessions"]
    versions = {info["sessionId"]: await get_version(before, info["sessionId"]) for info in listed}

    before.wire.abort()
    if end == "SIGTERM":
        assert await pi_harness.daemon.stop() == 0
        await pi_harness.open(policy="yolo")
    else:
        await pi_harness.open_again(policy="yolo")
    client = await pi_harness.connect()
    for command in commands:
        answer = await repeat_command(client, command)
        assert answer == {**answers[command["id"]], "replayed": True}
    assert (pi_harness.workspace / "written").read_text() == "prompt\nbash\n"
    by_key = {"type": "bash", "sessionId": "chosen", "command": "echo bash >> written", "idempotencyKey": "k"}
    await client.send_frames(by_key)
    answer = await client.wait_for(lambda frame: frame["type"] == "response" and "id" not in frame)
    assert answer == {**drop_fields(answers["b-1"], "id"), "replayed": True}
    assert (pi_harness.workspace / "written").read_text() == "prompt\nbash\n"
    after = (await client.execute("list_sessions"))["sessions"]
    assert sorted(after, key=_index_by_id) == sorted(listed, key=_index_by_id)
    assert {info["sessionId"]: await get_version(client, info["sessionId"]) for info in after} == versions


async def get_version(client: PiClient, session_id: str) -> int:
    return int((await client.request("get_state", sessionId=session_id))["sessionVersion"])


def _index_by_id(info: Frame) -> str:
    return str(info["sessionId"])


async def test_commands_in_flight_at_a_crash_are_carried_out_at_most_once_however_often_they_are_sent(
    pi_harness: PiHarness,
) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    commands = [
        {"type": "bash", "id": f"b-{number}", "sessionId": session_id, "command": f"echo {number} >> written"}
        for number in range(30)
    ]
    done: dict[str, Frame] = {}
    for enough in (4, 11, 19):
        await client.send_frames(*(command for command in commands if command["id"] not in done))
        while len(done) < enough:
            answer = await client.next(lambda frame: frame["type"] == "response" and str(frame.get("id")).startswith("b-"))
            done[answer["id"]] = answer
        await pi_harness.open_again()
        client = await pi_harness.connect()
    for command in commands:
        await client.send_frames(command)
        answer = await client.wait_for_response(command["id"])
        if command["id"] in done:
            assert drop_fields(answer, "replayed") == drop_fields(done[command["id"]], "replayed")
            assert answer["replayed"] is True
        done[command["id"]] = answer
    written = (pi_harness.workspace / "written").read_text().split()
    assert len(set(written)) == len(written), "nothing is done twice"
    finished = {
        id_.removeprefix("b-") for id_, answer in done.items() if answer["success"] and answer["data"].get("exitCode") == 0
    }
    assert finished <= set(written), "what is said to be done is done"
    assert {answer["id"] for answer in done.values()} == {command["id"] for command in commands}
    assert len(finished) >= 4


async def test_a_dependency_on_a_command_of_before_the_crash_is_known(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    before = await pi_harness.connect()
    session_id = await pi_harness.start_session(before)
    await before.execute("set_session_name", id="n-1", sessionId=session_id, name="first")
    before_crash = {"type": "prompt", "id": "p-1", "sessionId": session_id, "message": "run: sleep 100"}
    await before.send_frames(before_crash)
    await before.next_event("extension_ui_request")
    await pi_harness.open_again()
    client = await pi_harness.connect()
    assert (await client.request("set_session_name", sessionId=session_id, name="second", dependsOn=["n-1"]))["success"] is True
    waiting = await client.begin("list_sessions", dependsOn=["p-1"])
    await client.execute("abort", sessionId=session_id)
    assert (await client.wait_for_response(waiting))["success"] is True


async def test_who_asks_again_to_follow_a_session_over_a_new_connection_follows_it(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    first = await pi_harness.connect()
    session_id = str((await first.execute("create_session", cwd=str(pi_harness.workspace)))["sessionId"])
    await first.send_frames({"type": "switch_session", "id": "follow", "sessionId": session_id})
    await first.wait_for_response("follow")

    again = await pi_harness.connect()
    await again.send_frames({"type": "switch_session", "id": "follow", "sessionId": session_id})
    assert (await again.wait_for_response("follow"))["replayed"] is True
    await again.execute("prompt", sessionId=session_id, message="say: hello")

    assert "agent_end" in [event["type"] for event in again.list_events(session_id)]
