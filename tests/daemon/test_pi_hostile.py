"""Clients that mean harm, or do it: rubbish, floods, forged names and paths, ears that are shut. The daemon stays up, answers
the others, and stays small."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness, answer_to

from switchtower.testing.pi_client import Frame, PiClient
from switchtower.testing.wire import encode_websocket_frame

MIB = 1024 * 1024


async def is_well(pi_harness: PiHarness) -> None:
    client = await pi_harness.connect()
    assert (await client.execute("health_check"))["healthy"] is True
    log = pi_harness.daemon.log()
    assert "Traceback" not in log, log[-3000:]


RUBBISH: list[bytes] = [
    b" ",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"1e999",
    b"NaN",
    b'{"type": "list_sessions"} {}',
    b'{"type": "list_sessions"',
    b'{"type": 7}',
    b'{"type": null}',
    b'{"type": ["list_sessions"]}',
    b"{}",
    b'{"id": "x"}',
    b'{"type": "no such thing", "id": "x"}',
    b'{"type": "' + b"a" * 100_000 + b'"}',
    b'{"type": "list_sessions", "id": 5}',
    b'{"type": "list_sessions", "id": ""}',
    b'{"type": "list_sessions", "id": "anon:1:1"}',
    b'{"type": "list_sessions", "id": "' + b"i" * 257 + b'"}',
    b'{"type": "list_sessions", "dependsOn": "x", "id": "y"}',
    b'{"type": "list_sessions", "dependsOn": ["x"]}',
    b'{"type": "list_sessions", "id": "y2", "dependsOn": [' + b",".join(b'"d%d"' % n for n in range(33)) + b"]}",
    b'{"type": "get_state"}',
    b'{"type": "get_state", "sessionId": null}',
    b'{"type": "get_state", "sessionId": {"$ne": ""}}',
    b'{"type": "get_state", "sessionId": "s", "ifSessionVersion": 1e400}',
    b'{"type": "set_session_name", "sessionId": "s", "name": "n", "ifSessionVersion": -1}',
    b'{"type": "set_session_name", "sessionId": "s", "name": "n", "ifSessionVersion": 99999999999999999999999999}',
    b'{"type": "create_session", "cwd": 4}',
    b'{"type": "create_session", "cwd": "relative"}',
    b'{"type": "create_session", "cwd": "/no/such/folder"}',
    b'{"type": "create_session", "cwd": "/tmp/\\u0000"}',
    b'{"type": "create_session", "sessionId": "../../etc"}',
    b'{"type": "create_session", "sessionId": "' + b"s" * 257 + b'"}',
    b'{"type": "list_sessions", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"type": "list_sessions", "id": "\\ud800"}',
]


async def test_each_piece_of_rubbish_is_refused_by_itself_and_the_connection_goes_on(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    for unix in (False, True):
        client = await pi_harness.connect(unix=unix)
        for number, rubbish in enumerate(RUBBISH):
            before = len(client.frames)
            await client.send_frames(rubbish)
            answer = await client.next(lambda frame: frame["type"] == "response")
            assert answer["success"] is False, (rubbish[:80], answer)
            assert len(answer["error"]) < 1_000
            assert "Internal error" not in answer["error"], rubbish[:80]
            marker = f"{unix}-{number}"
            await client.send_frames({"type": "list_sessions", "id": marker})
            assert (await client.next(lambda frame: frame["type"] == "response"))["id"] == marker, (rubbish[:80], answer)
            assert len(client.frames) >= before + 2
    await is_well(pi_harness)


async def test_bytes_that_are_no_text_and_frames_of_bytes_hurt_nobody(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    for payload in (b"\xff\xfe\x00{", bytes(range(256)), '{"type":"list_sessions"}'.encode("utf-16")):
        for raw in (encode_websocket_frame(payload), encode_websocket_frame(payload, opcode=2)):
            client = await pi_harness.connect()
            client.wire.send_bytes(raw)
            try:
                answer = await client.receive()
            except (EOFError, ConnectionError):
                continue
            assert answer["success"] is False
            assert answer["command"] == "unknown"
        by_socket = await pi_harness.connect(unix=True)
        by_socket.wire.send_bytes(payload.replace(b"\n", b"") + b"\n")
        assert (await by_socket.receive())["success"] is False
    noise = await pi_harness.connect()
    noise.wire.send_bytes(os.urandom(100_000))
    noise.wire.abort()
    await is_well(pi_harness)


async def test_ten_mebibytes_are_read_and_one_byte_more_is_told(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    for unix in (False, True):
        client = await pi_harness.connect(unix=unix)
        largest = b'{"type":"list_sessions","id":"large","x":"' + b"x" * (10 * MIB)
        largest = largest[: 10 * MIB - 2] + b'"}'
        await client.send_frames(largest)
        assert (await client.wait_for_response("large"))["success"] is True
        await client.send_frames(largest[:-2] + b'x"}')
        refused = await client.wait_for(lambda frame: frame["type"] == "response" and not frame["success"])
        assert refused["error"] == f"Message size {10 * MIB + 1} exceeds limit {10 * MIB}"
        await client.send_frames({"type": "list_sessions", "id": "next"})
        assert (await client.wait_for_response("next"))["success"] is True
    assert (await client.execute("get_metrics"))["commandsRejected"]["messageSize"] == 2
    await is_well(pi_harness)


async def test_a_flood_is_held_to_its_rate_and_others_are_not(pi_harness: PiHarness) -> None:
    await pi_harness.open(pi_session_rate=20, pi_client_rate=50)
    flooder, neighbour = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(flooder)
    flood = [{"type": "get_state", "sessionId": session_id, "id": f"s-{number}"} for number in range(100)]
    flood += [{"type": "list_sessions", "id": f"a-{number}"} for number in range(100)]
    await flooder.send_frames(*flood)
    await flooder.wait_for_response("a-99")
    answers = [frame for frame in flooder.frames if frame["type"] == "response" and frame["id"][:2] in ("s-", "a-")]
    errors = [frame.get("error") for frame in answers]
    assert len(answers) == 200, "each is answered"
    # Two commands made the session, and one of them named it.
    assert errors.count(None) == 48
    assert errors.count("Rate limit exceeded (20 commands/minute)") == 81
    assert errors.count("Rate limit exceeded (50 commands/minute)") == 71
    assert (await neighbour.execute("get_state", sessionId=session_id))["sessionId"] == session_id
    rejected = (await neighbour.execute("get_metrics"))["commandsRejected"]
    assert (rejected["rateLimit"], rejected["globalRateLimit"]) == (81, 71)


def forge_file(home: Path, session_id: str) -> dict[str, str]:
    sessions = home / ".pi" / "agent" / "sessions"
    ours = sessions / "switchtower"
    return {
        "relative": "sessions/x.jsonl",
        "home": "~/.pi/agent/sessions/x.jsonl",
        "dots": f"{ours}/../switchtower/{session_id}.jsonl",
        "dots out": f"{sessions}/../../../secret.jsonl",
        "outside": str(home / "secret.jsonl"),
        "passwd": "/etc/passwd",
        "NUL": f"{ours}/{session_id}.jsonl\0.txt",
        "directory": str(sessions),
        "prefix": f"{sessions}-of-others/x.jsonl",
        "link": str(sessions / "link.jsonl"),
        "linked folder": str(sessions / "folder" / "secret.jsonl"),
        "project link": str(home / "ws" / ".pi" / "sessions" / "link.jsonl"),
        "folder as file": str(sessions / "empty.jsonl"),
        "nothing": str(sessions / "nothing.jsonl"),
        "ours but no name": str(ours / "not a name.jsonl"),
        "ours but unknown": str(ours / "sess_00000000000000000000000000.jsonl"),
        "long": "/" + "a" * 5_000,
        "long part": str(sessions / ("a" * 300)),
        "surrogate": str(sessions / "\udcff.jsonl"),
        "empty": "",
    }


@pytest.mark.parametrize("command", ["load_session", "switch_session_file"])
async def test_forged_paths_lead_nowhere(pi_harness: PiHarness, command: str) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    header = {"type": "session", "version": 3, "id": "stolen", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}
    entry = {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "a secret"}}
    secret = pi_harness.home / "secret.jsonl"
    secret.write_text(f"{json.dumps(header)}\n{json.dumps(entry)}\n")
    project = pi_harness.workspace / ".pi" / "sessions"
    for folder in (pi_harness.sessions_dir, project):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "link.jsonl").symlink_to(secret)
    (pi_harness.sessions_dir / "folder").symlink_to(pi_harness.home)
    (pi_harness.sessions_dir / "empty.jsonl").mkdir()
    for what, path in forge_file(pi_harness.home, session_id).items():
        fields: dict[str, Any] = {"sessionPath": path}
        if command == "switch_session_file":
            fields["sessionId"] = session_id
        raw = json.dumps({"type": command, "id": what, **fields}).encode()
        await client.send_frames(raw)
        answer = await client.next(lambda frame: frame["type"] == "response" and frame["command"] in (command, "unknown"))
        assert answer["success"] is False, (what, answer)
        assert answer.get("id") == what or what == "surrogate"
        assert "a secret" not in answer["error"]
        assert "Internal" not in answer["error"], what
    assert (await client.execute("get_messages", sessionId=session_id)) == {"messages": []}
    assert len((await client.execute("list_sessions"))["sessions"]) == 1
    await is_well(pi_harness)


async def test_links_that_lead_outside_are_not_listed(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    secret = pi_harness.home / "secret.jsonl"
    secret.write_text(
        '{"type": "session", "version": 3, "id": "stolen", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/private"}\n'
    )
    pi_harness.sessions_dir.mkdir(parents=True)
    (pi_harness.sessions_dir / "link.jsonl").symlink_to(secret)
    assert (await client.execute("list_stored_sessions"))["sessions"] == []


@pytest.mark.parametrize("command", ["load_session", "list_stored_sessions"])
async def test_a_pipe_among_the_files_holds_up_nobody(pi_harness: PiHarness, command: str) -> None:
    """Whoever opens a pipe waits for its other end."""
    await pi_harness.open()
    client = await pi_harness.connect(timeout=5)
    pi_harness.sessions_dir.mkdir(parents=True)
    pipe = pi_harness.sessions_dir / "pipe.jsonl"
    os.mkfifo(pipe)
    answer = await client.request(command, **({"sessionPath": str(pipe)} if command == "load_session" else {}))
    assert answer["success"] is (command == "list_stored_sessions")


FORGED_IDS = ["..", "/", "../x", "a/b", "a b", "s\0", "", "é", "sess_" + "0" * 26, "x" * 257, "-rf", "%s%n", ".", "a\nb"]


async def test_forged_session_ids_are_nobody_s(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    commands: list[Frame] = [{"type": type_} for type_ in ("get_state", "switch_session", "delete_session")]
    commands += [{"type": "prompt", "message": "say: x"}, {"type": "bash", "command": "touch forged"}]
    for command in commands:
        for session_id in FORGED_IDS:
            answer = await answer_to(client, {**command, "id": client.make_id(), "sessionId": session_id})
            assert answer["success"] is False
            not_found = answer["error"] == f"Session {session_id} not found"
            assert not_found or answer["error"].startswith("Validation failed: sessionId")
    assert (await client.execute("list_sessions")) == {"sessions": []}
    await is_well(pi_harness)


async def test_a_hundred_thousand_keys_and_ids_leave_the_daemon_small(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect(lifecycle=False)
    await pi_harness.start_session(client)
    await _send_keys(client, 5_000, "warm")
    before = pi_harness.measure_resident_mb()
    await _send_keys(client, 100_000, "many")
    assert pi_harness.measure_resident_mb() - before < 60
    stores = (await client.execute("get_metrics"))["stores"]["replay"]
    assert stores["idempotencyCacheSize"] <= 10_000
    assert stores["outcomeCount"] <= 2_000
    await is_well(pi_harness)


async def _send_keys(client: PiClient, count: int, name: str) -> None:
    batch = 2_500
    for first in range(0, count, batch):
        await client.send_frames(
            *(
                b'{"type":"list_sessions","id":"%b-%d","idempotencyKey":"key-%b-%d"}' % (name.encode(), n, name.encode(), n)
                for n in range(first, first + batch)
            )
        )
        for _ in range(batch):
            assert b'"success":true' in await client.wire.receive()


async def test_one_who_never_reads_costs_little_and_holds_up_nobody(pi_harness: PiHarness) -> None:
    await pi_harness.open(pi_session_rate=100, pi_client_rate=1_000)
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    deaf = await pi_harness.connect(unix=True)
    await deaf.execute("switch_session", sessionId=session_id)
    before = pi_harness.measure_resident_mb()
    asking = b'{"type":"get_messages","sessionId":"%b"}\n' % session_id.encode()
    deaf.wire.send_bytes(asking * 20_000)
    for number in range(3):
        await client.execute("prompt", sessionId=session_id, message=f"count {4_000 + number}")
    grown = pi_harness.measure_resident_mb() - before
    assert grown < 150, grown
    deaf.wire.abort()
    await is_well(pi_harness)


async def test_one_who_does_not_hear_what_all_are_told_is_cut_off_once_and_for_all(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect(lifecycle=False)
    await pi_harness.connect(unix=True)  # is told of every command, and reads nothing
    for number in range(20):
        await _send_keys(client, 10_000, f"round-{number}")
        if "does not read" in pi_harness.daemon.log():
            break
    await _send_keys(client, 10_000, "after")
    assert pi_harness.daemon.log().count("does not read") == 1
    async with asyncio.timeout(60):
        while (await client.execute("get_metrics"))["connectionCount"] > 1:
            pass


async def test_many_who_never_read_are_cut_off_or_fed_later_but_never_kept_whole(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect(lifecycle=False)
    session_id = await pi_harness.start_session(client)
    deaf = [await pi_harness.connect(unix=True) for _ in range(20)]
    for one in deaf:
        await one.execute("switch_session", sessionId=session_id)
    before = pi_harness.measure_resident_mb()
    for _ in range(2):
        await client.execute("prompt", sessionId=session_id, message="count 4000")
    grown = pi_harness.measure_resident_mb() - before
    # Everything for everyone would be 20 times some 8 MB.
    assert grown < 100, grown


async def test_huge_answers_and_deep_values_in_the_places_where_anything_goes(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    deep: Frame = {"a": 1}
    for _ in range(50):
        deep = {"a": deep}
    long_text = "x" * 200_001
    for command, field in (
        ({"type": "prompt", "message": long_text}, "message"),
        ({"type": "steer", "message": long_text}, "message"),
        ({"type": "bash", "command": "x" * 20_001}, "command"),
        ({"type": "set_session_name", "name": "x" * 257}, "name"),
        ({"type": "export_html", "outputPath": "/" + "x" * 4_097}, "outputPath"),
        ({"type": "extension_ui_response", "requestId": "r" * 257, "response": {"method": "cancelled"}}, "requestId"),
        ({"type": "extension_ui_response", "requestId": "r", "response": deep}, "response"),
        ({"type": "prompt", "message": "x", "images": [deep]}, "images"),
        ({"type": "set_thinking_level", "level": "infinite"}, "level"),
        ({"type": "fork", "entryId": ["x"]}, "entryId"),
    ):
        answer = await answer_to(client, {**command, "id": client.make_id(), "sessionId": session_id})
        assert answer["error"].startswith(f"Validation failed: {field}"), (command["type"], answer)
        assert client.list_lifecycle(answer["id"]) == [answer]
    answer = await client.request("fork", sessionId=session_id, entryId="no such entry")
    assert answer["success"] is False
    assert "Internal" not in answer["error"]
    await is_well(pi_harness)
