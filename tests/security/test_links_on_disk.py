"""Where the names of an allowed call lead: the look at the disk fails closed, and a run's process adds no rules."""

import os
from pathlib import Path

import pytest
from tests.protocols.push.test_terminals import RecordingSessionService, send_request

from switchtower.tools.files import links


def make_question(root: Path, command: str) -> str | None:
    return links.find_question(str(root), "run", {"command": command})


def test_an_ordinary_command_raises_no_question(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")

    assert make_question(tmp_path, "cat a.txt *.txt missing/file 2>/dev/null | grep -n x") is None


def test_what_cannot_be_looked_at_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", refuse)

    assert "cannot be looked at" in str(make_question(tmp_path, "cat a.txt"))


def test_a_wildcard_for_too_many_files_is_asked_about(tmp_path: Path) -> None:
    for number in range(1_001):
        (tmp_path / f"{number}.txt").touch()

    assert "too many files" in str(make_question(tmp_path, "cat *.txt"))


def test_a_link_to_a_secret_inside_the_workspace_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "readme.txt").symlink_to(".env")

    assert "through a link" in str(make_question(tmp_path, "cat readme.txt"))


def test_a_workspace_that_is_itself_a_link_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    (tmp_path / "work").symlink_to("real")

    assert make_question(tmp_path / "work", "cat a.txt") is None


RULES = [{"effect": "allow", "tool": "run"}]


async def test_what_a_run_has_started_adds_no_rules_to_the_policy() -> None:
    taking = RecordingSessionService()
    message = {"sessionId": "sess_1", "clientMessageId": "msg_1", "text": "go", "rules": RULES}

    response = await send_request(taking, "send_user_message", message, run_id="run_1")

    assert response["error"]["code"] == "ATTACH_FORBIDDEN"
    assert taking.taken == []
