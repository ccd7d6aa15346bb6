"""Many followers of one fast answer: everyone gets all of it, in order, however slowly it reads, and at a linear price."""

import asyncio

import pytest
from tests.daemon.pi_stage import PiHarness, get_text, join_deltas

from switchtower.testing.pi_client import PiClient

SUBSCRIBERS = 20
TOKENS = 3_000

IN_ORDER = ["agent_start", "turn_start", "message_start", "message_end", "message_start", "message_end", "turn_end", "agent_end"]


def make_counting_answer(upto: int) -> str:
    return " ".join(str(number) for number in range(1, upto + 1))


async def read_to_the_end(client: PiClient) -> None:
    await client.next_event("agent_end")


def check_the_story(client: PiClient, text: str) -> None:
    """All that a client must have been told of one answer of this text."""
    events = client.list_events()
    assert [event["type"] for event in events if event["type"] != "message_update"] == IN_ORDER
    assert join_deltas(events) == text
    updates = [event["assistantMessageEvent"] for event in events if event["type"] == "message_update"]
    texts = [update["type"] for update in updates if update["type"].startswith("text_")]
    assert texts == ["text_start", *["text_delta"] * (len(texts) - 2), "text_end"]
    assert [update["content"] for update in updates if update["type"] == "text_end"] == [text]
    ends = [event["message"] for event in events if event["type"] == "message_end"]
    assert get_text(ends[-1]) == text
    assert get_text(events[-1]["messages"][-1]) == text
    # All updates lie between the start and the end of their message.
    places = [place for place, event in enumerate(events) if event["type"] == "message_update"]
    starts = [place for place, event in enumerate(events) if event["type"] in ("message_start", "message_end")]
    assert starts[-2] < places[0] < places[-1] < starts[-1]


async def test_twenty_subscribers_get_every_token_and_the_one_who_does_not_read_gets_them_later(pi_harness: PiHarness) -> None:
    await pi_harness.open(output_limit_bytes=65_536)
    writer = await pi_harness.connect()
    session_id = await pi_harness.start_session(writer)
    quick = [await pi_harness.connect(lifecycle=False) for _ in range(SUBSCRIBERS - 2)]
    # Over a Unix socket, because the kernel keeps little for it: this one really stands still.
    slow = await pi_harness.connect(unix=True)
    for client in [*quick, slow]:
        await client.execute("switch_session", sessionId=session_id)
    prompt = await writer.begin("prompt", sessionId=session_id, message=f"count {TOKENS}")
    await asyncio.gather(*(read_to_the_end(client) for client in [writer, *quick]))
    assert (await writer.wait_for_response(prompt))["success"] is True
    assert slow.list_events() == []
    await read_to_the_end(slow)
    for client in [writer, *quick, slow]:
        check_the_story(client, make_counting_answer(TOKENS))
    finished = [frame for frame in writer.list_lifecycle(prompt) if frame["type"] == "command_finished"]
    assert len(finished) == 1
    assert [frame["type"] for frame in slow.list_lifecycle(prompt)] == ["command_accepted", "command_started", "command_finished"]


async def test_one_who_is_slower_than_the_retention_still_hears_how_everything_ended(pi_harness: PiHarness) -> None:
    await pi_harness.open(output_limit_bytes=65_536, retention_entries=200)
    writer, slow = await pi_harness.connect(), await pi_harness.connect(unix=True, timeout=5)
    session_id = await pi_harness.start_session(writer)
    await slow.execute("switch_session", sessionId=session_id)
    for upto in (4_000, 2_000):
        await writer.execute("prompt", sessionId=session_id, message=f"count {upto}")
    for upto in (4_000, 2_000):
        # The pieces may be gone; the whole is not.
        ended = await slow.next_event("agent_end")
        assert get_text(ended["messages"][-1]) == make_counting_answer(upto)
    kinds = [event["type"] for event in slow.list_events() if event["type"] != "message_update"]
    for begun, done in (("message_start", "message_end"), ("turn_start", "turn_end"), ("agent_start", "agent_end")):
        assert kinds.count(begun) == kinds.count(done)


async def test_everybody_who_reads_alike_is_told_alike(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    writer = await pi_harness.connect()
    session_id = await pi_harness.start_session(writer)
    others = [await pi_harness.connect(lifecycle=False) for _ in range(3)]
    for client in others:
        await client.execute("switch_session", sessionId=session_id)
    for request in ("count 200", "think: deep and long\nlist .\nsay: ok", "read nowhere.txt", "say: the end"):
        await writer.execute("prompt", sessionId=session_id, message=request)
    await asyncio.gather(*(client.execute("get_state", sessionId=session_id) for client in others))
    for client in others:
        assert client.list_events() == writer.list_events()
    assert [event["type"] for event in writer.list_events()].count("agent_end") == 4


async def test_those_who_join_in_the_middle_can_complete_the_message(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=1)
    writer = await pi_harness.connect()
    session_id = await pi_harness.start_session(writer)
    late = [await pi_harness.connect(lifecycle=False) for _ in range(12)]
    prompt = await writer.begin("prompt", sessionId=session_id, message="count 400")
    for client in late:
        for _ in range(20):
            await writer.next_event("message_update")
        await client.execute("switch_session", sessionId=session_id)
    assert (await writer.wait_for_response(prompt))["success"] is True
    for client in late:
        await read_to_the_end(client)
        events = client.list_events()
        assert events[0]["type"] == "message_start"
        assert get_text(events[0]["message"]) + join_deltas(events) == make_counting_answer(400)
        assert get_text(events[-1]["messages"][-1]) == make_counting_answer(400)


@pytest.mark.parametrize("way", ["text", "thinking"])
async def test_an_answer_four_times_as_long_costs_four_times_as_much(pi_harness: PiHarness, way: str) -> None:
    await pi_harness.open()
    writer = await pi_harness.connect()
    spent = {}
    for tokens in (1_000, 4_000):
        session_id = await pi_harness.start_session(writer)
        words = " ".join(["word"] * tokens)
        request = f"think: {words}\nsay: done" if way == "thinking" else f"say: {words}"
        before = sum(writer.sizes)
        await writer.execute("prompt", sessionId=session_id, message=request)
        spent[tokens] = sum(writer.sizes) - before
        assert join_deltas(writer.list_events(session_id), way).endswith(words)
    assert spent[4_000] < 4.5 * spent[1_000]


async def test_a_reply_of_a_real_provider_in_large_pieces_arrives_whole(pi_harness: PiHarness) -> None:
    from switchtower.testing import model_script as script

    text = "".join(f"{number:07d} é\n" for number in range(40_000))
    await pi_harness.start_model_server(
        script.ScriptedReply((script.ThinkingStep("hm", "signed"), script.TextStep(text, 65_536)))
    )
    await pi_harness.open()
    writer, other = await pi_harness.connect(), await pi_harness.connect(unix=True)
    session_id = await pi_harness.start_session(writer)
    await other.execute("switch_session", sessionId=session_id)
    await writer.execute("prompt", sessionId=session_id, message="go on")
    await read_to_the_end(other)
    for client in (writer, other):
        assert join_deltas(client.list_events()) == text
        assert get_text(client.list_events()[-1]["messages"][-1]) == text
