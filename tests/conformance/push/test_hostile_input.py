"""Whatever a client sends, it gets push's own answer, and the next request on the same connection works."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect

from switchtower.testing.push_client import PushClient, ReceivedResponse, make_start_payload
from switchtower.testing.wire import SocketWire, WebSocketWire, encode_websocket_frame

MIB = 1_048_576
EMPTY: list[Any] = []


def request(type: Any = "ping", **changes: Any) -> dict[str, Any]:
    return {"v": "push.runtime.v1", "kind": "request", "requestId": "req_h", "type": type, "payload": {}, **changes}


def encode_frame(type: Any = "ping", **changes: Any) -> bytes:
    return json.dumps(request(type, **changes), ensure_ascii=False).encode()


async def answer(client: PushClient, frame: bytes) -> ReceivedResponse:
    """What this frame is answered with; and the connection goes on."""
    await client.send_frames(frame)
    response = await client.wait_for_response()
    await client.ping()
    assert not client.responses, "one frame, one answer"
    return response


NOT_ENVELOPES = {
    "no JSON": b"hello",
    "half an object": b'{"v":"push.runtime.v1"',
    "two objects": encode_frame() + encode_frame(),
    "something behind": encode_frame() + b"]",
    "an array": b"[]",
    "an array of fields": b'["push.runtime.v1","request","req_1","ping",{}]',
    "a string": b'"ping"',
    "a number": b"42",
    "a huge number": b"9" * 100_000,
    "a tiny fraction": b"0." + b"0" * 100_000 + b"1",
    "null": b"null",
    "true": b"true",
    "NaN": b"NaN",
    "an empty object": b"{}",
    "a byte order mark": b"\xef\xbb\xbf" + encode_frame(),
    "a NUL before it": b"\0" + encode_frame(),
    "a NUL alone": b"\0",
    "single quotes": encode_frame().replace(b'"', b"'"),
    "UTF-16": encode_frame().decode().encode("utf-16"),
    "Latin-1": encode_frame(extra="ü").decode().encode("latin-1"),
    "a stray continuation byte": encode_frame(extra="X").replace(b"X", b"\x80"),
    "a cut character": encode_frame(extra="X").replace(b"X", b"\xf0\x9f\x98"),
    "an overlong slash": encode_frame(extra="X").replace(b"X", b"\xc0\xaf"),
    "an encoded surrogate": encode_frame(extra="X").replace(b"X", b"\xed\xa0\x80"),
    "an unpaired surrogate escape": encode_frame(extra="X").replace(b"X", b"\\ud800"),
    "an unpaired surrogate in a text": encode_frame(
        "send_user_message", payload={"clientMessageId": "msg_1", "text": "X"}, sessionId="sess_1"
    ).replace(b"X", b"\\udfff"),
    "a surrogate pair the wrong way round": encode_frame(extra="X").replace(b"X", b"\\udc00\\ud800"),
    "a bad key": encode_frame(X=1).replace(b"X", b"\xff"),
    "an open nest": b"[" * 100_000,
    "a closed nest": b"[" * 100_000 + b"]" * 100_000,
    "a nest of objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a nested payload": encode_frame(payload="X").replace(b'"X"', b"[" * 100_000 + b"]" * 100_000),
    "a nested unknown field": encode_frame(extra="X").replace(b'"X"', b"[" * 100_000 + b"]" * 100_000),
    "a raw control character": encode_frame(extra="X").replace(b"X", b"\x01"),
    "escapes that do not exist": encode_frame(extra="X").replace(b"X", b"\\x41"),
}


@pytest.mark.requirement("push:transport:framing", "push:error:INVALID_REQUEST")
@pytest.mark.parametrize("frame", NOT_ENVELOPES.values(), ids=NOT_ENVELOPES.keys())
async def test_what_is_no_envelope_is_an_invalid_request(client_per_transport: PushClient, frame: bytes) -> None:
    response = await answer(client_per_transport, frame)
    assert response.frame == {
        "v": "push.runtime.v1",
        "kind": "response",
        "requestId": "req_unknown",
        "type": "unknown",
        "ok": False,
        "payload": {},
        "error": {"code": "INVALID_REQUEST", "message": response.frame["error"]["message"], "retryable": False},
    }


WRONG = {"a number": 7, "a fraction": 0.5, "true": True, "an array": [], "an object": {}, "null": None}

TYPES: dict[str, dict[str, Any]] = {
    "hello": {"clientName": "a", "clientVersion": "b", "capabilities": ["c"]},
    "start_session": make_start_payload("/tmp", metadata={}),
    "list_sessions": {"limit": 5},
    "attach_session": {"sessionId": "sess_1", "lastSeenSeq": 0, "attachToken": "att_1"},
    "resume_session": {"sessionId": "sess_1", "lastSeenSeq": 0, "attachToken": "att_1"},
    "send_user_message": {"sessionId": "sess_1", "clientMessageId": "msg_1", "text": "x", "acceptanceCriteria": []},
    "submit_approval": {"sessionId": "sess_1", "runId": "run_1", "approvalId": "appr_1", "decision": "deny", "comment": "c"},
    "cancel_run": {"sessionId": "sess_1", "runId": "run_1", "reason": "r"},
}
OPTIONAL = {"attachToken", "comment", "reason", "sessionId", "runId", "clientMessageId", "sandboxProvider"}


def list_wrong_fields() -> list[Any]:
    """Each field of each payload with each value that is not of its type."""
    cases = []
    for type_, payload in TYPES.items():
        for field, right in payload.items():
            for name, wrong in {**WRONG, "a string": "x"}.items():
                fits = type(wrong) is type(right) and not (isinstance(right, str) and "_" in right)
                nullable = wrong is None and field in OPTIONAL
                free_text = isinstance(wrong, str) and field in ("comment", "reason", "text", "provider")
                if not (fits or nullable or free_text):
                    cases.append(pytest.param(type_, {**payload, field: wrong}, id=f"{type_}.{field} is {name}"))
    return cases


@pytest.mark.requirement("push:error:INVALID_REQUEST")
async def test_a_field_of_the_wrong_type_is_an_invalid_request(client_per_transport: PushClient) -> None:
    cases = list_wrong_fields()
    assert len(cases) > 150
    for case in cases:
        type_, payload = case.values
        response = await client_per_transport.request(type_, payload)
        assert (response.code, response.type) == ("INVALID_REQUEST", type_), case.id
        assert "sessionId" not in response.frame or response.session_id


@pytest.mark.requirement("push:error:INVALID_REQUEST", "push:envelope:request-fields")
@pytest.mark.parametrize(
    "changes",
    [
        *({"v": value} for value in (1, None)),
        *({"kind": value} for value in (1, "event", "response", "")),
        *({"requestId": value} for value in (1, None, "")),
        *({"type": value} for value in (5, None)),
        *({"payload": value} for value in (None, EMPTY, "x", 1)),
        *({"sessionId": value} for value in (1, "", "x", EMPTY)),
    ],
    ids=str,
)
async def test_an_envelope_with_a_wrong_field_is_an_invalid_request(
    client_per_transport: PushClient, changes: dict[str, Any]
) -> None:
    response = await answer(client_per_transport, encode_frame(**changes))
    assert response.code == "INVALID_REQUEST"
    assert response.request_id == ("req_unknown" if "requestId" in changes else "req_h"), "answered as far as it can be read"


@pytest.mark.requirement("push:error:INVALID_REQUEST", "push:envelope:request-fields")
@pytest.mark.parametrize("field", ["v", "kind", "requestId", "type", "payload"])
async def test_an_envelope_without_a_field_is_an_invalid_request(client_per_transport: PushClient, field: str) -> None:
    frame = request()
    del frame[field]
    response = await answer(client_per_transport, json.dumps(frame).encode())
    assert response.code == "INVALID_REQUEST"
    assert response.request_id == ("req_unknown" if field == "requestId" else "req_h")


@pytest.mark.requirement("push:ids:pattern", "push:error:INVALID_REQUEST")
@pytest.mark.parametrize(
    "forged",
    [
        *("", "sess", "sess_", "SESS_1", "run_1", " sess_1", "sess_1 ", "sess_a b", "sess_a\n", "sess_\0"),
        *("sess_a/b", "sess_../../etc/passwd", "sess_a\\b", "sess_%2e", "sess_'; DROP TABLE sessions; --"),
        *("sess_ü", "sess_\U0001f600", "sess_" + "x" * 10_000),
    ],
)
async def test_forged_ids_are_refused_wherever_they_stand(client: PushClient, forged: str) -> None:
    for place in ("envelope", "payload"):
        payload = {"lastSeenSeq": 0} | ({"sessionId": forged} if place == "payload" else {})
        envelope = {"sessionId": forged} if place == "envelope" else {}
        assert (await client.request("attach_session", payload, **envelope)).code == "INVALID_REQUEST"
    swapped = {
        "clientMessageId": forged.replace("sess", "msg"),
        "approvalId": forged.replace("sess", "appr"),
        "runId": forged.replace("sess", "run").replace("run_1", "sess_1"),
        "attachToken": forged.replace("sess", "att"),
    }
    for type_, payload in TYPES.items():
        for field in swapped.keys() & payload.keys():
            changed = {**payload, field: swapped[field]}
            assert (await client.request(type_, changed)).code == "INVALID_REQUEST", (type_, field)
    request_id = forged.replace("sess", "req")
    response = await answer(client, encode_frame(requestId=request_id))
    assert response.code == "INVALID_REQUEST"
    assert response.request_id == (request_id if 1 <= len(request_id) <= 256 else "req_unknown"), "its client can match it"


@pytest.mark.requirement("push:envelope:session-required", "push:error:INVALID_REQUEST")
async def test_a_session_that_is_missing_or_named_twice_differently_is_an_invalid_request(
    client: PushClient, workspace: Path
) -> None:
    session_id = (await client.start_session(workspace)).session_id
    for type_ in ("attach_session", "resume_session", "send_user_message", "submit_approval", "cancel_run"):
        nameless = {field: value for field, value in TYPES[type_].items() if field != "sessionId"}
        assert (await client.request(type_, nameless)).code == "INVALID_REQUEST"
        assert (await client.request(type_, {**nameless, "sessionId": None}, sessionId=None)).code == "INVALID_REQUEST"
        conflicting = {**nameless, "sessionId": session_id}
        assert (await client.request(type_, conflicting, session_id="sess_other")).code == "INVALID_REQUEST"
        assert (await client.request(type_, {**nameless, "sessionId": "sess_other"}, session_id=session_id)).code == (
            "INVALID_REQUEST"
        )


@pytest.mark.requirement("push:error:INVALID_REQUEST")
@pytest.mark.parametrize("depth", [100, 500, 900, 1_100, 50_000])
async def test_nested_metadata_is_taken_or_refused_and_never_a_bug(client: PushClient, workspace: Path, depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    frame = encode_frame("start_session", payload=make_start_payload(workspace, metadata="X")).replace(b'"X"', nested)
    response = await answer(client, frame)
    assert response.code == (None if depth < 950 else "INVALID_REQUEST")


@pytest.mark.requirement("push:transport:framing")
async def test_of_a_repeated_key_the_last_counts(client: PushClient) -> None:
    doubled = encode_frame()[:-1] + b',"requestId":"req_last"}'
    assert (await answer(client, doubled)).request_id == "req_last"
    contradicting = encode_frame()[:-1] + b',"kind":"event"}'
    assert (await answer(client, contradicting)).code == "INVALID_REQUEST"


@pytest.mark.requirement("push:transport:framing")
async def test_white_space_around_a_frame_is_no_matter(client_per_transport: PushClient) -> None:
    for frame in (b"  " + encode_frame() + b"\t ", encode_frame() + b"\r", json.dumps(request(), indent=None).encode()):
        assert (await answer(client_per_transport, frame)).ok


@pytest.mark.requirement("push:transport:line-limit", "push:error:INVALID_REQUEST")
@pytest.mark.parametrize("pieces", [1, 40])
async def test_an_oversized_line_is_answered_and_the_socket_survives(client: PushClient, pieces: int) -> None:
    line = encode_frame(extra="x" * (MIB + 1)) + b"\n"
    size = -(-len(line) // pieces)
    for start in range(0, len(line), size):
        client.wire.send_bytes(line[start : start + size])
        await client.wire.drain()
    response = await client.wait_for_response()
    assert (response.code, response.request_id) == ("INVALID_REQUEST", "req_unknown")
    await client.ping()
    assert not client.responses


@pytest.mark.requirement("push:transport:line-limit")
async def test_a_line_of_exactly_the_limit_is_taken(client_per_transport: PushClient) -> None:
    frame = encode_frame(extra="")
    frame = frame[:-2] + b"x" * (MIB - len(frame)) + frame[-2:]
    assert len(frame) == MIB
    assert (await answer(client_per_transport, frame)).ok
    if isinstance(client_per_transport.wire, SocketWire):
        assert (await answer(client_per_transport, frame[:-2] + b'x"}')).code == "INVALID_REQUEST"


@pytest.mark.requirement("push:transport:line-limit")
@pytest.mark.parametrize("spread", [False, True], ids=["one frame", "fragments"])
async def test_an_oversized_message_closes_a_websocket_with_1009(
    push_daemon: ManagedDaemon, connect: Connect, spread: bool
) -> None:
    client = await connect(push_daemon, "websocket")
    if spread:
        fragment = bytearray(encode_websocket_frame(b"x" * (MIB // 2)))
        fragment[0] &= 0x7F
        following = bytes((fragment[0] & 0xF0,)) + bytes(fragment[1:])
        client.wire.send_bytes(bytes(fragment) + following + following)
    else:
        client.wire.send(b"x" * (MIB + 1))
    await client.wait_closed()
    assert isinstance(client.wire, WebSocketWire)
    assert client.wire.close_code == 1009
    assert (await (await connect(push_daemon, "websocket")).ping()) > 0


def encode_line(frame: bytes) -> bytes:
    return frame + b"\n"


SPELL: dict[str, Callable[[bytes], bytes]] = {"socket": encode_line, "websocket": encode_websocket_frame}


@pytest.mark.requirement("push:transport:utf8-split", "push:transport:framing")
async def test_a_frame_in_single_bytes_is_whole_again(client_per_transport: PushClient, workspace: Path, transport: str) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    text = "say: grüße 😀 漢字"
    frame = encode_frame("send_user_message", payload={"clientMessageId": "msg_1", "text": text}, sessionId=session_id)
    for byte in SPELL[transport](frame):
        client_per_transport.wire.send_bytes(bytes((byte,)))
        await client_per_transport.wire.drain()
    assert (await client_per_transport.wait_for_response("req_h")).ok
    events = await client_per_transport.read_until("run_complete")
    assert "".join(event.payload["text"] for event in events if event.type == "assistant_token") == "grüße 😀 漢字"


@pytest.mark.requirement("push:transport:utf8-split")
async def test_a_character_split_at_every_place_is_whole_again(
    client_per_transport: PushClient, workspace: Path, transport: str, push_daemon: ManagedDaemon, connect: Connect
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    bystander = await connect(push_daemon)
    for cut in (1, 2, 3):
        payload = {"clientMessageId": f"msg_{cut}", "text": "say: 😀"}
        frame = encode_frame("send_user_message", payload=payload, sessionId=session_id)
        spelled = SPELL[transport](frame)
        head = len(spelled) - len(frame) if transport == "websocket" else 0
        place = head + frame.index("😀".encode()) + cut
        client_per_transport.wire.send_bytes(spelled[:place])
        await client_per_transport.wire.drain()
        await bystander.ping()  # by now the daemon has read the first part
        client_per_transport.wire.send_bytes(spelled[place:])
        assert (await client_per_transport.wait_for_response("req_h")).ok
        events = await client_per_transport.read_until("run_complete")
        assert "".join(event.payload["text"] for event in events if event.type == "assistant_token") == "😀"


@pytest.mark.requirement("push:transport:framing")
async def test_many_frames_in_one_write_are_each_answered_in_order(client_per_transport: PushClient, transport: str) -> None:
    frames = [encode_frame(requestId=f"req_{number}") for number in range(300)]
    client_per_transport.wire.send_bytes(b"".join(SPELL[transport](frame) for frame in frames))
    assert [(await client_per_transport.wait_for_response()).request_id for _ in frames] == [
        f"req_{number}" for number in range(300)
    ]


@pytest.mark.requirement("push:transport:framing")
async def test_empty_lines_are_skipped(client: PushClient) -> None:
    client.wire.send_bytes(b"\n\r\n\n" + encode_line(encode_frame()) + b"\n\n")
    assert (await client.wait_for_response()).ok
    await client.ping()
    assert not client.responses


@pytest.mark.requirement("push:error:INVALID_REQUEST")
async def test_error_messages_stay_short_whatever_was_sent(client: PushClient) -> None:
    long = "y" * 500_000
    for frame in (
        encode_frame(long),
        encode_frame(v=long),
        encode_frame(kind=long),
        encode_frame("attach_session", payload={"lastSeenSeq": long}),
    ):
        response = await answer(client, frame)
        assert response.error is not None
        assert len(response.error["message"]) < 1_000
