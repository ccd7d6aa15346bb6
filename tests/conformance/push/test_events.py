"""The event catalogue on the wire: each of its types with its fields, which events belong to a run, and redaction."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.conftest import Connect, StartDaemon

from switchtower.protocols.push import messages
from switchtower.testing.push_client import PushClient, ReceivedEvent

# Put together here, so that no secret stands in this file.
GITHUB_TOKEN = "ghp" + "_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
OPENAI_KEY = "sk" + "-proj-" + "abcdEFGH1234ijklMNOP5678qrstUVWX"


async def run_to_end(client: PushClient, session_id: str, text: str) -> list[ReceivedEvent]:
    """A run in which every question is answered with yes."""
    await client.send(session_id, text)
    events: list[ReceivedEvent] = []
    while not events or events[-1].type != "run_complete":
        events.append(await client.next_event())
        if events[-1].type == "approval_required":
            assert (await client.decide(events[-1])).ok
    return events


@pytest.mark.requirement("push:event:catalogue", "push:envelope:event-fields", "push:envelope:closed-when-sent")
async def test_every_event_of_the_catalogue_is_seen_on_the_wire(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path, transport: str
) -> None:
    """The client validates each against the schemas; this proves that none was left out, nor one invented."""
    daemon = dedicated_daemon(retention_entries=5)
    client = await connect(daemon, transport)
    session_id = (await client.start_session(workspace)).session_id
    events = [
        await client.next_event(),
        *await run_to_end(client, session_id, "think: well\nread README.md\nrun: true\ncount 20"),
    ]
    await client.request_payload("resume_session", {"lastSeenSeq": events[-1].seq}, session_id=session_id)
    events += await client.read_until("session_snapshot")
    await client.attach(session_id, 2**53 - 1)
    events += await client.read_until("warning")
    await client.send(session_id, "count 1000000")
    await client.read_until("assistant_token")
    stopping = asyncio.create_task(asyncio.to_thread(daemon.stop))  # clients hear how their runs ended
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            events.append(await client.next_event())
    await stopping
    assert {event.type for event in events} == set(messages.EVENTS)
    assert events[-1].type == "run_complete"
    for event in events:
        assert (event.run_id is not None) or event.type not in messages.RUN_EVENTS


@pytest.mark.requirement("push:event:status")
async def test_status_tells_where_a_run_is(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    events = await client.run(session_id, "list .")
    statuses = [event.payload for event in events if event.type == "status"]
    assert statuses[0] == {"source": "orchestrator", "phase": "Run started", "detail": "list ."}
    assert {"source": "orchestrator", "phase": "Executing tool", "detail": "list_dir"} in statuses
    assert {"source": "orchestrator", "phase": "Thinking"} in statuses


@pytest.mark.requirement("push:event:thinking_token", "push:event:assistant_token", "push:event:assistant_done")
async def test_tokens_have_numbers_of_their_own_and_end_with_assistant_done(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    events = await client_per_transport.run(session_id, "think: a b c\nsay: d e f")
    thinking = [event for event in events if event.type == "thinking_token"]
    spoken = [event for event in events if event.type == "assistant_token"]
    (done,) = (event for event in events if event.type == "assistant_done")
    assert "".join(event.payload["text"] for event in thinking).endswith("a b c")
    assert "".join(event.payload["text"] for event in spoken) == "d e f"
    assert len({event.seq for event in thinking + spoken}) == len(thinking + spoken)
    assert done.seq > max(event.seq for event in thinking + spoken)
    assert done.payload["messageId"].startswith("asst_")


@pytest.mark.requirement("push:event:tool_result", "push:tools:names", "push:tools:structured-errors")
@pytest.mark.parametrize(
    ("text", "tool", "error"),
    [
        ("list .", "sandbox_list_dir", None),
        ("read README.md", "sandbox_read_file", None),
        ("read no-such-file", "sandbox_read_file", "FILE_NOT_FOUND"),
        ("write a.txt: x", "sandbox_write_file", None),
        ("run: true", "sandbox_exec", None),
        ("run: exit 3", "sandbox_exec", "EXEC_NON_ZERO_EXIT"),
        ("read .env", "sandbox_read_file", "EDIT_GUARD_BLOCKED"),
    ],
)
async def test_tools_carry_the_names_and_error_types_that_clients_know(
    client: PushClient, workspace: Path, text: str, tool: str, error: str | None
) -> None:
    session_id = (await client.start_session(workspace)).session_id
    events = await run_to_end(client, session_id, text)
    (call,) = (event.payload for event in events if event.type == "tool_call")
    (result,) = (event.payload for event in events if event.type == "tool_result")
    assert call["toolName"] == result["toolName"] == tool
    assert call["source"] == result["source"] == "sandbox"
    assert result["isError"] is (error is not None)
    assert (result["structuredError"] or {}).get("type") == error


@pytest.mark.requirement("push:tools:scope")
@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hostname", "link/outside.txt"])
async def test_tools_do_not_leave_the_workspace(client: PushClient, workspace: Path, path: str) -> None:
    root = workspace / "root"
    root.mkdir()
    (workspace / "outside.txt").write_text("not for tools")
    (root / "link").symlink_to(workspace)
    session_id = (await client.start_session(root)).session_id
    events = await client.run(session_id, f"read {path}")
    (result,) = (event.payload for event in events if event.type == "tool_result")
    assert result["isError"]
    assert "not for tools" not in result["text"]


@pytest.mark.requirement("push:security:redaction")
async def test_secrets_are_redacted_from_events_answers_journal_and_log(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon(log_level="debug")
    client = await connect(daemon)
    (workspace / "config.txt").write_text(f"token = {GITHUB_TOKEN}\nAuthorization: Bearer {OPENAI_KEY}\n")
    session_id = (await client.start_session(workspace, metadata={"api_key": OPENAI_KEY})).session_id
    events = await run_to_end(
        client,
        session_id,
        f"say: my token is {GITHUB_TOKEN} and {OPENAI_KEY}\nread config.txt\nrun: cat config.txt; echo {daemon.token}",
    )
    await client.request_payload("resume_session", {"lastSeenSeq": 0}, session_id=session_id)
    events += await client.read_until("session_snapshot")
    await client.request_payload("list_sessions", {"limit": 200})
    everything = b"".join(event.raw for event in events)
    daemon.stop()
    for path in daemon.home.rglob("*"):
        if path.is_file() and path.name != "owner.token":
            everything += path.read_bytes()
    for secret in (GITHUB_TOKEN, OPENAI_KEY, daemon.token):
        assert secret.encode() not in everything
        assert secret[8:24].encode() not in everything
    assert session_id.encode() in everything, "ids survive"
    assert str(workspace).encode() in everything, "paths survive"


@pytest.mark.requirement("push:security:redaction")
@pytest.mark.parametrize("prefix", ["//bob:", ""])
async def test_a_password_that_was_hidden_in_a_url_stays_hidden_when_the_model_quotes_a_part(
    client: PushClient, workspace: Path, prefix: str
) -> None:
    """The demo model quotes the last 200 characters of what it is given, so the file's length chooses where the quote begins."""
    password = "Xk29-fQz7" + "-Lm3p"
    quoted, ending = f"{prefix}{password}@example.org/ ", " [exit code 0]"
    url = f"https://bob:{password}@example.org/"
    (workspace / "remote.txt").write_text(f"{'.' * 200} {url} {'.' * (200 - len(quoted) - len(ending))}\n")
    session_id = (await client.start_session(workspace)).session_id
    events = await run_to_end(client, session_id, "run: cat remote.txt")
    (result,) = (event.payload["text"] for event in events if event.type == "tool_result")
    assert " https://bob:[redacted]@example.org/ " in result
    hidden = f"It says: … {prefix}[redacted]@example.org/ ...."
    assert hidden in "".join(event.payload["text"] for event in events if event.type == "assistant_token")
    assert hidden in events[-1].payload["summary"]

    events += await run_to_end(client, session_id, f"say: The password is {password}.")
    assert events[-1].payload["summary"] == "The password is [redacted]."
    assert password.encode() not in b"".join(event.raw for event in events)


@pytest.mark.requirement("push:security:redaction")
async def test_what_only_looks_a_little_like_a_secret_survives(client: PushClient, workspace: Path) -> None:
    innocent = "8b5cfa1e-2a2e-4f8c-9d7a-0a1b2c3d4e5f da39a3ee5e6b4b0d3255bfef95601890afd80709 /usr/lib/python3/key.py"
    session_id = (await client.start_session(workspace)).session_id
    events = await client.run(session_id, f"say: {innocent}")
    assert "".join(event.payload["text"] for event in events if event.type == "assistant_token") == innocent


@pytest.mark.requirement("push:text:unicode")
@pytest.mark.parametrize(
    "text", ["grüße 😀 漢字 \u202e\u2028 e\u0301", "a\u0000b", 'quote " slash \\ tab \t', "\u007f\u0085\ufeff\uffff\U0010ffff"]
)
async def test_text_comes_back_as_it_was_sent(client_per_transport: PushClient, workspace: Path, text: str) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    events = await client_per_transport.run(session_id, f"say: {text}")
    started = next(event for event in events if event.payload.get("phase") == "Run started")
    assert started.payload["detail"] == f"say: {text}"


@pytest.mark.requirement("push:event:error-workspace", "push:event:error", "push:error:SANDBOX_UNAVAILABLE")
async def test_a_workspace_that_was_removed_fails_the_run_until_it_is_restored(
    client_per_transport: PushClient, workspace: Path
) -> None:
    folder = workspace / "work"
    folder.mkdir()
    session_id = (await client_per_transport.start_session(folder)).session_id
    folder.rmdir()
    events = await client_per_transport.run(session_id, "run: true")
    assert [event.type for event in events[-3:]] == ["status", "error", "run_complete"]
    status, error, complete = (event.payload for event in events[-3:])
    assert status == {"source": "orchestrator", "phase": "Run started", "detail": "run: true"}
    hint = "restore the folder and send a message, or start a session in another folder"
    message = f"The sandbox cannot be had for this workspace: the workspace `{folder}` does not exist any more; hint: {hint}"
    assert error == {"code": "SANDBOX_UNAVAILABLE", "message": message, "retryable": True}
    assert (complete["outcome"], complete["summary"], complete["headless"]) == ("failed", message, {"exitCodeHint": 1})

    folder.mkdir()
    assert (await client_per_transport.run(session_id, "say: again"))[-1].payload["outcome"] == "success"


@pytest.mark.requirement("push:event:error-workspace")
async def test_a_workspace_that_is_removed_while_a_question_waits_fails_the_run(client: PushClient, workspace: Path) -> None:
    folder = workspace / "work"
    folder.mkdir()
    session_id = (await client.start_session(folder)).session_id
    await client.send(session_id, "run: touch made")
    asked = (await client.read_until("approval_required"))[-1]
    folder.rmdir()
    assert (await client.decide(asked)).ok
    events = await client.read_until("run_complete")
    (result,) = (event.payload for event in events if event.type == "tool_result")
    assert (result["isError"], result["text"]) == (True, "not run: the workspace's folder was removed since the run began")
    error, complete = (event.payload for event in events[-2:])
    assert (error["code"], error["retryable"], complete["outcome"]) == ("SANDBOX_UNAVAILABLE", True, "failed")
    assert not folder.exists()
