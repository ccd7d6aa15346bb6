"""One session, two protocols: what one begins the other watches, decides and reads; of two answers the first counts."""

import asyncio

from tests.daemon.pi_stage import PiHarness, get_text, join_deltas, list_assistant_texts, list_event_types

from switchtower.testing.push_client import ReceivedEvent, ReceivedResponse

SPLIT = {"role", "content", "stopReason", "toolCallId", "toolName", "isError"}
"""What of a message both tellings must agree on."""


def list_pushed_texts(events: list[ReceivedEvent]) -> list[str]:
    """What the assistant said over push, a message each."""
    said = [""]
    for event in events:
        if event.type == "assistant_token":
            said[-1] += event.payload["text"]
        elif event.type == "assistant_done":
            said.append("")
    return said[:-1]


async def test_what_pi_begins_is_watched_and_approved_over_push(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = await pi_harness.start_session(pi)
    await pi.execute("set_session_name", sessionId=session_id, name="Begun over pi")
    prompt = await pi.begin("prompt", sessionId=session_id, message="run: echo once >> out.txt\nsay: all done")

    assert session_id in [session["sessionId"] for session in (await push.request_payload("list_sessions"))["sessions"]]
    await push.attach(session_id)
    watched = await push.read_until("approval_required")
    asked = await pi.next_event("extension_ui_request")
    assert watched[-1].payload["approvalId"] == asked["requestId"]
    assert "echo once >> out.txt" in asked["message"]
    assert (await push.decide(watched[-1])).ok

    answer = await pi.wait_for_response(prompt)
    watched += await push.read_until("run_complete")
    assert answer["success"] is True
    assert watched[-1].payload["outcome"] == "success"
    assert (pi_harness.workspace / "out.txt").read_text() == "once\n"
    assert {"type": "extension_ui_closed", "requestId": asked["requestId"], "reason": "approved"} in pi.list_events()

    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    ended = await pi.next_event("agent_end")
    assert [_get_common_fields(message) for message in ended["messages"]] == [_get_common_fields(message) for message in messages]
    assert list_assistant_texts(messages) == list_pushed_texts(watched)
    info = await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    state = await pi.request("get_state", sessionId=session_id)
    assert info["title"] == state["data"]["sessionName"] == "Begun over pi"
    assert info["version"] == state["sessionVersion"] == answer["sessionVersion"]


async def test_what_push_begins_is_listed_joined_and_approved_over_pi(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = (await push.start_session(pi_harness.workspace)).session_id
    await push.send(session_id, "run: echo once >> out.txt\nsay: all done")
    watched = await push.read_until("approval_required")

    listed = (await pi.execute("list_sessions"))["sessions"]
    assert [session["sessionId"] for session in listed] == [session_id]
    assert listed[0]["isStreaming"] is True
    await pi.execute("switch_session", sessionId=session_id)
    asked = await pi.next_event("extension_ui_request")
    assert asked["requestId"] == watched[-1].payload["approvalId"]
    response = {"method": "confirm", "confirmed": True}
    await pi.execute("extension_ui_response", sessionId=session_id, requestId=asked["requestId"], response=response)

    ended = await pi.next_event("agent_end")
    decided = await push.read_until("approval_received")
    assert decided[-1].payload["approvalId"] == asked["requestId"]
    assert decided[-1].payload["decision"] == "approve"
    watched += decided + await push.read_until("run_complete")
    assert (pi_harness.workspace / "out.txt").read_text() == "once\n"
    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    assert list_assistant_texts(messages) == list_pushed_texts(watched)
    assert [_get_common_fields(message) for message in ended["messages"]] == [_get_common_fields(message) for message in messages]
    # Joined in the middle: from there on every event, and each once.
    assert list_event_types(pi.list_events())[-1] == "agent_end"
    assert join_deltas(pi.list_events()) == list_pushed_texts(watched)[-1]
    info = await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert info["version"] == (await pi.request("get_state", sessionId=session_id))["sessionVersion"]


async def test_of_two_protocols_that_answer_at_once_one_wins_and_the_other_is_told(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = await pi_harness.start_session(pi)
    await push.attach(session_id)
    rounds = 12
    request = "\n".join(f"run: echo {number} >> out.txt" for number in range(rounds))
    prompt = await pi.begin("prompt", sessionId=session_id, message=request)
    approved = []
    for number in range(rounds):
        asked = (await push.read_until("approval_required"))[-1]
        approval_id = asked.payload["approvalId"]
        denial = {"method": "confirm", "confirmed": False}

        async def over_push(asked: ReceivedEvent = asked) -> ReceivedResponse:
            return await push.decide(asked)

        over_pi = pi.request("extension_ui_response", sessionId=session_id, requestId=approval_id, response=denial)
        both = (over_push(), over_pi) if number % 2 else (over_pi, over_push())
        answers = await asyncio.gather(*both)
        by_push, by_pi = answers if number % 2 else answers[::-1]
        assert isinstance(by_push, ReceivedResponse)
        assert isinstance(by_pi, dict)
        assert by_push.ok is not by_pi["success"]
        if by_push.ok:
            approved.append(number)
            assert by_pi["error"] == f"No pending UI request with id {approval_id}"
        else:
            assert by_push.code == "APPROVAL_EXPIRED"
        closed = await pi.next_event("extension_ui_closed")
        assert closed == {
            "type": "extension_ui_closed",
            "requestId": approval_id,
            "reason": "approved" if by_push.ok else "denied",
        }
    assert (await pi.wait_for_response(prompt))["success"] is True
    written = (pi_harness.workspace / "out.txt").read_text().split() if approved else []
    assert [int(number) for number in written] == approved


async def test_events_and_reads_tell_the_same_messages(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi = await pi_harness.connect()
    session_id = await pi_harness.start_session(pi)
    await pi.execute("prompt", sessionId=session_id, message="list .\nsay: one")
    await pi.execute("prompt", sessionId=session_id, message="say: two")
    ends = [event for event in pi.list_events() if event["type"] == "message_end"]
    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    told = [message for event in pi.list_events() if event["type"] == "agent_end" for message in event["messages"]]
    assert told == messages
    assert [_get_common_fields(event["message"]) for event in ends] == [_get_common_fields(message) for message in messages]


async def test_what_an_aborted_answer_had_said_is_kept_by_events_and_reads_alike(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2)
    pi = await pi_harness.connect()
    session_id = await pi_harness.start_session(pi)
    prompt = await pi.begin("prompt", sessionId=session_id, message="count 100000")
    for _ in range(50):
        await pi.next_event("message_update")
    await pi.execute("abort", sessionId=session_id)
    await pi.wait_for_response(prompt)
    ended = await pi.next_event("agent_end")
    assert ended["messages"][-1]["stopReason"] == "aborted"
    assert get_text(ended["messages"][-1]) == join_deltas(pi.list_events())
    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    assert [_get_common_fields(message) for message in messages] == [_get_common_fields(message) for message in ended["messages"]]
    assert (await pi.execute("get_state", sessionId=session_id))["messageCount"] == len(messages)


async def test_settings_of_one_protocol_are_the_other_s_too(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = await pi_harness.start_session(pi)
    changed = await push.request_payload(
        "configure_session", {"sessionId": session_id, "title": "Named over push"}, session_id=session_id
    )
    assert changed is not None
    state = await pi.request("get_state", sessionId=session_id)
    assert state["data"]["sessionName"] == "Named over push"
    before = state["sessionVersion"]
    stale = await pi.request("set_session_name", sessionId=session_id, name="late", ifSessionVersion=before - 1)
    assert stale["error"] == f"Session version mismatch: expected {before - 1}, got {before}"
    assert (await pi.request("set_session_name", sessionId=session_id, name="in time", ifSessionVersion=before))[
        "success"
    ] is True
    info = await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id)
    assert (info["title"], info["version"]) == ("in time", before + 1)


async def test_a_session_that_pi_unloads_goes_on_over_push(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = await pi_harness.start_session(pi)
    await pi.execute("delete_session", sessionId=session_id)
    await push.attach(session_id)
    events = await push.run(session_id, "say: still here")
    assert events[-1].payload["outcome"] == "success"
    assert (await pi.request("get_state", sessionId=session_id))["error"] == f"Session {session_id} not found"


def _get_common_fields(message: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in message.items() if name in SPLIT}


async def test_a_fork_works_as_its_parent_does(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    pi, push = await pi_harness.connect(), await pi_harness.push()
    session_id = (await push.start_session(pi_harness.workspace)).session_id
    configure = {"sessionId": session_id, "policy": "read-only", "thinking": "low"}
    await push.request_payload("configure_session", configure, session_id=session_id)
    await pi.execute("prompt", sessionId=session_id, message="say: hello")
    entry = (await pi.execute("get_fork_messages", sessionId=session_id))["messages"][0]["entryId"]

    fork = (await pi.execute("fork", sessionId=session_id, entryId=entry))["sessionId"]

    info = await push.request_payload("get_session", {"sessionId": fork}, session_id=fork)
    assert (info["policy"], info["thinking"]) == ("read-only", "low")
