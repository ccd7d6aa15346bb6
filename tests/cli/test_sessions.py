"""The commands that come back to a session: list it, watch it, talk to it, decide for it."""

import json
import signal
from typing import Any

import pytest


@pytest.fixture
def session_id(shared: Any) -> str:
    session_id: str = shared("run", "--headless", "--json", "say: hello").json["sessionId"]
    return session_id


@pytest.fixture
def waiting(shared: Any, session_id: str, line_with: Any) -> str:
    """A session with an open question."""
    assert shared("send", session_id, "write notes.txt: some text").stdout.startswith(b"run_")
    watcher = shared.start("attach", session_id, "--jsonl")
    line_with(watcher, "approval_required", of="stdout")
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return session_id


def last_event(shared: Any, session_id: str) -> Any:
    return shared("attach", session_id, "--jsonl", "--no-follow").events[-1]


def completion_after(shared: Any, session_id: str, line_with: Any, seq: int) -> Any:
    watcher = shared.start("attach", session_id, "--jsonl", "--from", str(seq))
    complete = json.loads(line_with(watcher, "run_complete", of="stdout"))
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    return complete["payload"]


def test_sessions_are_listed_with_the_last_used_first(shared: Any, session_id: str) -> None:
    listed = shared("sessions", "--json", "--limit", "5").json

    assert listed[0]["sessionId"] == session_id
    assert listed[0]["state"] == "completed"
    assert listed[0]["repo"]["rootPath"] == str(shared.folder)

    first_line = shared("sessions").stdout.decode().splitlines()[0]
    assert first_line.startswith(session_id)
    assert first_line.endswith(str(shared.folder))


def test_attach_replays_the_very_bytes_that_were_seen_live(shared: Any) -> None:
    live = shared("run", "--headless", "--jsonl", "count 50")
    session_id = live.events[0]["sessionId"]

    replayed = shared("attach", session_id, "--jsonl", "--no-follow")

    assert replayed.code == 0
    assert replayed.stdout == live.stdout
    assert shared("attach", session_id, "--json", "--no-follow").json == live.events
    assert shared("attach", session_id, "--jsonl", "--no-follow", "--from", "5").events == live.events[5:]
    assert shared("attach", session_id, "--jsonl", "--no-follow", "--from", str(len(live.events))).stdout == b""


@pytest.mark.parametrize("spelled", ["whole", "end", "lower-case end", "last"])
def test_a_session_may_be_named_by_its_end_or_as_the_last(shared: Any, session_id: str, spelled: str) -> None:
    names = {"whole": session_id, "end": session_id[-8:], "lower-case end": session_id[-8:].lower(), "last": "last"}

    shown = shared("attach", names[spelled], "--no-follow")

    assert shown.code == 0
    assert f"session {session_id}".encode() in shown.stdout
    assert b"hello\n" in shown.stdout


def test_a_name_that_fits_none_or_several_is_refused(shared: Any, session_id: str) -> None:
    shared("run", "--headless", "say: another")
    none, several = shared("attach", "zzzz", "--no-follow"), shared("attach", "sess_0", "--no-follow")

    assert (none.code, several.code) == (1, 1)
    assert "no session has an id like `zzzz`; hint: " in none.stderr
    assert "fits" in several.stderr
    assert session_id in several.stderr


def test_an_id_that_is_no_session_s_is_refused(shared: Any, session_id: str) -> None:
    ended = shared("attach", "sess_" + "0" * 26, "--no-follow")

    assert ended.code == 1
    assert ended.stderr.startswith("tower: SESSION_NOT_FOUND: ")


def test_a_follower_sees_what_happens_next_and_ctrl_c_only_detaches(shared: Any, session_id: str, line_with: Any) -> None:
    watcher = shared.start("attach", session_id, "--jsonl")
    line_with(watcher, "run_complete", of="stdout")

    sent = shared("send", session_id, "say: more", "--wait")
    line_with(watcher, "more", of="stdout")
    line_with(watcher, "run_complete", of="stdout")
    watcher.send_signal(signal.SIGINT)
    _, stderr = watcher.communicate(timeout=60)

    assert (sent.code, sent.stdout) == (0, b"more\n")
    assert watcher.returncode == 0
    assert f"tower attach {session_id} --from ".encode() in stderr


def test_send_while_a_run_is_active_is_refused(shared: Any, waiting: str) -> None:
    ended = shared("send", waiting, "say: too early")

    assert ended.code == 1
    assert ended.stderr.startswith("tower: RUN_IN_PROGRESS: ")
    assert shared("cancel", waiting).code == 0


def test_approve_lets_it_happen(shared: Any, waiting: str, line_with: Any) -> None:
    seq = last_event(shared, waiting)["seq"]

    approved = shared("approve", waiting)

    assert approved.code == 0
    assert "approved: notes.txt" in approved.stderr
    assert completion_after(shared, waiting, line_with, seq)["outcome"] == "success"
    assert (shared.folder / "notes.txt").read_text().rstrip("\n") == "some text"
    assert shared("approve", waiting).code == 1, "there is nothing left to approve"


def test_deny_stops_it(shared: Any, waiting: str, line_with: Any) -> None:
    seq = last_event(shared, waiting)["seq"]

    assert shared("deny", waiting).code == 0

    assert completion_after(shared, waiting, line_with, seq)["outcome"] == "denied"
    assert not (shared.folder / "notes.txt").exists()


def test_an_approval_id_must_be_the_open_one(shared: Any, waiting: str) -> None:
    events = shared("attach", waiting, "--jsonl", "--no-follow").events
    approval_id = next(event for event in events if event["type"] == "approval_required")["payload"]["approvalId"]

    assert shared("approve", waiting, "appr_another").code == 1
    assert not (shared.folder / "notes.txt").exists()
    assert shared("approve", waiting, approval_id).code == 0


def test_cancel_ends_the_run_and_the_session_goes_on(shared: Any, waiting: str, line_with: Any) -> None:
    seq = last_event(shared, waiting)["seq"]

    assert shared("cancel", waiting).code == 0

    assert completion_after(shared, waiting, line_with, seq)["outcome"] == "cancelled"
    assert shared("cancel", waiting).stderr.startswith("tower: NO_ACTIVE_RUN: ")
    assert shared("send", waiting, "say: again", "--wait").stdout == b"again\n"


def test_send_and_wait_has_the_run_s_exit_code(shared: Any, session_id: str, line_with: Any) -> None:
    process = shared.start("send", session_id, "write notes.txt: x", "--wait")
    line_with(process, "waiting for a decision")

    assert shared("deny", session_id).code == 0

    process.communicate(timeout=60)
    assert process.returncode == 3
