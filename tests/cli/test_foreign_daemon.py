"""Commands at a daemon that sends everything that the document allows, and not what ours happens to send."""

from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon

LEAN: dict[str, Any] = {"runId": RUN, "outcome": "denied", "summary": "No", "fromTheFuture": {"a": [1]}}


@pytest.fixture
def foreign_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    """It knows the document and nothing beyond it."""
    scripted_daemon.capabilities = ["stream_tokens", "approvals", "replay_attach"]
    return scripted_daemon


@pytest.mark.requirement("push:client:accepts-what-is-allowed")
@pytest.mark.parametrize(
    ("complete", "code"),
    [
        ({**LEAN, "headless": {"exitCodeHint": 4}}, 4),
        (LEAN, 3),
        ({**LEAN, "outcome": "success", "acceptance": {"total": 1, "passed": 1, "results": []}}, 0),
        ({"runId": RUN, "outcome": "cancelled"}, 2),
    ],
)
def test_a_run_that_completes_without_acceptance_has_its_exit_code(
    tower_command: TowerCommand, foreign_daemon: ScriptedDaemon, complete: dict[str, Any], code: int
) -> None:
    foreign_daemon.answers["start_session"] = {"sessionId": SESSION, "state": "idle"}
    foreign_daemon.answers["send_user_message"] = foreign_daemon.make_run_reply(
        lambda: foreign_daemon.add_event("horoscope", {"sign": "leo"}), lambda: foreign_daemon.add_event("run_complete", complete)
    )
    ended = tower_command("run", "--headless", "x", "--provider", "ollama")
    assert (ended.code, "push.runtime.v1" in ended.stderr) == (code, False), ended
    [wish] = foreign_daemon.list_requests("start_session")
    assert wish["repo"] == {"rootPath": str(tower_command.folder.resolve()), "currentBranch": "HEAD", "defaultBranch": "main"}


@pytest.mark.requirement("push:client:branches")
def test_outside_of_git_no_branch_is_sent_to_a_daemon_that_needs_none(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["start_session"] = {"sessionId": SESSION, "state": "idle"}
    tower_command("run", "--headless", "x")
    [wish] = scripted_daemon.list_requests("start_session")
    assert wish["repo"] == {"rootPath": str(tower_command.folder.resolve())}


@pytest.mark.requirement("push:client:accepts-what-is-allowed", "push:client:odd-rows")
def test_sessions_of_any_id_are_listed_and_a_row_that_cannot_be_read_is_left_out(
    tower_command: TowerCommand, foreign_daemon: ScriptedDaemon
) -> None:
    row = {"sessionId": SESSION, "state": "idle", "updatedAt": 1, "repo": {"rootPath": "/w", "currentBranch": "main"}}
    foreign_daemon.answers["list_sessions"] = {
        "sessions": [
            {**row, "sessionId": "s1", "title": "from the future"},
            {"sessionId": None, "state": 7},
            "not even an object",
            {**row, "state": "paused", "repo": {"rootPath": "/lean"}},
        ],
        "next": None,
    }
    listed = tower_command("sessions")
    assert listed.code == 0, listed
    assert "s1" in listed.stdout.decode()
    assert "/lean" in listed.stdout.decode()
