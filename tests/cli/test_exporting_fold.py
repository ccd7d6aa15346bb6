"""Events folded into blocks: in the order in which things began, each as soon as it is settled, in bounded memory."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cli.events import PushEventFactory

from switchtower.cli.export import blocks
from switchtower.cli.export.blocks import ExportFold
from switchtower.client.frames import PushEvent


def fold_events(events: Iterable[PushEvent]) -> list[blocks.ExportBlock]:
    fold = ExportFold()
    found = [block for event in events for block in fold.add_event(event)]
    return found + fold.finish()


def list_shown(found: Iterable[blocks.ExportBlock]) -> list[tuple[Any, ...]]:
    return [_show_block(block) for block in found]


def _show_block(block: blocks.ExportBlock) -> tuple[Any, ...]:
    match block:
        case blocks.ExportedMessage(text=text, how=how):
            return "said", text, how
        case blocks.ExportedText(thinking=thinking, void=void):
            return "thought" if thinking else "answer", block.text, void
        case blocks.ExportedToolCall(name=name, args=args, result=result, is_error=is_error):
            return "tool", name, args, result, is_error
        case blocks.ExportedApproval(approval=approval, ending=ending):
            return "asked", approval.approvalId, ending
        case blocks.ExportedNotice(text=text, detail=detail):
            return "notice", text, detail
        case blocks.ExportedRunEnd(outcome=outcome, usage=usage):
            return "ended", outcome, usage
    raise AssertionError(block)


def test_a_conversation_becomes_what_was_said_thought_done_and_decided() -> None:
    told = PushEventFactory()
    events = [
        told.make_event("session_started", {"sessionId": "sess_1", "state": "idle", "mode": "headless", "provider": "demo",
                                       "sandboxProvider": "local"}, run_id=None),
        told.make_user_message("fix it"),
        told.make_status("Thinking"),
        told.make_token("let me ", thinking=True),
        told.make_token("see", thinking=True),
        told.make_token("I "),
        told.make_token("look."),
        told.make_done(),
        told.make_status("Usage", "100 tokens in, 10 out, $0.500000 (demo demo)"),
        told.call("sandbox_exec", command="make test"),
        told.make_approval(command="make test"),
        told.make_decision(by="web"),
        told.make_status("Tool output", "half"),
        told.make_tool_result("sandbox_exec", "all of it"),
        told.make_status("Message delivered", "hurry"),
        told.complete(),
    ]  # fmt: skip

    assert list_shown(fold_events(events)) == [
        ("said", "fix it", ""),
        ("thought", "let me see", False),
        ("answer", "I look.", False),
        ("asked", "appr_1", "approved by web"),
        ("tool", "sandbox_exec", {"command": "make test"}, "all of it", False),
        ("said", "hurry", "while it worked"),
        ("ended", "success", "100 tokens in, 10 out, $0.5000 (demo demo)"),
    ]


def test_an_open_call_holds_back_what_began_later_and_lets_nothing_wait_for_the_run_s_end() -> None:
    told, fold = PushEventFactory(), ExportFold()
    assert fold.add_event(told.call("a", n=1)) == []
    assert fold.add_event(told.call("b")) == []
    assert fold.add_event(told.make_tool_result("b", "second")) == []

    released = fold.add_event(told.make_tool_result("a", "first"))

    assert [(block[1], block[3]) for block in list_shown(released)] == [("a", "first"), ("b", "second")]
    assert fold.finish() == []


def test_what_a_failed_call_said_is_void_and_what_it_says_anew_is_not() -> None:
    told = PushEventFactory()
    events = [
        told.make_token("half an ans"),
        told.make_warning("MODEL_RETRY", "again", "attempt 2"),
        told.make_token("whole"),
        told.make_done(),
    ]

    assert list_shown(fold_events(events)) == [
        ("answer", "half an ans", True),
        ("notice", "again", "attempt 2"),
        ("answer", "whole", False),
    ]


def test_an_approval_that_nobody_decides_says_how_it_ended() -> None:
    told = PushEventFactory()
    events = [
        told.make_approval("appr_1"),
        told.make_warning("APPROVAL_EXPIRED", "Nobody decided in time", "appr_1"),
        told.make_approval("appr_2"),
    ]

    assert list_shown(fold_events(events)) == [("asked", "appr_1", "Nobody decided in time"), ("asked", "appr_2", "")]


def test_a_run_that_is_cut_short_leaves_its_calls_without_a_result() -> None:
    told = PushEventFactory()
    events = [
        told.call("a"),
        told.make_status("Tool output", "so far"),
        told.complete("cancelled"),
        told.make_user_message("again"),
    ]

    [tool, ended, said] = fold_events(events)

    assert isinstance(tool, blocks.ExportedToolCall)
    assert (tool.result, tool.output, tool.done) == (None, "so far", True)
    assert list_shown([ended, said]) == [("ended", "cancelled", ""), ("said", "again", "")]


def test_a_result_without_its_call_is_shown_all_the_same() -> None:
    assert list_shown(fold_events([PushEventFactory().make_tool_result("a", "text")])) == [("tool", "a", {}, "text", False)]


def test_after_a_gap_the_last_answer_stands_for_what_is_gone() -> None:
    told = PushEventFactory()
    snapshot = {
        "state": "idle",
        "activeRunId": None,
        "lastAssistantText": "as I said",
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    events = [
        told.make_event("session_snapshot", snapshot),
        told.make_warning("EVENT_GAP"),
        told.make_event("session_snapshot", snapshot),
    ]

    assert list_shown(fold_events(events)) == [
        ("notice", "What came before is no longer kept in full", ""),
        ("answer", "as I said", False),
    ]


def test_a_dialog_is_told_with_how_it_ended() -> None:
    told = PushEventFactory()
    detail = '{"dialogId":"dlg_1","method":"confirm","message":"All of it?","expiresAt":1}'
    events = [told.make_warning("DIALOG_OPENED", "Delete?", detail), told.make_status("Dialog answered", "dlg_1")]

    assert list_shown(fold_events(events)) == [("notice", "Asks: Delete?", "All of it?"), ("notice", "Delete?: answered", "")]


def test_a_text_without_an_end_comes_out_in_pieces_and_nothing_of_it_is_lost() -> None:
    told, fold = PushEventFactory(), ExportFold()
    piece = "x" * (blocks.MAX_TEXT_CHARS // 4)
    found = [block for _ in range(21) for block in fold.add_event(told.make_token(piece))]

    assert len(found) >= 3, "most of it was written before its end"
    assert [block.goes_on for block in found if isinstance(block, blocks.ExportedText)][:2] == [False, True]
    found += fold.add_event(told.make_done())
    assert sum(len(block.text) for block in found if isinstance(block, blocks.ExportedText)) == 21 * len(piece)
    assert fold.finish() == []


def test_output_without_an_end_keeps_its_end() -> None:
    told, fold = PushEventFactory(), ExportFold()
    fold.add_event(told.call("a"))
    for number in range(40):
        fold.add_event(told.make_status("Tool output", f"{number}" * 20_000))

    [tool] = fold.finish()

    assert isinstance(tool, blocks.ExportedToolCall)
    assert len(tool.output) == blocks.MAX_OUTPUT_CHARS
    assert tool.output.endswith("39")


def test_what_is_held_back_is_bounded_and_a_late_result_is_not_lost() -> None:
    told, fold = PushEventFactory(), ExportFold()
    fold.add_event(told.call("slow"))
    found = []
    for _ in range(3 * blocks.MAX_HELD_BLOCKS):
        found += fold.add_event(told.make_status("Something", "new"))
    found += fold.add_event(told.make_tool_result("slow", "at last"))
    found += fold.finish()

    results = [block.result for block in found if isinstance(block, blocks.ExportedToolCall)]
    assert results == [None, "at last"]
    assert len(found) == 3 * blocks.MAX_HELD_BLOCKS + 2


STEPS = [
    "said",
    "token",
    "thought",
    "done",
    "call",
    "other",
    "result",
    "asked",
    "decided",
    "expired",
    "retry",
    "complete",
    "output",
]


def _make_event(told: PushEventFactory, step: str) -> PushEvent:
    match step:
        case "said":
            return told.make_user_message("hi")
        case "token" | "thought":
            return told.make_token("word ", thinking=step == "thought")
        case "done":
            return told.make_done()
        case "call" | "other":
            return told.call(step)
        case "result":
            return told.make_tool_result("call", "out")
        case "asked":
            return told.make_approval()
        case "decided":
            return told.make_decision()
        case "expired":
            return told.make_warning("APPROVAL_EXPIRED", "late", "appr_1")
        case "retry":
            return told.make_warning("MODEL_RETRY", "again")
        case "output":
            return told.make_status("Tool output", "x")
    return told.complete()


@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_in_any_order_every_word_comes_out_once_and_nothing_stays_open_after_a_run(steps: list[str]) -> None:
    told, fold = PushEventFactory(), ExportFold()
    found: list[blocks.ExportBlock] = []
    for step in steps:
        found += fold.add_event(_make_event(told, step))
        assert all(block.done for block in found)
        if step in ("said", "complete"):
            assert fold.finish() == [], "a run that begins or ends settles all"
    found += fold.finish()

    words = sum(block.text.count("word ") for block in found if isinstance(block, blocks.ExportedText))
    assert words == steps.count("token") + steps.count("thought")
    assert sum(isinstance(block, blocks.ExportedMessage) for block in found) == steps.count("said")
    assert sum(isinstance(block, blocks.ExportedRunEnd) for block in found) == steps.count("complete")
    results = [block for block in found if isinstance(block, blocks.ExportedToolCall) and block.result is not None]
    assert len(results) == steps.count("result")
