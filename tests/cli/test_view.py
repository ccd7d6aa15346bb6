"""Events as lines for people: what is shown in full, what is passed over."""

import json
from typing import Any

from switchtower.cli.view import View
from switchtower.client import frames


class Screen:
    def __init__(self) -> None:
        self.shown = ""
        self._view = View(answer=self._write, end_answer=lambda: self._write("\n"), line=lambda text, _: self._write(f"{text}\n"))

    def _write(self, text: str) -> None:
        self.shown += text

    def show(self, type: str, payload: dict[str, Any]) -> str:
        self.shown = ""
        line = json.dumps({"kind": "event", "type": type, "seq": 1, "sessionId": "sess_A", "payload": payload}).encode()
        self._view.show(frames.event(frames.decode(line), line))
        return self.shown


def snapshot(**changes: Any) -> dict[str, Any]:
    meta = {"provider": "demo", "sandboxProvider": "local"}
    return {"state": "idle", "activeRunId": None, "lastAssistantText": "Said.", "pendingApproval": None, "meta": meta, **changes}


def test_a_question_shows_all_of_what_will_run() -> None:
    command = "echo " + "x" * 1_000 + "\nrm -rf ~"
    approval = {
        "approvalId": "appr_A",
        "kind": "exec",
        "title": "Run a command",
        "summary": "echo …",
        "details": {"tool": "run", "command": command},
        "options": ["approve", "deny"],
        "expiresAt": 1,
    }

    assert json.dumps(command) in Screen().show("approval_required", approval)
    assert json.dumps(command) in Screen().show("session_snapshot", snapshot(pendingApproval=approval))


def test_the_text_of_a_snapshot_is_shown_only_in_place_of_lost_events() -> None:
    screen = Screen()

    assert screen.show("session_snapshot", snapshot()) == "session is idle\n"
    assert screen.show("warning", {"code": "EVENT_GAP", "message": "Gap"}) == "! EVENT_GAP: Gap\n"
    assert screen.show("session_snapshot", snapshot()) == "session is idle\nSaid.\n"
    assert screen.show("session_snapshot", snapshot()) == "session is idle\n"


def test_thoughts_and_unknown_events_are_passed_over() -> None:
    assert Screen().show("thinking_token", {"text": "hm"}) == ""
    assert Screen().show("horoscope", {"sign": "Leo"}) == ""


def test_long_arguments_are_cut_and_say_so() -> None:
    payload = {"source": "sandbox", "toolName": "sandbox_write_file", "args": {"path": "a", "content": "y" * 5_000}}

    shown = Screen().show("tool_call", payload)

    assert shown.startswith("→ sandbox_write_file path=a content=yyy")
    assert shown.endswith("… (5000 characters)\n")


def test_a_failed_criterion_shows_its_exit_code_and_last_words() -> None:
    results = [
        {"id": "lint", "passed": True, "exitCode": 0, "output": ""},
        {"id": "tests", "passed": False, "exitCode": 2, "output": "collecting\n1 failed\n"},
    ]
    payload = {
        "runId": "run_A",
        "outcome": "failed",
        "summary": "Acceptance criteria failed.",
        "acceptance": {"total": 2, "passed": 1, "results": results},
        "headless": {"exitCodeHint": 4},
    }

    assert Screen().show("run_complete", payload).lstrip("\n").splitlines() == [
        "  lint: accepted",
        "  tests: not accepted (exit code 2)",
        "    1 failed",
        "= failed: Acceptance criteria failed.",
    ]
