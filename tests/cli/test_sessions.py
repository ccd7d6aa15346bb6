"""The commands that come back to a session: list it, watch it, talk to it, decide for it."""

import json
import signal
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand


@pytest.fixture
def session_id(shared_command: TowerCommand) -> str:
    session_id: str = shared_command("run", "--headless", "--json", "say: hello").json["sessionId"]
    return session_id


@pytest.fixture
def waiting_session_id(shared_command: TowerCommand, session_id: str, line_with: Any) -> str:
    """A session with an open question."""
    assert shared_command("send", session_id, "write notes.txt: some text").stdout.startswith(b"run_")
    watcher = shared_command.start("attach", session_id, "--jsonl")
    line_with(watcher, "approval_required", of="stdout")
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return session_id


def get_last_event(shared: TowerCommand, session_id: str) -> Any:
    return shared("attach", session_id, "--jsonl", "--no-follow").events[-1]


def wait_for_completion(shared: TowerCommand, session_id: str, line_with: Any, seq: int) -> Any:
    watcher = shared.start("attach", session_id, "--jsonl", "--from", str(seq))
    complete = json.loads(line_with(watcher, "run_complete", of="stdout"))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return complete["payload"]


def test_sessions_are_listed_with_the_last_used_first(shared_command: TowerCommand, session_id: str) -> None:
    listed = shared_command("sessions", "--json", "--limit", "5").json

    assert listed[0]["sessionId"] == session_id
    assert listed[0]["state"] == "completed"
    assert listed[0]["repo"]["rootPath"] == str(shared_command.folder)

    first_line = shared_command("sessions").stdout.decode().splitlines()[0]
    assert first_line.startswith(session_id)
    assert first_line.endswith(str(shared_command.folder))


def test_attach_replays_the_very_bytes_that_were_seen_live(shared_command: TowerCommand) -> None:
    live = shared_command("run", "--headless", "--jsonl", "count 50")
    session_id = live.events[0]["sessionId"]

    replayed = shared_command("attach", session_id, "--jsonl", "--no-follow")

    assert replayed.code == 0
    assert replayed.stdout == live.stdout
    assert shared_command("attach", session_id, "--json", "--no-follow").json == live.events
    assert shared_command("attach", session_id, "--jsonl", "--no-follow", "--from", "5").events == live.events[5:]
    assert shared_command("attach", session_id, "--jsonl", "--no-follow", "--from", str(len(live.events))).stdout == b""


@pytest.mark.parametrize("spelled", ["whole", "end", "lower-case end", "last"])
def test_a_session_may_be_named_by_its_end_or_as_the_last(shared_command: TowerCommand, session_id: str, spelled: str) -> None:
    names = {"whole": session_id, "end": session_id[-8:], "lower-case end": session_id[-8:].lower(), "last": "last"}

    shown = shared_command("attach", names[spelled], "--no-follow")

    assert shown.code == 0
    assert f"session {session_id}".encode() in shown.stdout
    assert b"hello\n" in shown.stdout


def test_a_name_that_fits_none_or_several_is_refused(shared_command: TowerCommand, session_id: str) -> None:
    shared_command("run", "--headless", "say: another")
    none, several = shared_command("attach", "zzzz", "--no-follow"), shared_command("attach", "sess_0", "--no-follow")

    assert (none.code, several.code) == (1, 1)
    assert "no session has an id like `zzzz`; hint: " in none.stderr
    assert "fits" in several.stderr
    assert session_id in several.stderr


def test_an_id_that_is_no_session_s_is_refused(shared_command: TowerCommand, session_id: str) -> None:
    ended = shared_command("attach", "sess_" + "0" * 26, "--no-follow")

    assert ended.code == 1
    assert ended.stderr.startswith("tower: SESSION_NOT_FOUND: ")


def test_a_follower_sees_what_happens_next_and_ctrl_c_only_detaches(
    shared_command: TowerCommand, session_id: str, line_with: Any
) -> None:
    watcher = shared_command.start("attach", session_id, "--jsonl")
    line_with(watcher, "run_complete", of="stdout")

    sent = shared_command("send", session_id, "say: more", "--wait")
    line_with(watcher, "more", of="stdout")
    line_with(watcher, "run_complete", of="stdout")
    watcher.send_signal(signal.SIGINT)
    _, stderr = watcher.communicate(timeout=60)

    assert (sent.code, sent.stdout) == (0, b"more\n")
    assert watcher.returncode == 0
    assert f"tower attach {session_id} --from ".encode() in stderr


def test_send_while_a_run_is_active_is_refused(shared_command: TowerCommand, waiting_session_id: str) -> None:
    ended = shared_command("send", waiting_session_id, "say: too early")

    assert ended.code == 1
    assert ended.stderr.startswith("tower: RUN_IN_PROGRESS: ")
    assert shared_command("cancel", waiting_session_id).code == 0


def test_approve_lets_it_happen(shared_command: TowerCommand, waiting_session_id: str, line_with: Any) -> None:
    seq = get_last_event(shared_command, waiting_session_id)["seq"]

    approved = shared_command("approve", waiting_session_id)

    assert approved.code == 0
    assert "approved: notes.txt" in approved.stderr
    assert wait_for_completion(shared_command, waiting_session_id, line_with, seq)["outcome"] == "success"
    assert (shared_command.folder / "notes.txt").read_text().rstrip("\n") == "some text"
    assert shared_command("approve", waiting_session_id).code == 1, "there is nothing left to approve"


def test_deny_stops_it(shared_command: TowerCommand, waiting_session_id: str, line_with: Any) -> None:
    seq = get_last_event(shared_command, waiting_session_id)["seq"]

    assert shared_command("deny", waiting_session_id).code == 0

    assert wait_for_completion(shared_command, waiting_session_id, line_with, seq)["outcome"] == "denied"
    assert not (shared_command.folder / "notes.txt").exists()


def test_an_approval_id_must_be_the_open_one(shared_command: TowerCommand, waiting_session_id: str) -> None:
    events = shared_command("attach", waiting_session_id, "--jsonl", "--no-follow").events
    approval_id = next(event for event in events if event["type"] == "approval_required")["payload"]["approvalId"]

    assert shared_command("approve", waiting_session_id, "appr_another").code == 1
    assert not (shared_command.folder / "notes.txt").exists()
    assert shared_command("approve", waiting_session_id, approval_id).code == 0


def test_cancel_ends_the_run_and_the_session_goes_on(
    shared_command: TowerCommand, waiting_session_id: str, line_with: Any
) -> None:
    seq = get_last_event(shared_command, waiting_session_id)["seq"]

    assert shared_command("cancel", waiting_session_id).code == 0

    assert wait_for_completion(shared_command, waiting_session_id, line_with, seq)["outcome"] == "cancelled"
    assert shared_command("cancel", waiting_session_id).stderr.startswith("tower: NO_ACTIVE_RUN: ")
    assert shared_command("send", waiting_session_id, "say: again", "--wait").stdout == b"again\n"


def test_send_and_wait_has_the_run_s_exit_code(shared_command: TowerCommand, session_id: str, line_with: Any) -> None:
    process = shared_command.start("send", session_id, "write notes.txt: x", "--wait")
    line_with(process, "waiting for a decision")

    assert shared_command("deny", session_id).code == 0

    process.communicate(timeout=60)
    assert process.returncode == 3
