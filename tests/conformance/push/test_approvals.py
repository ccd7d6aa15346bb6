"""Approvals: what asks for one, who decides, what a denial means, and that a decision stands."""

import asyncio
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import Connect, StartDaemon

from switchtower.testing.push_client import PushClient, ReceivedEvent

TIMER_ERROR_MS = 10
"""An event loop's clock and the wall's do not tick together."""


async def ask(client: PushClient, session_id: str, text: str = "write notes.txt: hello\nsay: and on we go") -> ReceivedEvent:
    """Runs up to the question."""
    await client.send(session_id, text)
    return (await client.read_until("approval_required"))[-1]


@pytest.mark.requirement("push:approval:gates-writes-and-commands")
@pytest.mark.parametrize("command", ["rm -rf .", "git push --force", "sudo true", "curl x | sh", "true"])
async def test_no_command_runs_before_somebody_decides(client: PushClient, workspace: Path, command: str) -> None:
    session_id = (await client.start_session(workspace)).session_id
    asked = await ask(client, session_id, f"run: {command}; touch ran")
    assert asked.payload["kind"] == "exec"
    assert asked.payload["details"]["command"] == f"{command}; touch ran"
    await client.ping()
    assert not client.events
    assert not (workspace / "ran").exists()
    await client.decide(asked, "deny")
    await client.read_until("run_complete")
    assert not (workspace / "ran").exists()
    assert (workspace / "README.md").exists()


@pytest.mark.requirement("push:approval:deny-stops", "push:headless:exit-3-denied")
async def test_a_denial_without_a_comment_stops_the_run_as_denied(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    asked = await ask(client_per_transport, session_id)
    assert (await client_per_transport.decide(asked, "deny")).payload == {"accepted": True}
    received, *_, complete = await client_per_transport.read_until("run_complete")
    assert (received.type, received.payload["decision"]) == ("approval_received", "deny")
    assert complete.payload["outcome"] == "denied"
    assert complete.payload["headless"] == {"exitCodeHint": 3}
    assert not (workspace / "notes.txt").exists()
    assert (await client_per_transport.attach(session_id, complete.seq))["state"] == "cancelled"


@pytest.mark.requirement("push:approval:deny-with-comment-continues")
async def test_a_denial_with_a_comment_tells_the_model_and_the_run_goes_on(
    client_per_transport: PushClient, workspace: Path
) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    asked = await ask(client_per_transport, session_id)
    await client_per_transport.decide(asked, "deny", comment="use another name")
    events = await client_per_transport.read_until("run_complete")
    result = next(event for event in events if event.type == "tool_result")
    assert result.payload["isError"]
    assert "use another name" in result.payload["text"]
    spoken = "".join(event.payload["text"] for event in events if event.type == "assistant_token")
    assert "use another name" in spoken
    assert "and on we go" in spoken
    assert events[-1].payload["outcome"] == "success"
    assert not (workspace / "notes.txt").exists()


@pytest.mark.requirement("push:approval:deny-stops")
async def test_an_empty_comment_is_no_comment(client: PushClient, workspace: Path) -> None:
    session_id = (await client.start_session(workspace)).session_id
    await client.decide(await ask(client, session_id), "deny", comment="")
    assert (await client.read_until("run_complete"))[-1].payload["outcome"] == "denied"


@pytest.mark.requirement("push:headless:denial-always-stops", "push:headless:same-events")
@pytest.mark.parametrize("comment", [None, "use another name"])
async def test_headless_any_denial_stops_the_run(client: PushClient, workspace: Path, comment: str | None) -> None:
    session_id = (await client.start_session(workspace, mode="headless")).session_id
    await client.decide(await ask(client, session_id), "deny", comment=comment)
    complete = (await client.read_until("run_complete"))[-1]
    assert complete.payload["outcome"] == "denied"
    assert complete.payload["headless"] == {"exitCodeHint": 3}


@pytest.mark.requirement("push:concurrency:first-approval-wins", "push:error:APPROVAL_EXPIRED")
async def test_a_second_decision_learns_that_it_is_over(client_per_transport: PushClient, workspace: Path) -> None:
    session_id = (await client_per_transport.start_session(workspace)).session_id
    asked = await ask(client_per_transport, session_id)
    assert (await client_per_transport.decide(asked, "approve")).ok
    late = await client_per_transport.decide(asked, "deny")
    assert late.code == "APPROVAL_EXPIRED"
    assert late.session_id == session_id
    events = await client_per_transport.read_until("run_complete")
    assert [event.payload["decision"] for event in events if event.type == "approval_received"] == ["approve"]
    assert (await client_per_transport.decide(asked, "deny")).code == "APPROVAL_EXPIRED", "also after the run"


@pytest.mark.requirement("push:concurrency:first-approval-wins")
async def test_of_many_clients_that_race_exactly_one_decides(
    push_daemon: ManagedDaemon, connect: Connect, workspace: Path
) -> None:
    clients = [await connect(push_daemon, ("socket", "websocket")[number % 2]) for number in range(20)]
    owner = clients[0]
    session_id = (await owner.start_session(workspace)).session_id
    for round_ in range(3):
        asked = await ask(owner, session_id, f"run: echo {round_} >> ran")
        decisions = ["approve" if number % 3 else "deny" for number in range(len(clients))]
        responses = await asyncio.gather(
            *(client.decide(asked, decision) for client, decision in zip(clients, decisions, strict=True))
        )
        (winner,) = (number for number, response in enumerate(responses) if response.ok)
        assert {response.code for response in responses} == {None, "APPROVAL_EXPIRED"}
        events = await owner.read_until("run_complete")
        (received,) = (event for event in events if event.type == "approval_received")
        assert received.payload["decision"] == decisions[winner]
        assert received.payload["by"] == ("cli", "app")[winner % 2]
        assert events[-1].payload["outcome"] == ("success" if decisions[winner] == "approve" else "denied")


@pytest.mark.requirement("push:error:APPROVAL_EXPIRED", "push:approval:expiry")
async def test_an_expiry_is_told_as_an_expiry_and_decides_nothing(
    start_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    client = await connect(start_daemon(approval_timeout=0.3))
    session_id = (await client.start_session(workspace)).session_id
    asked = await ask(client, session_id)
    events = await client.read_until("run_complete")
    assert "approval_received" not in [event.type for event in events], "nobody decided"
    (expired,) = (event for event in events if event.type == "warning")
    assert expired.payload["code"] == "APPROVAL_EXPIRED"
    assert expired.payload["detail"] == asked.payload["approvalId"]
    assert expired.ts >= asked.payload["expiresAt"] - TIMER_ERROR_MS
    assert events[-1].payload["outcome"] == "failed"
    assert events[-1].payload["headless"] == {"exitCodeHint": 1}
    assert not (workspace / "notes.txt").exists()
    assert (await client.decide(asked)).code == "APPROVAL_EXPIRED"


@pytest.mark.requirement("push:approval:survives-restart")
async def test_a_pending_approval_survives_a_restart_and_its_run_goes_on(
    dedicated_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    daemon = dedicated_daemon()
    client = await connect(daemon)
    session_id = (await client.start_session(workspace)).session_id
    asked = await ask(client, session_id)
    daemon.stop()
    daemon.start()

    client = await connect(daemon)
    attached = await client.attach(session_id, asked.seq)
    assert attached["state"] == "awaiting_approval"
    assert (await client.decide(asked)).ok
    assert (await client.read_until("run_complete"))[-1].payload["outcome"] == "success"
    assert (workspace / "notes.txt").read_text() == "hello"


@pytest.mark.requirement("push:files:refused-by-default")
@pytest.mark.parametrize("name", [".env", ".env.local", "server.pem", "a.key", ".npmrc", ".netrc", "id_ed25519", ".ssh/config"])
async def test_files_that_hold_secrets_are_refused_without_asking(client: PushClient, workspace: Path, name: str) -> None:
    path = workspace / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("the content of a secret file")
    session_id = (await client.start_session(workspace)).session_id
    events = await client.run(session_id, f"read {name}\nwrite {name}: x")
    assert "approval_required" not in [event.type for event in events]
    results = [event.payload for event in events if event.type == "tool_result"]
    assert [result["structuredError"]["type"] for result in results] == ["EDIT_GUARD_BLOCKED"] * 2
    assert b"the content of a secret file" not in b"".join(event.raw for event in events)
    assert path.read_text() == "the content of a secret file"
