"""A run as pi's clients see it: which events, in which order, and with what in them."""

import pytest
from tests.protocols.pi.reels import (
    APPROVAL,
    CAST,
    OWNER,
    READ,
    RUN,
    SESSION,
    START_MS,
    STARTED,
    SUCCESS,
    THINKING,
    USAGE,
    encode_entries,
    filter_by_type,
    fold_entries,
    list_events,
    make_entries,
    summarise_frames,
)
from tests.protocols.pi.strategies import ONE_OF_EACH

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.protocols.pi import encoder
from switchtower.protocols.pi.stream_state import PiStreamState

ZEROS = {
    "input": 0,
    "output": 0,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 0,
    "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0},
}
CALLED = events.ToolCalled(call_id="call_1", tool="read_file", args={"path": "a.txt"})
FINISHED = events.ToolFinished(call_id="call_1", tool="read_file", duration_ms=3, text="contents")
ANSWER = events.MessageCompleted(message_id="asst_2", text="It says contents")


def test_a_plain_run_is_told_in_pis_order() -> None:
    happened = encode_entries(
        STARTED,
        THINKING,
        events.TextDelta("Hi"),
        events.TextDelta(" there"),
        events.MessageCompleted("asst_1", "Hi there"),
        USAGE,
        SUCCESS,
    )
    assert summarise_frames(happened) == [
        "agent_start",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
        "message_update text_start",
        "message_update text_delta",
        "message_update text_delta",
        "message_update text_end",
        "message_end assistant stop",
        "turn_end",
        "agent_end",
    ]
    user = {"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": START_MS + 1}
    assistant = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi there"}],
        "api": "openai-completions",
        "provider": "openai",
        "model": "gpt-6.1-terra-0901",
        "usage": {
            "input": 40,
            "output": 20,
            "cacheRead": 60,
            "cacheWrite": 0,
            "totalTokens": 120,
            "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.25},
        },
        "stopReason": "stop",
        "timestamp": START_MS + 3,
    }
    assert happened[2] == {"type": "message_start", "message": user}
    assert happened[3] == {"type": "message_end", "message": user}
    begun = {**assistant, "content": [], "model": "gpt-6.1-terra", "usage": ZEROS}
    assert happened[4] == {"type": "message_start", "message": begun}
    assert happened[7] == {
        "type": "message_update",
        "message": {**begun, "content": [{"type": "text", "text": "Hi there"}]},
        "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": " there"},
    }
    assert happened[8]["assistantMessageEvent"] == {"type": "text_end", "contentIndex": 0, "content": "Hi there"}
    assert happened[9] == {"type": "message_end", "message": assistant}
    assert happened[10] == {"type": "turn_end", "message": assistant, "toolResults": []}
    assert happened[11] == {"type": "agent_end", "messages": [user, assistant]}


def test_a_run_with_a_tool_has_a_turn_for_each_message() -> None:
    happened = encode_entries(
        STARTED,
        THINKING,
        events.ThinkingDelta("Read it."),
        events.TextDelta("I look."),
        events.MessageCompleted("asst_1", "I look.", thinking="Read it.", calls=(READ,)),
        USAGE,
        CALLED,
        events.PhaseChanged("Executing tool", "read_file"),
        events.ToolProgressed("call_1", "con"),
        events.ToolProgressed("call_1", "tents"),
        FINISHED,
        THINKING,
        events.TextDelta("It says contents"),
        ANSWER,
        USAGE,
        SUCCESS,
    )
    assert summarise_frames(happened) == [
        "agent_start",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
        "message_update thinking_start",
        "message_update thinking_delta",
        "message_update thinking_end",
        "message_update text_start",
        "message_update text_delta",
        "message_update text_end",
        "message_update toolcall_start",
        "message_update toolcall_delta",
        "message_update toolcall_end",
        "message_end assistant toolUse",
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_update",
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "turn_end",
        "turn_start",
        "message_start assistant",
        "message_update text_start",
        "message_update text_delta",
        "message_update text_end",
        "message_end assistant stop",
        "turn_end",
        "agent_end",
    ]
    call = {"type": "toolCall", "id": "call_1", "name": "read_file", "arguments": {"path": "a.txt"}}
    assert happened[13]["assistantMessageEvent"] == {"type": "toolcall_end", "contentIndex": 2, "toolCall": call}
    assert happened[14]["message"]["content"] == [
        {"type": "thinking", "thinking": "Read it."},
        {"type": "text", "text": "I look."},
        call,
    ]
    named = {"toolCallId": "call_1", "toolName": "read_file"}
    assert happened[15] == {"type": "tool_execution_start", **named, "args": {"path": "a.txt"}}
    assert happened[17] == {
        "type": "tool_execution_update",
        **named,
        "args": {"path": "a.txt"},
        "partialResult": {"content": [{"type": "text", "text": "contents"}]},
        "delta": "tents",
    }
    content = [{"type": "text", "text": "contents"}]
    assert happened[18] == {"type": "tool_execution_end", **named, "result": {"content": content}, "isError": False}
    result = {"role": "toolResult", **named, "content": content, "isError": False, "timestamp": START_MS + 11}
    assert happened[20] == {"type": "message_end", "message": result}
    assert happened[21] == {"type": "turn_end", "message": happened[14]["message"], "toolResults": [result]}
    assert [message["role"] for message in happened[-1]["messages"]] == ["user", "assistant", "toolResult", "assistant"]


def test_a_turn_ends_only_when_every_call_is_answered() -> None:
    second = events.ToolRequest(call_id="call_2", tool="read_file", args={"path": "b.txt"})
    happened = encode_entries(
        STARTED,
        events.MessageCompleted("asst_1", "", calls=(READ, second)),
        USAGE,
        CALLED,
        events.ToolCalled(call_id="call_2", tool="read_file", args={"path": "b.txt"}),
        FINISHED,
        events.ToolFinished(call_id="call_2", tool="read_file", duration_ms=1, text="gone", is_error=True),
    )
    assert summarise_frames(happened)[-9:] == [
        "tool_execution_start",
        "tool_execution_start",
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "turn_end",
    ]
    assert [result["isError"] for result in happened[-1]["toolResults"]] == [False, True]


def test_a_message_waits_for_its_usage_and_no_longer_than_until_the_run_moves_on() -> None:
    said = events.MessageCompleted("asst_1", "", calls=(READ,))
    unrelated = events.MessageQueued(message_id="msg_1", text="also", delivery=events.Delivery.STEER, by=OWNER)
    assert filter_by_type(encode_entries(STARTED, said, unrelated), "message_end")[-1]["message"]["role"] == "user"
    assert filter_by_type(encode_entries(STARTED, said, unrelated, USAGE), "message_end")[-1]["message"]["usage"]["output"] == 20
    (ended,) = filter_by_type(encode_entries(STARTED, said, CALLED), "message_end")[1:]
    assert ended["message"]["usage"] == ZEROS
    assert ended["message"]["model"] == CAST.model


def test_a_message_whose_pieces_are_gone_is_streamed_as_one() -> None:
    happened = encode_entries(STARTED, events.MessageCompleted("asst_1", "Hi", thinking="Hm"), USAGE)
    updates = [event["assistantMessageEvent"] for event in filter_by_type(happened, "message_update")]
    assert updates == [
        {"type": "thinking_start", "contentIndex": 0},
        {"type": "thinking_delta", "contentIndex": 0, "delta": "Hm"},
        {"type": "thinking_end", "contentIndex": 0, "content": "Hm"},
        {"type": "text_start", "contentIndex": 1},
        {"type": "text_delta", "contentIndex": 1, "delta": "Hi"},
        {"type": "text_end", "contentIndex": 1, "content": "Hi"},
    ]


def test_a_retry_ends_what_was_streamed_as_an_error_and_begins_again() -> None:
    happened = encode_entries(
        STARTED,
        THINKING,
        events.TextDelta("Half a"),
        events.RetryScheduled(attempt=2, max_attempts=4, delay_ms=500, reason="overloaded"),
        events.TextDelta("Whole"),
        events.MessageCompleted("asst_1", "Whole"),
        USAGE,
        events.RetryEnded(attempt=2, success=True),
        SUCCESS,
    )
    assert summarise_frames(happened)[4:] == [
        "message_start assistant",
        "message_update text_start",
        "message_update text_delta",
        "message_update text_end",
        "message_end assistant error",
        "auto_retry_start",
        "message_start assistant",
        "message_update text_start",
        "message_update text_delta",
        "message_update text_end",
        "message_end assistant stop",
        "turn_end",
        "auto_retry_end",
        "agent_end",
    ]
    voided = happened[8]["message"]
    assert (voided["content"], voided["errorMessage"]) == ([{"type": "text", "text": "Half a"}], "overloaded")
    assert happened[9] == {
        "type": "auto_retry_start",
        "attempt": 1,
        "maxAttempts": 3,
        "delayMs": 500,
        "errorMessage": "overloaded",
    }
    assert filter_by_type(happened, "auto_retry_end") == [{"type": "auto_retry_end", "success": True, "attempt": 1}]
    assert [message["content"][0]["text"] for message in happened[-1]["messages"]] == ["hello", "Whole"]


def test_retries_that_fail_say_why() -> None:
    (ended,) = encode_entries(events.RetryEnded(attempt=4, success=False, reason="overloaded"))
    assert ended == {"type": "auto_retry_end", "success": False, "attempt": 3, "finalError": "overloaded"}


def test_a_failed_model_is_told_as_a_message_that_is_an_error() -> None:
    failed = events.RunCompleted(outcome=events.Outcome.FAILED, summary="the model …", exit_code_hint=1)
    happened = encode_entries(STARTED, THINKING, events.ErrorRaised("MODEL_ERROR", "the model is unknown"), failed)
    assert summarise_frames(happened)[4:] == [
        "notice",
        "message_start assistant",
        "message_end assistant error",
        "turn_end",
        "agent_end",
    ]
    assert happened[4] == {"type": "notice", "level": "error", "code": "MODEL_ERROR", "message": "the model is unknown"}
    message = happened[6]["message"]
    assert (message["content"], message["errorMessage"]) == ([], "the model is unknown")
    assert happened[-2]["message"] == message
    assert happened[-1]["messages"][-1] == message


def test_a_run_cancelled_in_the_middle_of_a_message_keeps_what_was_said() -> None:
    cancelled = events.RunCompleted(outcome=events.Outcome.CANCELLED, summary="cancelled", exit_code_hint=3)
    happened = encode_entries(STARTED, THINKING, events.ThinkingDelta("Hm\n"), events.TextDelta('Half "a'), cancelled)
    assert summarise_frames(happened)[-3:] == ["message_end assistant aborted", "turn_end", "agent_end"]
    message = happened[-3]["message"]
    assert message["content"] == [{"type": "thinking", "thinking": "Hm\n"}, {"type": "text", "text": 'Half "a'}]
    assert message["errorMessage"] == "cancelled"


def test_a_run_cancelled_while_a_tool_works_ends_the_tool_and_says_so() -> None:
    cancelled = events.RunCompleted(outcome=events.Outcome.CANCELLED, summary="cancelled", exit_code_hint=3)
    happened = encode_entries(STARTED, events.MessageCompleted("asst_1", "", calls=(READ,)), USAGE, CALLED, cancelled)
    assert summarise_frames(happened)[-7:] == [
        "tool_execution_end",
        "turn_end",
        "turn_start",
        "message_start assistant",
        "message_end assistant aborted",
        "turn_end",
        "agent_end",
    ]
    assert happened[-7]["isError"] is True


def test_a_steered_message_begins_the_next_turn() -> None:
    happened = encode_entries(
        STARTED,
        events.MessageCompleted("asst_1", "One"),
        USAGE,
        events.MessageDelivered("msg_1", "and two", images=(events.Image("image/png", "aGk="),)),
        THINKING,
        events.MessageCompleted("asst_2", "Two"),
        USAGE,
        SUCCESS,
    )
    lines = summarise_frames(happened)
    delivered = lines.index("turn_end")
    assert lines[delivered : delivered + 5] == [
        "turn_end",
        "turn_start",
        "message_start user",
        "message_end user",
        "message_start assistant",
    ]
    assert happened[delivered + 2]["message"]["content"] == [
        {"type": "text", "text": "and two"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    assert lines.count("turn_start") == lines.count("turn_end") == 2


@pytest.mark.parametrize(("reason", "will_retry"), [("threshold", False), ("overflow", True)])
def test_a_compaction_that_nobody_asked_for_is_an_auto_compaction(reason: str, will_retry: bool) -> None:
    compacted = events.ContextCompacted(reason=reason, summary="So far", kept=2, tokens_before=900, tokens_after=100)
    happened = encode_entries(STARTED, events.CompactionStarted(reason), compacted)
    assert happened[-2:] == [
        {"type": "auto_compaction_start", "reason": reason},
        {
            "type": "auto_compaction_end",
            "result": {"summary": "So far", "firstKeptEntryId": "e3", "tokensBefore": 900},
            "aborted": False,
            "willRetry": will_retry,
        },
    ]


def test_a_compaction_that_failed_has_no_result_and_says_why() -> None:
    started = events.CompactionStarted("overflow")
    assert encode_entries(STARTED, started, events.CompactionFailed("no room"))[-1] == {
        "type": "auto_compaction_end",
        "result": None,
        "aborted": False,
        "willRetry": False,
        "errorMessage": "no room",
    }
    aborted = encode_entries(STARTED, started, events.CompactionFailed("cancelled", aborted=True))[-1]
    assert (aborted["aborted"], "errorMessage" in aborted) == (True, False)


def test_an_overflow_in_the_middle_of_a_message_voids_it() -> None:
    happened = encode_entries(STARTED, events.TextDelta("Half"), events.CompactionStarted("overflow"))
    assert summarise_frames(happened)[-2:] == ["message_end assistant error", "auto_compaction_start"]


def test_a_compaction_that_was_asked_for_is_no_run_of_the_agent() -> None:
    happened = encode_entries(
        events.RunStarted(text="", by=OWNER, purpose=events.Purpose.COMPACT),
        events.CompactionStarted("requested"),
        USAGE,
        events.ContextCompacted(reason="requested", summary="So far", kept=0, tokens_before=9, tokens_after=1),
        SUCCESS,
    )
    assert summarise_frames(happened) == ["notice", "compaction_start", "compaction_end", "notice"]
    assert happened[2]["result"] == {"summary": "So far", "firstKeptEntryId": "e4", "tokensBefore": 9}


def test_an_undo_is_told_as_notices() -> None:
    failed = events.RunCompleted(outcome=events.Outcome.FAILED, summary="nothing was restored", exit_code_hint=1)
    happened = encode_entries(events.RunStarted(text="", by=OWNER, purpose=events.Purpose.UNDO), failed)
    assert happened == [
        {"type": "notice", "level": "info", "code": "UNDO_STARTED", "message": "Undo started"},
        {"type": "notice", "level": "warning", "code": "UNDO_FINISHED", "message": "nothing was restored"},
    ]


def test_an_approval_is_a_question_that_is_closed_by_its_decision() -> None:
    decided = events.ApprovalDecided("appr_1", events.Verdict.APPROVE, OWNER)
    happened = encode_entries(STARTED, events.ApprovalRequested(APPROVAL), decided)
    assert happened[-2:] == [
        {
            "type": "extension_ui_request",
            "requestId": "appr_1",
            "method": "confirm",
            "title": "Run a command",
            "message": "make test\ncwd: /work\nreason: it runs a program",
            "timeout": 59_998,
            "approval": True,
            "always": "allow run make *",
        },
        {"type": "extension_ui_closed", "requestId": "appr_1", "reason": "approved"},
    ]


def test_questions_that_nobody_answered_are_closed_with_their_reason() -> None:
    dialog = events.Dialog(id="dlg_1", method="select", title="Which?", expires_at_ms=START_MS, options=("a", "b"))
    closed = [
        events.ApprovalDecided("appr_1", events.Verdict.DENY_STOP, OWNER),
        events.ApprovalExpired("appr_1"),
        events.ApprovalWithdrawn("appr_1", "the run has ended"),
        events.DialogAnswered("dlg_1", {"value": "a"}, OWNER),
        events.DialogClosed("dlg_1", "dismissed"),
    ]
    reasons = [encode_entries(events.DialogOpened(dialog), event)[-1]["reason"] for event in closed]
    assert reasons == ["denied", "expired", "withdrawn", "answered", "dismissed"]


def test_a_run_that_ends_closes_its_questions() -> None:
    happened = encode_entries(STARTED, events.ApprovalRequested(APPROVAL), SUCCESS)
    assert [event["requestId"] for event in filter_by_type(happened, "extension_ui_closed")] == ["appr_1"]


def test_what_people_do_besides_is_told_without_a_run() -> None:
    happened = encode_entries(
        events.ShellStarted("shell_1", "ls", OWNER),
        events.ShellFinished("shell_1", 0, "a.txt\n"),
        events.SessionConfigured(by=OWNER, title="Mine", auto_retry=False),
        events.WarningRaised("PROMPT_NOT_EXPANDED", "no such file", "@x"),
    )
    assert happened == [
        {"type": "bash_start", "command": "ls"},
        {"type": "bash_end", "exitCode": 0, "output": "a.txt\n", "cancelled": False},
        {"type": "session_info_changed", "sessionName": "Mine", "autoRetry": False},
        {"type": "notice", "level": "warning", "code": "PROMPT_NOT_EXPANDED", "message": "no such file", "detail": "@x"},
    ]


def test_between_runs_the_state_is_one_shared_object() -> None:
    assert PiStreamState.empty() is PiStreamState.empty()
    assert fold_entries(STARTED, events.TextDelta("Hi"), SUCCESS) is PiStreamState.empty()
    assert fold_entries(events.ShellStarted("shell_1", "ls", OWNER), events.ApprovalExpired("appr_0")) is PiStreamState.empty()
    assert fold_entries(STARTED) is not PiStreamState.empty()


def test_what_changes_nothing_leaves_the_very_same_state() -> None:
    state = fold_entries(STARTED, events.TextDelta("Hi"))
    aside = make_entries([events.SessionConfigured(by=OWNER, title="Mine"), events.CheckpointTaken("before", "t")])
    assert encoder.encode_batch(state, SESSION, aside, CAST)[1] is state
    assert encoder.encode_batch(state, SESSION, [], CAST) == ([], state)


def test_a_state_can_be_gone_on_from_twice() -> None:
    state = fold_entries(STARTED, events.TextDelta("One"))
    first = encode_entries(events.TextDelta(" two"), events.MessageCompleted("asst_1", "One two"), state=state)
    second = encode_entries(events.TextDelta(" two"), events.MessageCompleted("asst_1", "One two"), state=state)
    other = encode_entries(events.TextDelta(" three"), state=state)
    assert first == second
    assert other[0]["message"]["content"] == [{"type": "text", "text": "One three"}]


def test_whoever_joins_gets_the_message_so_far_the_tools_at_work_and_the_open_questions() -> None:
    state = fold_entries(
        STARTED, events.MessageCompleted("asst_1", "", calls=(READ,)), USAGE, CALLED, events.ApprovalRequested(APPROVAL)
    )
    started, asked = list_events(encoder.encode_catch_up(state, now_ms=START_MS + 59_000))
    assert started == {"type": "tool_execution_start", "toolCallId": "call_1", "toolName": "read_file", "args": {"path": "a.txt"}}
    assert (asked["requestId"], asked["timeout"]) == ("appr_1", 1_000)
    long = "x" * 3_000
    (begun,) = list_events(
        encoder.encode_catch_up(
            fold_entries(STARTED, events.ThinkingDelta("Hm"), events.TextDelta(long), events.TextDelta("é\n"))
        )
    )
    assert begun["type"] == "message_start"
    assert begun["message"]["content"] == [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": long + "é\n"}]
    assert "truncated" not in begun["message"]
    (held,) = list_events(encoder.encode_catch_up(fold_entries(STARTED, ANSWER)))
    assert held["message"]["content"] == [{"type": "text", "text": "It says contents"}]
    assert encoder.encode_catch_up(PiStreamState.empty()) == []


def test_a_run_whose_beginning_was_missed_is_still_told() -> None:
    happened = encode_entries(events.TextDelta("Hi"), events.ToolProgressed("call_9", "…"), SUCCESS)
    assert summarise_frames(happened) == [
        "turn_start",
        "message_start assistant",
        "message_update text_start",
        "message_update text_delta",
        "tool_execution_update",
        "message_update text_end",
        "message_end assistant stop",
        "turn_end",
        "agent_end",
    ]


def test_what_agent_end_repeats_is_bounded_and_keeps_the_newest() -> None:
    megabyte = "x" * 1_000_000
    results = [events.ToolFinished(f"call_{number}", "run", 1, f"{number}:{megabyte}") for number in range(12)]
    (ended,) = filter_by_type(encode_entries(STARTED, *results, SUCCESS), "agent_end")
    kept = [message["content"][0]["text"].partition(":")[0] for message in ended["messages"] if message["role"] == "toolResult"]
    assert kept == [str(number) for number in range(4, 12)]


def test_an_entry_of_every_kind_can_be_told() -> None:
    assert {event.kind for event in ONE_OF_EACH} == events.BY_KIND.keys()
    for event in ONE_OF_EACH:
        entry = journal.Entry(1, START_MS, RUN, event.kind, make_entries([event])[0].data)
        frames, _ = encoder.encode_batch(PiStreamState.empty(), SESSION, [entry], CAST)
        list_events(frames)
