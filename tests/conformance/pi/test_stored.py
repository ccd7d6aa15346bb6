"""Stored sessions: listed with their paths, loaded by them, and by no path outside the allowed directories."""

import json
from pathlib import Path

import pytest
from tests.conformance.pi.stage import CheckedClient, PiDaemon


def write_session(path: Path, cwd: Path, *texts: str) -> str:
    """A file as pi writes it; the session's id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    session_id = f"foreign-{path.stem}"
    entries: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": session_id, "timestamp": "2026-02-28T10:00:00.000Z", "cwd": str(cwd)}
    ]
    parent = None
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1_772_272_800_000 + number}
        stamp = "2026-02-28T10:00:01.000Z"
        entries.append({"type": "message", "id": f"e{number}", "parentId": parent, "timestamp": stamp, "message": message})
        parent = f"e{number}"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return session_id


@pytest.mark.requirement("pi:stored:list", "pi:stored:file-exists")
async def test_stored_sessions_are_listed_with_both_names_of_their_path(pi_client: CheckedClient, workspace: Path) -> None:
    session_id = await pi_client.start_session(workspace)
    await pi_client.execute("set_session_name", sessionId=session_id, name="kept")
    await pi_client.execute("prompt", sessionId=session_id, message="say: hello")
    stored = {info["sessionId"]: info for info in (await pi_client.execute("list_stored_sessions"))["sessions"]}[session_id]
    assert (
        stored["sessionFile"]
        == stored["sessionPath"]
        == (await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]
    )
    assert (stored["cwd"], stored["sessionName"]) == (str(workspace), "kept")
    assert (stored["fileExists"], stored["messageCount"]) == (False, 2), "the journal has it, and there is no file"


@pytest.mark.requirement("pi:stored:load")
async def test_loading_what_is_loaded_is_refused(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    path = (await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]
    assert await pi_client.expect_refusal("load_session", sessionPath=path) == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:stored:load", "pi:event:session_created")
async def test_a_stored_session_is_loaded_with_its_conversation_and_announced(pi_client: CheckedClient) -> None:
    session_id = await pi_client.start_session()
    await pi_client.execute("prompt", sessionId=session_id, message="say: remembered")
    messages = (await pi_client.execute("get_messages", sessionId=session_id))["messages"]
    path = (await pi_client.execute("get_state", sessionId=session_id))["sessionFile"]
    await pi_client.execute("delete_session", sessionId=session_id)
    await pi_client.drain()
    pi_client.frames.clear()
    response = await pi_client.request("load_session", sessionPath=path)
    assert response["sessionVersion"] == 0
    assert response["data"]["sessionId"] == session_id
    created = await pi_client.wait_for(lambda frame: frame["type"] == "session_created")
    assert created["data"] == response["data"]
    assert (await pi_client.execute("get_messages", sessionId=session_id))["messages"] == messages
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: on we go"))["success"]


@pytest.mark.requirement("pi:stored:foreign", "pi:stored:file-exists", "pi:stored:keeps-id")
async def test_a_file_of_pis_own_is_listed_imported_and_continued(
    pi_client: CheckedClient, pi_daemon: PiDaemon, workspace: Path, pi_transport: str
) -> None:
    path = pi_daemon.home / ".pi" / "agent" / "sessions" / "--tmp--" / f"{pi_transport}.jsonl"
    stored_id = write_session(path, workspace, "what is it?", "a train")
    listed = {info["sessionId"]: info for info in (await pi_client.execute("list_stored_sessions"))["sessions"]}
    assert listed[stored_id]["sessionPath"] == str(path)
    assert (listed[stored_id]["fileExists"], listed[stored_id]["messageCount"]) == (True, 2)
    loaded = await pi_client.execute("load_session", sessionPath=str(path))
    session_id = loaded["sessionId"]
    assert session_id == stored_id
    assert await pi_client.expect_refusal("load_session", sessionPath=str(path)) == f"Session {stored_id} already exists"
    assert loaded["sessionInfo"]["messageCount"] == 2
    assert await pi_client.execute("get_last_assistant_text", sessionId=session_id) == {"text": "a train"}
    assert (await pi_client.request("prompt", sessionId=session_id, message="say: more"))["success"]
    assert len((await pi_client.execute("get_messages", sessionId=session_id))["messages"]) == 4


@pytest.mark.requirement("pi:stored:project-local", "pi:stored:load")
async def test_a_projects_own_sessions_can_be_loaded_under_an_id_of_the_clients_choice(
    pi_client: CheckedClient, workspace: Path
) -> None:
    path = workspace / ".pi" / "sessions" / "one.jsonl"
    write_session(path, workspace, "hello")
    session_id = f"mine-{pi_client.make_id()}"
    loaded = await pi_client.execute("load_session", sessionPath=str(path), sessionId=session_id)
    assert loaded["sessionId"] == session_id
    error = await pi_client.expect_refusal("load_session", sessionPath=str(path), sessionId=session_id)
    assert error == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:stored:paths", "pi:error:session-path")
async def test_no_path_leads_outside_the_allowed_directories(
    pi_client: CheckedClient, pi_daemon: PiDaemon, workspace: Path
) -> None:
    outside = workspace / "outside.jsonl"
    write_session(outside, workspace, "secret")
    (workspace / ".pi" / "sessions").mkdir(parents=True)
    link = workspace / ".pi" / "sessions" / "link.jsonl"
    link.symlink_to(outside)
    root = pi_daemon.home / ".pi" / "agent" / "sessions"
    refused = [
        "/etc/passwd",
        str(outside),
        str(link),
        "relative.jsonl",
        ".pi/sessions/x.jsonl",
        "~/.pi/agent/sessions/x.jsonl",
        f"{root}/../../../etc/passwd",
        f"{workspace}/.pi/sessions/../../outside.jsonl",
        f"{root}",
        f"{root}-beside/x.jsonl",
        f"{workspace}/.pi/sessions",
    ]
    session_id = await pi_client.start_session()
    for path in refused:
        assert (await pi_client.expect_refusal("load_session", sessionPath=path)).startswith("sessionPath must"), path
        assert (await pi_client.expect_refusal("switch_session_file", sessionId=session_id, sessionPath=path)).startswith(
            "sessionPath must"
        )


@pytest.mark.requirement("pi:stored:paths")
async def test_what_is_no_session_file_is_refused_in_words(pi_client: CheckedClient, workspace: Path) -> None:
    folder = workspace / ".pi" / "sessions"
    folder.mkdir(parents=True)
    (folder / "rubbish.jsonl").write_bytes(b"\xff\x00 rubbish\n" * 10)
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "folder.jsonl").mkdir()
    for name in ("rubbish", "empty", "folder", "absent"):
        error = await pi_client.expect_refusal("load_session", sessionPath=str(folder / f"{name}.jsonl"))
        assert "Internal" not in error
        assert "session" in error.lower()


SPENT = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2, "totalTokens": 20}
COST = {"input": 0.1, "output": 0.2, "cacheRead": 0.03, "cacheWrite": 0.04, "total": 0.37}
AT = 1_772_272_800_000


def make_rich_session(cwd: Path, session_id: str) -> list[dict[str, object]]:
    """What pi writes into a file besides plain talk."""
    said_by = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x", "usage": {**SPENT, "cost": COST}}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "half"}], **said_by, "stopReason": "aborted"},
        {"role": "assistant", "content": [], **said_by, "stopReason": "error", "errorMessage": "overloaded"},
        {"role": "bashExecution", "command": "make", "output": "ok\n", "exitCode": 0, "cancelled": False, "truncated": False},
        {
            "role": "bashExecution",
            "command": "cat key",
            "output": "private",
            "exitCode": 1,
            "cancelled": False,
            "truncated": False,
            "excludeFromContext": True,
        },
    ]
    messages[1]["errorMessage"] = "Request was aborted"
    header = {"type": "session", "version": 3, "id": session_id, "timestamp": "2026-02-28T10:00:00.000Z", "cwd": str(cwd)}
    entries: list[dict[str, object]] = [header]
    parent = None
    for number, message in enumerate(messages):
        stamped = {**message, "timestamp": AT + number}
        stamp = "2026-02-28T10:00:01.000Z"
        entries.append({"type": "message", "id": f"e{number}", "parentId": parent, "timestamp": stamp, "message": stamped})
        parent = f"e{number}"
    tail = [
        {"type": "compaction", "summary": "So far", "firstKeptEntryId": "e0", "tokensBefore": 900},
        {"type": "thinking_level_change", "thinkingLevel": "high"},
        {"type": "model_change", "provider": "demo", "modelId": "demo"},
        {"type": "session_info", "name": "From pi"},
    ]
    for number, entry in enumerate(tail):
        entries.append({**entry, "id": f"t{number}", "parentId": parent, "timestamp": "2026-02-28T10:00:02.000Z"})
        parent = f"t{number}"
    return entries


@pytest.mark.requirement("pi:stored:faithful", "pi:messages:bash", "pi:messages:summary", "pi:stored:export")
async def test_a_file_of_pis_keeps_who_spoke_what_it_took_and_how_it_ended_and_is_exported_the_same(
    pi_client: CheckedClient, workspace: Path
) -> None:
    path = workspace / ".pi" / "sessions" / "rich.jsonl"
    path.parent.mkdir(parents=True)
    stored_id = f"rich-{pi_client.make_id()}"
    entries = make_rich_session(workspace, stored_id)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    await pi_client.start_session(workspace)  # so that the folder's files are listed
    listed = {info["sessionId"]: info for info in (await pi_client.execute("list_stored_sessions"))["sessions"]}[stored_id]
    assert (listed["sessionName"], listed["messageCount"], listed["fileExists"]) == ("From pi", 6, True)
    info = (await pi_client.execute("load_session", sessionPath=str(path)))["sessionInfo"]
    assert (info["sessionName"], info["thinkingLevel"], info["messageCount"]) == ("From pi", "high", 6)
    assert (info["model"]["provider"], info["model"]["id"]) == ("demo", "demo")
    messages = (await pi_client.execute("get_messages", sessionId=stored_id))["messages"]
    summary = messages[0]
    assert (summary["role"], summary["summary"], summary["tokensBefore"]) == ("compactionSummary", "So far", 900)
    assert messages[1:] == [entry["message"] for entry in entries if entry["type"] == "message"]
    stats = await pi_client.execute("get_session_stats", sessionId=stored_id)
    assert stats["tokens"] == {"input": 20, "output": 10, "cacheRead": 6, "cacheWrite": 4, "total": 40}
    assert stats["cost"] == pytest.approx(0.74)
    assert (stats["userMessages"], stats["assistantMessages"], stats["totalMessages"]) == (1, 2, 6)

    exported = await pi_client.execute("export_jsonl", sessionId=stored_id)
    assert exported["path"] == info["sessionFile"]
    ours = [
        stored
        for stored in (await pi_client.execute("list_stored_sessions"))["sessions"]
        if stored["sessionPath"] == exported["path"]
    ]
    assert [stored["fileExists"] for stored in ours] == [True]
    again = workspace / ".pi" / "sessions" / "again.jsonl"
    again.write_bytes(Path(exported["path"]).read_bytes())
    copy = f"copy-{pi_client.make_id()}"
    await pi_client.execute("load_session", sessionPath=str(again), sessionId=copy)
    assert (await pi_client.execute("get_messages", sessionId=copy))["messages"][1:] == messages[1:]
    assert (await pi_client.request("prompt", sessionId=copy, message="say: on"))["success"]
