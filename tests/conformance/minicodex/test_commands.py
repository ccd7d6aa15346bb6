"""Commands: how they are answered, what is refused, and that a refusal changes nothing."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.minicodex.conftest import Enter

from switchtower.testing.minicodex_client import MiniCodexClient

UUID = "01a1e2c0-bc06-e159-79bb-c9dbe2266e69"

REFUSED = [
    (b"nonsense", "INVALID_COMMAND"),
    (b"[]", "INVALID_COMMAND"),
    (b"null", "INVALID_COMMAND"),
    (b'"send"', "INVALID_COMMAND"),
    (b"[" * 100_000, "INVALID_COMMAND"),
    (b'{"type":"send","text":' + b'{"a":' * 50_000, "INVALID_COMMAND"),
    (b"{}", "MISSING_FIELD"),
    (b'{"type":"dance"}', "INVALID_COMMAND"),
    (b'{"type":7}', "INVALID_COMMAND"),
    (b'{"type":"welcome"}', "INVALID_COMMAND"),
    (b'{"type":"hello"}', "MISSING_FIELD"),
    (b'{"type":"send"}', "MISSING_FIELD"),
    (b'{"type":"send","text":7}', "BAD_ARGUMENT"),
    (b'{"type":"send","text":null}', "BAD_ARGUMENT"),
    (b'{"type":"send","text":"x","extra":1}', "BAD_ARGUMENT"),
    (b'{"type":"send","text":"x","client_msg_id":7}', "BAD_ARGUMENT"),
    (b'{"type":"send","text":"x","event_id":-1}', "BAD_ARGUMENT"),
    (b'{"type":"approve"}', "MISSING_FIELD"),
    (b'{"type":"approve","call_id":["x"]}', "BAD_ARGUMENT"),
    (b'{"type":"approve","call_id":"nobody asked"}', "UNKNOWN_CALL_ID"),
    (b'{"type":"deny"}', "MISSING_FIELD"),
    (b'{"type":"deny","call_id":"nobody asked"}', "UNKNOWN_CALL_ID"),
    (b'{"type":"deny","call_id":"x","abort":true}', "BAD_ARGUMENT"),
    (b'{"type":"abort"}', "NOT_RUNNING"),
    (b'{"type":"abort","run_id":"%b"}' % UUID.encode(), "NOT_RUNNING"),
    (b'{"type":"abort","run_id":"no uuid"}', "BAD_ARGUMENT"),
    (b'{"type":"get_snapshot","include_transcript_window":"yes"}', "BAD_ARGUMENT"),
    (b'{"type":"ping","nonce":7}', "BAD_ARGUMENT"),
    (b'{"type":"ping","req_id":7}', "BAD_ARGUMENT"),
    (b'{"type":"resume","last_seen_event_id":-1}', "BAD_ARGUMENT"),
    (b'{"type":"resume","last_seen_event_id":1.5}', "BAD_ARGUMENT"),
    (b'{"type":"resume","last_seen_event_id":99999999999999999999999}', "BAD_ARGUMENT"),
]


@pytest.mark.requirement("minicodex:errors:codes", "minicodex:errors:no-state-change", "minicodex:envelope:strict")
@pytest.mark.parametrize(("frame", "code"), REFUSED, ids=lambda value: str(value)[:48])
async def test_a_refused_command_is_answered_with_its_code_and_changes_nothing(
    minicodex_client: MiniCodexClient, frame: bytes, code: str
) -> None:
    await minicodex_client.run("say: before")
    before = await minicodex_client.request_snapshot()
    await minicodex_client.send_frames(frame)
    answer = await minicodex_client.receive()
    assert (answer["type"], answer["code"]) == ("error", code)
    assert answer["message"]
    assert "event_id" not in answer
    assert await minicodex_client.request_snapshot() == before == minicodex_client.ledger.build_snapshot()
    await minicodex_client.run("say: after")


@pytest.mark.requirement("minicodex:envelope:req-id")
async def test_answers_carry_the_id_of_their_command_and_only_then(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.send_frames(
        {"type": "ping", "req_id": "a"}, {"type": "dance", "req_id": "b"}, {"type": "send", "req_id": "c"}
    )
    assert [(await minicodex_client.receive())["req_id"] for _ in range(3)] == ["a", "b", "c"]
    await minicodex_client.send_frames({"type": "ping"}, {"type": "dance"}, {"type": "get_snapshot"})
    assert ["req_id" in await minicodex_client.receive() for _ in range(3)] == [False, False, False]


@pytest.mark.requirement("minicodex:commands:ping")
async def test_a_ping_is_accepted_with_its_id_or_else_its_nonce(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.send_frames(
        {"type": "ping", "nonce": "n1"}, {"type": "ping", "nonce": "n2", "req_id": "r2"}, {"type": "ping"}
    )
    assert [await minicodex_client.receive() for _ in range(3)] == [
        {"type": "accepted", "req_id": "n1"},
        {"type": "accepted", "req_id": "r2"},
        {"type": "accepted"},
    ]


@pytest.mark.requirement("minicodex:envelope:fields")
async def test_every_field_of_the_envelope_may_be_sent_with_any_command(minicodex_client: MiniCodexClient) -> None:
    envelope = {
        "v": "1.0.0",
        "session_id": minicodex_client.session_id,
        "run_id": None,
        "event_id": 1,
        "ts": "2026-01-02T03:04:05Z",
    }
    await minicodex_client.execute("ping", **envelope)
    await minicodex_client.execute("send", text="say: hi", **envelope)
    assert (await minicodex_client.wait_for_end())["status"] == "finished"


NULLS = {"v": None, "session_id": None, "run_id": None, "event_id": None, "ts": None}


@pytest.mark.requirement("minicodex:envelope:stale-run", "minicodex:errors:no-state-change")
async def test_a_command_for_another_run_is_stale_and_decides_nothing(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.run("say: the last run")
    last = minicodex_client.ledger.run_state
    assert last is not None
    assert await minicodex_client.expect_error("send", text="say: hi", run_id=last["run_id"]) == "STALE_RUN_ID"
    await minicodex_client.execute("send", text="run: touch ran", **NULLS)
    pending = await minicodex_client.next_of_type("approval_pending")
    await minicodex_client.wait_for_status("awaiting_approval")
    before = await minicodex_client.request_snapshot()
    for run_id in (last["run_id"], UUID):
        for command in ({"type": "approve"}, {"type": "deny"}):
            assert (
                await minicodex_client.expect_error(command["type"], call_id=pending["call_id"], run_id=run_id) == "STALE_RUN_ID"
            )
        assert await minicodex_client.expect_error("abort", run_id=run_id) == "STALE_RUN_ID"
        assert await minicodex_client.expect_error("send", text="say: hi", run_id=run_id) == "STALE_RUN_ID"
    assert await minicodex_client.request_snapshot() == before
    await minicodex_client.execute("approve", call_id=pending["call_id"], run_id=pending["run_id"].upper())
    assert (await minicodex_client.wait_for_end())["status"] == "finished"
    assert await minicodex_client.expect_error("approve", call_id=pending["call_id"], run_id=pending["run_id"]) == "STALE_RUN_ID"


@pytest.mark.requirement("minicodex:envelope:other-session", "minicodex:errors:no-state-change")
@pytest.mark.parametrize(
    "command",
    [
        {"type": "send", "text": "say: hi"},
        {"type": "approve", "call_id": "x"},
        {"type": "deny", "call_id": "x"},
        {"type": "abort"},
        {"type": "get_snapshot"},
        {"type": "ping"},
        {"type": "hello", "v": "1.0.0"},
        {"type": "resume", "last_seen_event_id": 0},
    ],
    ids=lambda command: str(command["type"]),
)
async def test_a_command_for_another_session_is_refused(minicodex_client: MiniCodexClient, command: dict[str, object]) -> None:
    before = await minicodex_client.request_snapshot()
    await minicodex_client.send_frames({**command, "session_id": "sess_another"})
    answer = await minicodex_client.receive()
    assert (answer["code"], answer["details"]) == ("BAD_ARGUMENT", {"field": "session_id"})
    assert await minicodex_client.request_snapshot() == before
    await minicodex_client.run("say: after", session_id=minicodex_client.session_id)


@pytest.mark.requirement("minicodex:envelope:other-session")
async def test_a_hello_that_names_a_session_makes_no_new_one(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    client = await connect_minicodex(push_daemon, cwd=workspace)
    await client.send_frames({"type": "hello", "v": "1.0.0", "session_id": "sess_mine", "req_id": "r"})
    assert await client.receive() == {
        "type": "error",
        "code": "BAD_ARGUMENT",
        "message": "`session_id`: a session is chosen in the URL; hint: connect with `?session_id=`",
        "req_id": "r",
        "details": {"field": "session_id"},
    }
    await client.send_hello()


@pytest.mark.requirement("minicodex:envelope:in-order")
async def test_commands_are_answered_in_the_order_they_came(minicodex_client: MiniCodexClient) -> None:
    sent = [f"r{number}" for number in range(300)]
    await minicodex_client.send_frames(
        *({"type": "ping" if number % 3 else "get_snapshot", "req_id": id_} for number, id_ in enumerate(sent))
    )
    assert [(await minicodex_client.receive())["req_id"] for _ in sent] == sent


@pytest.mark.requirement("minicodex:commands:snapshot", "minicodex:state:snapshot-event-id")
async def test_a_snapshot_has_the_transcript_only_if_asked_for(minicodex_client: MiniCodexClient) -> None:
    await minicodex_client.run("say: one two")
    with_window, without, default = (
        await minicodex_client.request_snapshot(),
        await minicodex_client.request_snapshot(with_transcript=False),
        await minicodex_client.request("get_snapshot"),
    )
    assert without == {**with_window, "transcript": []}
    assert default["transcript"] == []
    assert with_window["transcript"][0]["type"] == "user_text"
    assert with_window["event_id"] == minicodex_client.ledger.last_event_id == with_window["session_state"]["last_event_id"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    ["call_id", "run_id", "text", "v", "abort", "nonce", "last_seen_event_id", "ts", "include_transcript_window", "x"]
)


@pytest.mark.requirement("minicodex:errors:hostile")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frame=st.binary(min_size=1, max_size=60)
    | st.tuples(
        st.sampled_from(["approve", "deny", "abort", "get_snapshot", "ping", "dance"]), st.dictionaries(names, json_values)
    )
)
async def test_rubbish_is_answered_and_nothing_breaks(
    minicodex_client: MiniCodexClient, frame: bytes | tuple[str, dict[str, object]]
) -> None:
    before = minicodex_client.ledger.build_snapshot()
    said = frame if isinstance(frame, bytes) else {"type": frame[0], **frame[1]}
    # WebSocket text is UTF-8; what is not ends the connection before any protocol sees it.
    await minicodex_client.send_frames(said if isinstance(said, dict) else said.decode(errors="replace").encode())
    assert (await minicodex_client.receive())["type"] in ("accepted", "error", "snapshot")
    assert await minicodex_client.request_snapshot() == before
