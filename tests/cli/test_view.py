"""Events as lines for people: what is shown in full, what is passed over."""

import json
from typing import Any

from switchtower.cli.event_printer import EventPrinter
from switchtower.client import frames
from switchtower.core import events
from switchtower.protocols.push import encoder


class RecordingOutput:
    """A screen that keeps what it is given, pieces of tool output between angle brackets."""

    def __init__(self) -> None:
        self.shown = ""
        self.colours: list[str | None] = []
        self._view = EventPrinter(self)

    def write_answer(self, text: str) -> None:
        self.shown += text

    def end_answer(self) -> None:
        self.shown += "\n"

    def withdraw_answer(self) -> None:
        self.shown += "[withdrawn]\n"

    def write_piece(self, text: str) -> None:
        self.shown += f"<{text}>"

    def write_line(self, text: str, colour: str | None = None) -> None:
        self.shown += f"{text}\n"
        self.colours.append(colour)

    def show(self, type: str, payload: dict[str, Any], run_id: str = "run_A") -> str:
        """What this event adds."""
        self.shown, self.colours = "", []
        event = {"kind": "event", "type": type, "seq": 1, "sessionId": "sess_A", "runId": run_id, "payload": payload}
        line = json.dumps(event).encode()
        self._view.print_event(frames.decode_event(frames.decode_frame(line), line))
        return self.shown

    def add_status(self, phase: str, detail: str | None = None, run_id: str = "run_A") -> str:
        payload = {"source": "orchestrator", "phase": phase, **({} if detail is None else {"detail": detail})}
        return self.show("status", payload, run_id)

    def add_event(self, event: events.AnyEvent) -> str:
        """A core event as the daemon itself would send it."""
        self.shown, self.colours = "", []
        line = encoder.encode_event("sess_A", "run_A", 1, 1, event)
        self._view.print_event(frames.decode_event(frames.decode_frame(line), line))
        return self.shown


def snapshot(**changes: Any) -> dict[str, Any]:
    meta = {"provider": "demo", "sandboxProvider": "local"}
    return {"state": "idle", "activeRunId": None, "lastAssistantText": "Said.", "pendingApproval": None, "meta": meta, **changes}


def make_approval(**details: Any) -> dict[str, Any]:
    return {
        "approvalId": "appr_A",
        "kind": "exec",
        "title": "Run a command",
        "summary": "echo …",
        "details": details,
        "options": ["approve", "deny"],
        "expiresAt": 1,
    }


def test_a_question_shows_all_of_what_will_run() -> None:
    asked = make_approval(
        tool="run", command="echo " + "x" * 1_000 + "\n  reason: harmless\nrm -rf ~", cwd="/w", reason="it runs a command"
    )
    expected = [
        "? Run a command: echo …",
        "  tool: run",
        "  command:",
        "  | echo " + "x" * 1_000,
        "  |   reason: harmless",
        "  | rm -rf ~",
        "  cwd: /w",
        "  reason: it runs a command",
    ]

    assert RecordingOutput().show("approval_required", asked).splitlines() == expected
    assert RecordingOutput().show("session_snapshot", snapshot(pendingApproval=asked)).splitlines()[1:] == expected


def test_a_question_about_a_file_shows_the_diff_in_colours() -> None:
    page = RecordingOutput()

    shown = page.show(
        "approval_required", make_approval(tool="edit_file", path="a.py", diff="--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y\n")
    )

    assert shown.splitlines()[1:] == [
        "  tool: edit_file",
        "  path: a.py",
        "  diff:",
        "  | --- a.py",
        "  | +++ a.py",
        "  | @@ -1 +1 @@",
        "  | -x",
        "  | +y",
    ]
    assert page.colours[-5:] == ["dim", "dim", "cyan", "red", "green"]


def test_a_destructive_action_is_marked_and_a_rule_for_always_is_shown() -> None:
    page = RecordingOutput()

    marked = page.show("approval_required", make_approval(command="rm -r build", destructive=True)).splitlines()
    assert marked[1].startswith("  DESTRUCTIVE: ")
    assert page.colours[1] == "red"
    assert not any("always" in line for line in marked)

    ruled = page.show(
        "approval_required", make_approval(command="make", destructive=False, always="allow run: make")
    ).splitlines()
    assert ruled == ["? Run a command: echo …", "  command: make", "  always for this session would be: allow run: make"]


def test_arguments_of_a_stranger_s_tool_are_shown_in_whole() -> None:
    args = {"query": "x" * 1_000, "text": "two\nlines"}

    assert f"  args: {json.dumps(args)}\n" in RecordingOutput().show(
        "approval_required", make_approval(tool="web_search", args=args)
    )


def test_the_text_of_a_snapshot_is_shown_only_in_place_of_lost_events() -> None:
    page = RecordingOutput()

    assert page.show("session_snapshot", snapshot()) == "session is idle\n"
    assert page.show("warning", {"code": "EVENT_GAP", "message": "Gap"}) == "! EVENT_GAP: Gap\n"
    assert page.show("session_snapshot", snapshot()) == "session is idle\nSaid.\n"
    assert page.show("session_snapshot", snapshot()) == "session is idle\n"


def test_thoughts_and_unknown_events_are_passed_over() -> None:
    assert RecordingOutput().show("thinking_token", {"text": "hm"}) == ""
    assert RecordingOutput().show("horoscope", {"sign": "Leo"}) == ""


def test_long_arguments_are_cut_and_say_so() -> None:
    payload = {"source": "sandbox", "toolName": "sandbox_write_file", "args": {"path": "a", "content": "y" * 5_000}}

    shown = RecordingOutput().show("tool_call", payload)

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

    assert RecordingOutput().show("run_complete", payload).lstrip("\n").splitlines() == [
        "  lint: accepted",
        "  tests: not accepted (exit code 2)",
        "    1 failed",
        "= failed: Acceptance criteria failed.",
    ]


def make_completion(run_id: str = "run_A", outcome: str = "success") -> dict[str, Any]:
    return {
        "runId": run_id,
        "outcome": outcome,
        "summary": "done",
        "acceptance": {"total": 0, "passed": 0, "results": []},
        "headless": {"exitCodeHint": 0},
    }


def test_tool_output_is_shown_as_it_comes() -> None:
    page = RecordingOutput()

    assert page.add_event(events.ToolProgressed("call_1", "12 pas")) == "<12 pas>"
    assert page.add_event(events.ToolProgressed("call_1", "sed\n")) == "<sed\n>"


def make_tool_result(text: str, tool: str = "sandbox_exec", error: str | None = None) -> dict[str, Any]:
    structured = None if error is None else {"type": "EXEC_NON_ZERO_EXIT", "retryable": False, "message": error}
    return {
        "source": "sandbox",
        "toolName": tool,
        "durationMs": 5,
        "isError": error is not None,
        "text": text,
        "structuredError": structured,
    }


def test_of_a_command_s_result_only_the_rest_is_shown() -> None:
    page = RecordingOutput()
    page.add_event(events.ToolProgressed("call_1", "12 pas"))
    page.add_event(events.ToolProgressed("call_1", "sed\n"))

    assert page.show("tool_result", make_tool_result("12 passed\nbye\n[exit code 0]")) == (
        "<bye\n[exit code 0]\n>← sandbox_exec 5 ms, 3 lines\n"
    )
    assert page.show("tool_result", make_tool_result("12 passed\n")) == "<12 passed\n>← sandbox_exec 5 ms, 1 line\n"


def test_where_output_was_skipped_on_the_way_the_rest_starts_where_both_meet() -> None:
    page = RecordingOutput()
    page.add_event(events.ToolProgressed("call_1", "first\n"))
    page.add_event(events.ToolProgressed("call_1", "[… 900 characters skipped …]\n" + "x" * 300 + "\n"))

    shown = page.show("tool_result", make_tool_result("first\n" + "y" * 900 + "x" * 300 + "\nlast\n"))

    assert shown == "<last\n>← sandbox_exec 5 ms, 3 lines\n"


def test_the_end_of_a_long_result_that_nobody_saw_come_is_shown() -> None:
    text = "".join(f"{number}\n" for number in range(1, 101))

    shown = RecordingOutput().show("tool_result", make_tool_result(text))

    assert shown.startswith("<[… 60 lines …]\n61\n62\n")
    assert shown.endswith("\n100\n>← sandbox_exec 5 ms, 100 lines\n")


def test_a_command_that_fails_shows_its_output_and_then_why() -> None:
    page = RecordingOutput()

    assert page.show("tool_result", make_tool_result("boom\n[exit code 3]", error="the command ended with exit code 3")) == (
        "<boom\n[exit code 3]\n>← sandbox_exec 5 ms, the command ended with exit code 3\n"
    )
    assert page.colours == ["red"]


def test_what_other_tools_return_is_counted_not_shown_unless_it_came_bit_by_bit() -> None:
    page = RecordingOutput()

    assert page.show("tool_result", make_tool_result("a\nb\n", "sandbox_read_file")) == "← sandbox_read_file 5 ms, 2 lines\n"
    assert (
        page.show("tool_result", make_tool_result("no\nsuch file", "sandbox_read_file", "x"))
        == "← sandbox_read_file 5 ms, no such file\n"
    )
    page.add_event(events.ToolProgressed("call_1", "half"))
    assert page.show("tool_result", make_tool_result("half done", "web_search")) == "< done\n>← web_search 5 ms, 1 line\n"


def test_usage_is_added_up_and_told_once_at_the_run_s_end() -> None:
    page = RecordingOutput()

    assert page.add_event(events.UsageReported("openai", "gpt", 1_200, 80, cost=0.0123)) == ""
    assert page.add_event(events.UsageReported("openai", "gpt", 1_000, 20, cost=0.01)) == ""
    assert page.add_status("Usage", "7 tokens in, 7 out (other model)", "run_B") == ""

    assert page.show("run_complete", make_completion()).strip("\n").splitlines() == [
        "  2,200 tokens in, 100 out, $0.0223 (openai gpt)",
        "= success: done",
    ]
    assert "tokens" not in page.show("run_complete", make_completion())


def test_a_cost_that_is_known_in_part_is_a_lower_bound_and_an_unknown_one_is_not_told() -> None:
    page = RecordingOutput()
    page.add_event(events.UsageReported("openai", "gpt", 1, 1, cost=1.5))
    page.add_event(events.UsageReported("local", "qwen (4 bit)", 1, 1))
    page.add_event(events.UsageReported("local", "qwen (4 bit)", 1, 1))

    assert "  3 tokens in, 3 out, at least $1.50 (openai gpt, local qwen (4 bit))\n" in page.show(
        "run_complete", make_completion()
    )
    page.add_event(events.UsageReported("local", "qwen", 1, 1))
    assert "  1 tokens in, 1 out (local qwen)\n" in page.show("run_complete", make_completion())


def test_usage_that_cannot_be_read_is_shown_as_it_is() -> None:
    page = RecordingOutput()

    assert page.add_status("Usage", "a lot") == "· Usage: a lot\n"
    assert "tokens" not in page.show("run_complete", make_completion())


def test_a_retry_is_one_line_and_withdraws_the_void_text() -> None:
    page = RecordingOutput()
    page.show("assistant_token", {"text": "Hel"})

    retry = page.add_event(events.RetryScheduled(attempt=2, max_attempts=5, delay_ms=1_500, reason="503 from the server"))

    assert retry == "[withdrawn]\n! Model call failed; retrying (2 of 5) in 1.5 s (503 from the server)\n"
    assert page.add_event(events.RetryEnded(2, success=True)) == ""
    assert page.add_event(events.RetryEnded(5, success=False, reason="503 from the server")) == ""


def test_checkpoints_are_quiet_and_compaction_is_told() -> None:
    page = RecordingOutput()

    assert page.add_event(events.CheckpointTaken("before", "4b825dc")) == ""
    assert page.add_event(events.CheckpointTaken("after", "4b825dc")) == ""
    assert page.add_event(events.CompactionStarted("threshold")) == "· Compacting the context: threshold\n"
    compacted = events.ContextCompacted(reason="threshold", summary="s", kept=2, tokens_before=900, tokens_after=60)
    assert page.add_event(compacted) == "· Context compacted: 900 tokens became about 60\n"
    assert page.add_event(events.CompactionFailed("no room")) == "! COMPACTION_FAILED: The context was not compacted: no room\n"


def test_a_configuration_is_told_as_what_was_changed() -> None:
    by = events.Actor(name="owner", via="cli")

    assert (
        RecordingOutput().add_event(events.SessionConfigured(by=by, policy="auto", model="gpt"))
        == "· Configured: model=gpt, policy=auto\n"
    )


def test_an_error_s_detail_is_shown() -> None:
    assert (
        RecordingOutput().add_event(events.ErrorRaised("MODEL_ERROR", "It failed", detail="429"))
        == "! MODEL_ERROR: It failed (429)\n"
    )
    assert RecordingOutput().add_event(events.ErrorRaised("MODEL_ERROR", "It failed")) == "! MODEL_ERROR: It failed\n"


def test_what_only_a_terminal_can_use_is_passed_over() -> None:
    page, owner = RecordingOutput(), events.Actor(name="owner", via="cli")

    assert page.add_event(events.ScreenCaptured(text="\x1b[2Jall of it", cols=80, rows=24)) == ""
    assert page.add_event(events.TerminalKeysTyped(count=3, by=owner)) == ""
    assert page.add_event(events.TerminalResized(cols=80, rows=24, by=owner)) == ""
    assert page.add_event(events.ToolProgressed(call_id="run_A", text="a line\r\n")) == "<a line\r\n>"
    assert page.add_event(events.PromptShown(reason="permission", prompt="Run it?")) == "· Awaiting input: permission: Run it?\n"
