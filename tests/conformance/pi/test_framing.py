"""Frames and what is no frame: one JSON object each, over both transports, and a refusal for everything else."""

import msgspec
import pytest
from tests.conformance.pi import closed
from tests.conformance.pi.conftest import Join, StartPi
from tests.conformance.pi.stage import CheckedClient, PiDaemon

from switchtower.testing.wire import WebSocketWire, encode_websocket_frame

LIST = {"type": "list_sessions"}

NOT_ONE_OBJECT = [
    b"{",
    b"nonsense",
    b"\xff\xfe\x00",
    b'{"type": "list_sessions"} {"type": "list_sessions"}',
    b"[]",
    b'[{"type": "list_sessions"}]',
    b'"list_sessions"',
    b"null",
    b"12",
    b'{"type": NaN}',
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"type": "\\ud800"}',
]


@pytest.mark.requirement("pi:framing:transports", "pi:version:announced", "pi:event:server_ready")
async def test_a_connection_is_greeted_before_anything_else(pi_client: CheckedClient) -> None:
    await pi_client.drain()
    greeting = pi_client.frames[0]
    assert greeting["type"] == "server_ready"
    assert greeting["data"]["protocolVersion"] == "1.0.0"
    assert sorted(greeting["data"]["transports"]) == ["stdio", "websocket"]
    assert [frame["type"] for frame in pi_client.frames].count("server_ready") == 1


@pytest.mark.requirement("pi:framing:malformed", "pi:framing:one-object", "pi:envelope:rejected-silently")
async def test_what_is_not_one_object_is_refused_and_the_connection_goes_on(pi_client: CheckedClient) -> None:
    for frame in NOT_ONE_OBJECT:
        await pi_client.send_frames(frame)
        refusal = await pi_client.receive()
        assert (refusal["type"], refusal["command"], refusal["success"]) == ("response", "unknown", False), frame[:40]
        assert "id" not in refusal
    await pi_client.drain()
    assert pi_client.list_lifecycle("anything") == []


@pytest.mark.requirement("pi:framing:one-object")
async def test_every_frame_that_is_sent_is_one_object(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: a\u2028b\nc")
    assert all(isinstance(frame, dict) for frame in pi_client.frames)
    assert len(pi_client.frames) > 10


@pytest.mark.requirement("pi:framing:one-object")
async def test_many_commands_in_one_write_are_answered_each(pi_client: CheckedClient) -> None:
    ids = [pi_client.make_id() for _ in range(200)]
    await pi_client.send_frames(*({**LIST, "id": id_} for id_ in ids))
    for id_ in ids:
        assert (await pi_client.wait_for_response(id_))["success"]
    answered = [frame["id"] for frame in pi_client.frames if frame["type"] == "response"]
    assert answered == ids


@pytest.mark.requirement("pi:framing:size", "pi:error:message-size")
async def test_a_frame_beyond_the_limit_is_refused_with_its_size_and_the_next_one_answered(
    start_pi: StartPi, connect_pi: Join
) -> None:
    pi = await connect_pi(start_pi(pi_max_frame_bytes=100_000))
    frame = msgspec.json.encode({**LIST, "filler": "x" * 150_000})
    await pi.send_frames(frame)
    refusal = await pi.receive()
    assert refusal["error"] == f"Message size {len(frame)} exceeds limit 100000"
    assert (refusal["command"], refusal["success"]) == ("unknown", False)
    metrics = await pi.execute("get_metrics")
    assert metrics["commandsRejected"]["messageSize"] >= 1


@pytest.mark.requirement("pi:framing:size")
async def test_the_limit_is_ten_mebibytes_unless_configured(pi_client: CheckedClient) -> None:
    await pi_client.send_frames(
        msgspec.json.encode({**LIST, "id": pi_client.make_id(), "filler": "x" * (10 * 1024 * 1024 - 200)})
    )
    assert (await pi_client.wait_for(lambda frame: frame["type"] == "response"))["success"]
    await pi_client.send_frames(msgspec.json.encode({**LIST, "filler": "x" * (10 * 1024 * 1024)}))
    refusal = await pi_client.wait_for(lambda frame: frame["type"] == "response" and not frame["success"])
    assert refusal["error"].endswith("exceeds limit 10485760")


@pytest.mark.requirement("pi:framing:unicode")
async def test_text_comes_back_as_it_was_sent(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    name = 'naïve 🚂 \u2028 \\ " \x7f 日本'
    await pi_client.execute("set_session_name", sessionId=session_id, name=name)
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == name


@pytest.mark.requirement("pi:framing:unicode")
async def test_a_character_whose_bytes_arrive_apart_is_whole_again(pi_client: CheckedClient, pi_transport: str) -> None:
    session_id, id_ = await pi_client.start_session(), pi_client.make_id()
    frame = msgspec.json.encode({"type": "set_session_name", "id": id_, "sessionId": session_id, "name": "🚂"})
    frame = encode_websocket_frame(frame) if pi_transport == "websocket" else frame + b"\n"
    for byte in frame:
        pi_client.wire.send_bytes(bytes([byte]))
        await pi_client.wire.drain()
    await pi_client.wait_for_response(id_)
    assert (await pi_client.execute("get_state", sessionId=session_id))["sessionName"] == "🚂"


@pytest.mark.requirement("pi:framing:main-port")
async def test_the_main_port_speaks_pi_too_for_whoever_has_the_token(pi_daemon: PiDaemon) -> None:
    wire = await WebSocketWire.open(pi_daemon.http, pi_daemon.token, path="/ws/pi")
    async with CheckedClient(wire) as client:
        assert (await client.receive())["type"] == "server_ready"
        assert (await client.request("list_sessions"))["success"]


@pytest.mark.requirement("pi:version:additive-only")
async def test_a_client_that_is_strict_accepts_what_it_is_sent_and_refuses_anything_more(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    for frame in pi_client.frames:
        with pytest.raises(AssertionError):
            closed.check({**frame, "surprise": 1})
        if isinstance(frame.get("data"), dict):
            with pytest.raises(AssertionError):
                closed.check({**frame, "data": {**frame["data"], "surprise": 1}})
        if frame["type"] == "event":
            with pytest.raises(AssertionError):
                closed.check({**frame, "event": {**frame["event"], "surprise": 1}})


@pytest.mark.requirement("pi:version:unknown-fields")
async def test_fields_that_a_newer_client_adds_are_ignored(pi_client: CheckedClient) -> None:
    assert (await pi_client.request("list_sessions", surprise={"deep": [1, 2]}))["success"]


@pytest.mark.requirement("pi:framing:size")
async def test_a_frame_far_beyond_the_limit_costs_the_sender_its_connection_at_most(start_pi: StartPi, connect_pi: Join) -> None:
    daemon = start_pi(pi_max_frame_bytes=100_000)
    sender, other = await connect_pi(daemon), await connect_pi(daemon)
    try:
        await sender.send_frames(b"x" * 5_000_000)
        refusal = await sender.receive()
        assert refusal["error"] == "Message size 5000000 exceeds limit 100000"
    except (EOFError, ConnectionError):
        assert isinstance(sender.wire, WebSocketWire)
        assert sender.wire.close_code in (None, 1009)
    await other.drain()
