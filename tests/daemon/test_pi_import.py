"""Session files that pi itself wrote: listed, loaded and continued; and our own, which are paths without files."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.pi_stage import PiHarness, get_text, list_event_types

from switchtower.testing import model_script as script
from switchtower.testing.pi_client import Frame

USAGE = {
    "input": 120,
    "output": 30,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 150,
    "cost": {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003},
}


def make_entry(id_: str, parent: str | None, type_: str = "message", **fields: Any) -> Frame:
    return {"type": type_, "id": id_, "parentId": parent, "timestamp": "2026-02-28T10:00:00.000Z", **fields}


def make_message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    if role == "assistant":
        fields = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude", "usage": USAGE, **fields}
        fields.setdefault("stopReason", "stop")
    return {"message": {"role": role, "content": content, "timestamp": 1_772_272_800_000, **fields}}


def make_text(words: str) -> list[Frame]:
    return [{"type": "text", "text": words}]


def write_session_file(folder: Path, cwd: Path) -> Path:
    """Version 3: two turns that a compaction stands for, a tool call, a branch that was left, and the one that counts."""
    call = {"type": "toolCall", "id": "toolu_1", "name": "bash", "arguments": {"command": "ls"}}
    left = {"type": "toolCall", "id": "toolu_2", "name": "read", "arguments": {"path": "b"}}
    lines = [
        {
            "type": "session",
            "version": 3,
            "id": "0196a1b2-0000-7000-8000-0123456789ab",
            "timestamp": "2026-02-28T10:00:00.000Z",
            "cwd": str(cwd),
        },
        make_entry("a0", None, "model_change", provider="anthropic", modelId="claude"),
        make_entry("a1", "a0", "thinking_level_change", thinkingLevel="high"),
        make_entry("b1", "a1", **make_message("user", "An old question")),
        make_entry("b2", "b1", **make_message("assistant", make_text("An old answer"))),
        make_entry("c1", "b2", **make_message("user", make_text("List the files"))),
        make_entry(
            "c2",
            "c1",
            **make_message(
                "assistant", [{"type": "thinking", "thinking": "I look"}, *make_text("Looking."), call], stopReason="toolUse"
            ),
        ),
        make_entry(
            "c3", "c2", **make_message("toolResult", make_text("a\nb"), toolCallId="toolu_1", toolName="bash", isError=False)
        ),
        make_entry("c4", "c3", **make_message("assistant", make_text("There are two: a and b."))),
        make_entry("k1", "c4", "compaction", summary="Old things were said.", firstKeptEntryId="c1", tokensBefore=9_000),
        # A branch that nobody followed:
        make_entry("d1", "k1", **make_message("user", "Read b")),
        make_entry("d2", "d1", **make_message("assistant", [left], stopReason="toolUse")),
        # And the one that was, from the compaction on:
        make_entry("e0", "k1", "branch_summary", fromId="d2", summary="Somebody wanted to read b."),
        make_entry("e1", "e0", **make_message("user", "What is in a?")),
        make_entry("e2", "e1", **make_message("assistant", make_text("A is empty."))),
        make_entry("e3", "e2", "label", targetId="e2", label="here"),
        make_entry("e4", "e3", "session_info", name="The two files"),
        make_entry("e5", "e4", "custom", customType="an extension's", data={"anything": [1, 2]}),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "2026-02-28T10-00-00-000Z_0196a1b2.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "message", "id": "cut o')
    return path


def list_roles(messages: list[Frame]) -> list[str]:
    return [message["role"] for message in messages]


@pytest.mark.parametrize("where", ["agent", "project"])
async def test_a_file_of_pi_s_is_loaded_and_continued(pi_harness: PiHarness, where: str) -> None:
    server = await pi_harness.start_model_server(script.reply_text("And b is empty too."))
    await pi_harness.open()
    client = await pi_harness.connect()
    folder = pi_harness.sessions_dir / "--a-project--" if where == "agent" else pi_harness.workspace / ".pi" / "sessions"
    path = write_session_file(folder, pi_harness.workspace)
    content = path.read_bytes()
    if where == "agent":
        [stored] = (await client.execute("list_stored_sessions"))["sessions"]
        assert stored["sessionPath"] == stored["sessionFile"] == str(path)
        assert stored["cwd"] == str(pi_harness.workspace)
        assert stored["createdAt"] == "2026-02-28T10:00:00.000Z"
        assert stored["fileExists"] is True
        loading = stored["sessionPath"]
    else:
        loading = str(path)
    answer = await client.request("load_session", sessionPath=loading)
    assert answer["sessionVersion"] == 0
    session_id, info = answer["data"]["sessionId"], answer["data"]["sessionInfo"]
    assert session_id == "0196a1b2-0000-7000-8000-0123456789ab"
    assert info["sessionName"] == "The two files"
    created = await client.wait_for(lambda frame: frame["type"] == "session_created")
    assert created["data"]["sessionId"] == session_id

    messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
    assert list_roles(messages) == [
        "compactionSummary",
        "user",
        "assistant",
        "toolResult",
        "assistant",
        "user",
        "user",
        "assistant",
    ]
    assert (messages[0]["summary"], messages[0]["tokensBefore"]) == ("Old things were said.", 9_000)
    spoken = [message for message in messages if message["role"] == "assistant"]
    assert {(message["provider"], message["model"]) for message in spoken} == {("anthropic", "claude")}
    assert all(message["usage"] == USAGE for message in spoken)
    assert "An old" not in json.dumps(messages)
    assert "Read b" not in json.dumps(messages)
    assert [block["type"] for block in messages[2]["content"]] == ["thinking", "text", "toolCall"]
    assert messages[2]["content"][2] == {"type": "toolCall", "id": "toolu_1", "name": "bash", "arguments": {"command": "ls"}}
    assert (messages[3]["toolCallId"], get_text(messages[3])) == ("toolu_1", "a\nb")
    assert "Somebody wanted to read b." in get_text(messages[5])
    assert info["messageCount"] == len(messages)

    await client.execute("switch_session", sessionId=session_id)
    await client.execute("prompt", sessionId=session_id, message="And in b?")
    assert list_event_types(client.list_events())[-1] == "agent_end"
    asked = (await server.wait_for_request()).body["messages"]
    told = json.dumps(asked)
    for words in (
        "Old things were said.",
        "List the files",
        "Looking.",
        "toolu_1",
        "There are two",
        "What is in a?",
        "And in b?",
    ):
        assert words in told, words
    assert "An old question" not in told
    assert (await client.execute("get_last_assistant_text", sessionId=session_id))["text"] == "And b is empty too."
    assert path.read_bytes() == content, "pi's own file is read, never written"
    # Once more: under its own id only when it is not loaded, and as another session under another.
    assert (await client.request("load_session", sessionPath=loading))["error"] == f"Session {session_id} already exists"
    second = await client.execute("load_session", sessionPath=loading, sessionId="second")
    assert second["sessionId"] == "second"
    assert len((await client.execute("get_messages", sessionId=second["sessionId"]))["messages"]) == 8


async def test_a_chosen_id_is_kept_and_not_given_twice(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    path = str(write_session_file(pi_harness.sessions_dir, pi_harness.workspace))
    assert (await client.execute("load_session", sessionPath=path, sessionId="mine"))["sessionId"] == "mine"
    again = await client.request("load_session", sessionPath=path, sessionId="mine")
    assert again["error"] == "Session mine already exists"


async def test_a_file_whose_folder_is_gone_is_refused_with_a_reason(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    path = write_session_file(pi_harness.sessions_dir, pi_harness.home / "gone")
    answer = await client.request("load_session", sessionPath=str(path))
    assert answer["success"] is False
    assert "gone" in answer["error"]
    assert (await client.execute("list_sessions")) == {"sessions": []}


async def test_an_unloaded_session_comes_back_by_its_path_with_all_that_was_said(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client, other = await pi_harness.connect(), await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    await client.execute("prompt", sessionId=session_id, message="say: remember me")
    await client.execute("set_session_name", sessionId=session_id, name="Kept")
    messages = await client.execute("get_messages", sessionId=session_id)
    path = (await client.execute("get_state", sessionId=session_id))["sessionFile"]
    assert (await client.request("load_session", sessionPath=path))["error"] == f"Session {session_id} already exists"
    assert (await client.execute("delete_session", sessionId=session_id)) == {"deleted": True}
    deleted = await other.wait_for(lambda frame: frame["type"] == "session_deleted")
    assert deleted["data"]["sessionId"] == session_id
    for command in ("get_state", "switch_session", "delete_session"):
        assert (await client.request(command, sessionId=session_id))["error"] == f"Session {session_id} not found"
    [stored] = (await client.execute("list_stored_sessions"))["sessions"]
    assert (stored["sessionId"], stored["sessionName"], stored["messageCount"]) == (session_id, "Kept", 2)

    back = await other.request("load_session", sessionPath=stored["sessionPath"])
    assert (back["sessionVersion"], back["data"]["sessionId"]) == (0, session_id)
    assert back["data"]["sessionInfo"]["sessionName"] == "Kept"
    assert await other.execute("get_messages", sessionId=session_id) == messages
    await other.execute("prompt", sessionId=session_id, message="say: and now")
    assert len((await other.execute("get_messages", sessionId=session_id))["messages"]) == 4
    # The first client had followed it; whether it still does, it is told nothing twice.
    await client.execute("switch_session", sessionId=session_id)
    await other.execute("prompt", sessionId=session_id, message="say: once more")
    await client.execute("get_state", sessionId=session_id)
    texts = [get_text(event["messages"][-1]) for event in client.list_events() if event["type"] == "agent_end"]
    assert texts.count("once more") == 1


async def test_a_session_is_forked_again_and_again_also_where_it_was_before(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    for number in range(3):
        await client.execute("prompt", sessionId=session_id, message=f"say: answer {number}")
    points = (await client.execute("get_fork_messages", sessionId=session_id))["messages"]
    assert [point["text"] for point in points] == [f"say: answer {number}" for number in range(3)]
    before = (await client.execute("get_messages", sessionId=session_id))["messages"]
    stats = await client.execute("get_session_stats", sessionId=session_id)
    for number, point in enumerate(points[1:], start=1):
        fork = await client.execute("fork", sessionId=session_id, entryId=point["entryId"])
        assert fork == {"text": point["text"], "cancelled": False, "sessionId": session_id}
        messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
        assert messages == before[: 2 * number], "as they were, with who spoke and what it took"
        assert (await client.execute("get_session_stats", sessionId=session_id))["tokens"]["total"] < stats["tokens"]["total"]
        await client.execute("prompt", sessionId=session_id, message=f"say: fork {number}")
    assert [info["sessionId"] for info in (await client.execute("list_sessions"))["sessions"]] == [session_id]
    # A fork of a fork, at a message that came with it.
    inner = (await client.execute("get_fork_messages", sessionId=session_id))["messages"]
    assert [point["text"] for point in inner] == ["say: answer 0", "say: answer 1", "say: fork 2"]
    await client.execute("fork", sessionId=session_id, entryId=inner[1]["entryId"])
    assert (await client.execute("get_messages", sessionId=session_id))["messages"] == before[:2]


async def test_a_conversation_is_begun_anew_and_the_earlier_one_is_had_back(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    await client.execute("prompt", sessionId=session_id, message="say: the first life")
    assert (await client.execute("new_session", sessionId=session_id)) == {"cancelled": False}
    assert (await client.execute("get_messages", sessionId=session_id)) == {"messages": []}
    await client.execute("prompt", sessionId=session_id, message="say: the second life")
    files = (await client.execute("list_session_files", sessionId=session_id))["files"]
    earlier = [file["path"] for file in files if "~1" in file["name"]]
    assert len(earlier) == 1
    assert (await client.execute("switch_session_file", sessionId=session_id, sessionPath=earlier[0])) == {"cancelled": False}
    messages = (await client.execute("get_messages", sessionId=session_id))["messages"]
    assert [get_text(message) for message in messages] == ["say: the first life", "the first life"]
    imported = str(write_session_file(pi_harness.sessions_dir, pi_harness.workspace))
    assert (await client.execute("switch_session_file", sessionId=session_id, sessionPath=imported)) == {"cancelled": False}
    assert len((await client.execute("get_messages", sessionId=session_id))["messages"]) == 8


async def test_a_project_s_own_files_are_listed_for_those_who_work_there(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    path = str(write_session_file(pi_harness.workspace / ".pi" / "sessions", pi_harness.workspace))
    files = (await client.execute("list_session_files", sessionId=session_id))["files"]
    assert path in [file["path"] for file in files]
    stored = (await client.execute("list_stored_sessions"))["sessions"]
    assert path in [info["sessionPath"] for info in stored]
