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


@pytest.mark.requirement("pi:stored:list")
async def test_stored_sessions_are_listed_with_both_names_of_their_path(pi: CheckedClient, workspace: Path) -> None:
    session_id = await pi.session(workspace)
    await pi.do("set_session_name", sessionId=session_id, name="kept")
    await pi.do("prompt", sessionId=session_id, message="say: hello")
    stored = {info["sessionId"]: info for info in (await pi.do("list_stored_sessions"))["sessions"]}[session_id]
    assert stored["sessionFile"] == stored["sessionPath"] == (await pi.do("get_state", sessionId=session_id))["sessionFile"]
    assert (stored["cwd"], stored["sessionName"]) == (str(workspace), "kept")
    assert (stored["fileExists"], stored["messageCount"]) == (True, 2)


@pytest.mark.requirement("pi:stored:load")
async def test_loading_what_is_loaded_is_refused(pi: CheckedClient) -> None:
    session_id = await pi.session()
    path = (await pi.do("get_state", sessionId=session_id))["sessionFile"]
    assert await pi.refused("load_session", sessionPath=path) == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:stored:load", "pi:event:session_created")
async def test_a_stored_session_is_loaded_with_its_conversation_and_announced(pi: CheckedClient) -> None:
    session_id = await pi.session()
    await pi.do("prompt", sessionId=session_id, message="say: remembered")
    messages = (await pi.do("get_messages", sessionId=session_id))["messages"]
    path = (await pi.do("get_state", sessionId=session_id))["sessionFile"]
    await pi.do("delete_session", sessionId=session_id)
    await pi.quiet()
    pi.frames.clear()
    response = await pi.ask("load_session", sessionPath=path)
    assert response["sessionVersion"] == 0
    assert response["data"]["sessionId"] == session_id
    created = await pi.until(lambda frame: frame["type"] == "session_created")
    assert created["data"] == response["data"]
    assert (await pi.do("get_messages", sessionId=session_id))["messages"] == messages
    assert (await pi.ask("prompt", sessionId=session_id, message="say: on we go"))["success"]


@pytest.mark.requirement("pi:stored:foreign")
async def test_a_file_of_pis_own_is_listed_imported_and_continued(
    pi: CheckedClient, pid: PiDaemon, workspace: Path, door: str
) -> None:
    path = pid.home / ".pi" / "agent" / "sessions" / "--tmp--" / f"{door}.jsonl"
    stored_id = write_session(path, workspace, "what is it?", "a train")
    listed = {info["sessionId"]: info for info in (await pi.do("list_stored_sessions"))["sessions"]}
    assert listed[stored_id]["sessionPath"] == str(path)
    loaded = await pi.do("load_session", sessionPath=str(path))
    session_id = loaded["sessionId"]
    assert loaded["sessionInfo"]["messageCount"] == 2
    assert await pi.do("get_last_assistant_text", sessionId=session_id) == {"text": "a train"}
    assert (await pi.ask("prompt", sessionId=session_id, message="say: more"))["success"]
    assert len((await pi.do("get_messages", sessionId=session_id))["messages"]) == 4


@pytest.mark.requirement("pi:stored:project-local", "pi:stored:load")
async def test_a_projects_own_sessions_can_be_loaded_under_an_id_of_the_clients_choice(
    pi: CheckedClient, workspace: Path
) -> None:
    path = workspace / ".pi" / "sessions" / "one.jsonl"
    write_session(path, workspace, "hello")
    session_id = f"mine-{pi.new_id()}"
    loaded = await pi.do("load_session", sessionPath=str(path), sessionId=session_id)
    assert loaded["sessionId"] == session_id
    error = await pi.refused("load_session", sessionPath=str(path), sessionId=session_id)
    assert error == f"Session {session_id} already exists"


@pytest.mark.requirement("pi:stored:paths", "pi:error:session-path")
async def test_no_path_leads_outside_the_allowed_directories(pi: CheckedClient, pid: PiDaemon, workspace: Path) -> None:
    outside = workspace / "outside.jsonl"
    write_session(outside, workspace, "secret")
    (workspace / ".pi" / "sessions").mkdir(parents=True)
    link = workspace / ".pi" / "sessions" / "link.jsonl"
    link.symlink_to(outside)
    root = pid.home / ".pi" / "agent" / "sessions"
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
    session_id = await pi.session()
    for path in refused:
        assert (await pi.refused("load_session", sessionPath=path)).startswith("sessionPath must"), path
        assert (await pi.refused("switch_session_file", sessionId=session_id, sessionPath=path)).startswith("sessionPath must")


@pytest.mark.requirement("pi:stored:paths")
async def test_what_is_no_session_file_is_refused_in_words(pi: CheckedClient, workspace: Path) -> None:
    folder = workspace / ".pi" / "sessions"
    folder.mkdir(parents=True)
    (folder / "rubbish.jsonl").write_bytes(b"\xff\x00 rubbish\n" * 10)
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "folder.jsonl").mkdir()
    for name in ("rubbish", "empty", "folder", "absent"):
        error = await pi.refused("load_session", sessionPath=str(folder / f"{name}.jsonl"))
        assert "Internal" not in error
        assert "session" in error.lower()
