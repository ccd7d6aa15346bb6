"""Events folded into blocks: in the order in which things began, each as soon as it is settled, in bounded memory."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cli.events import Told

from switchtower.cli.exporting import blocks
from switchtower.cli.exporting import fold as folding
from switchtower.cli.exporting.fold import Fold
from switchtower.client.frames import Event


def folded(events: Iterable[Event]) -> list[blocks.Block]:
    fold = Fold()
    found = [block for event in events for block in fold.take(event)]
    return found + fold.end()


def shown(found: Iterable[blocks.Block]) -> list[tuple[Any, ...]]:
    return [_shown(block) for block in found]


def _shown(block: blocks.Block) -> tuple[Any, ...]:
    match block:
        case blocks.Said(text=text, how=how):
            return "said", text, how
        case blocks.Prose(thinking=thinking, void=void):
            return "thought" if thinking else "answer", block.text, void
        case blocks.Tool(name=name, args=args, result=result, is_error=is_error):
            return "tool", name, args, result, is_error
        case blocks.Asked(approval=approval, ending=ending):
            return "asked", approval.approvalId, ending
        case blocks.Notice(text=text, detail=detail):
            return "notice", text, detail
        case blocks.Ended(outcome=outcome, usage=usage):
            return "ended", outcome, usage
    raise AssertionError(block)


def test_a_conversation_becomes_what_was_said_thought_done_and_decided() -> None:
    told = Told()
    events = [
        told.event("session_started", {"sessionId": "sess_1", "state": "idle", "mode": "headless", "provider": "demo",
                                       "sandboxProvider": "local"}, run_id=None),
        told.said("fix it"),
        told.status("Thinking"),
        told.token("let me ", thinking=True),
        told.token("see", thinking=True),
        told.token("I "),
        told.token("look."),
        told.done(),
        told.status("Usage", "100 tokens in, 10 out, $0.500000 (demo demo)"),
        told.call("sandbox_exec", command="make test"),
        told.asked(command="make test"),
        told.decided(by="web"),
        told.status("Tool output", "half"),
        told.result("sandbox_exec", "all of it"),
        told.status("Message delivered", "hurry"),
        told.complete(),
    ]  # fmt: skip

    assert shown(folded(events)) == [
        ("said", "fix it", ""),
        ("thought", "let me see", False),
        ("answer", "I look.", False),
        ("asked", "appr_1", "approved by web"),
        ("tool", "sandbox_exec", {"command": "make test"}, "all of it", False),
        ("said", "hurry", "while it worked"),
        ("ended", "success", "100 tokens in, 10 out, $0.5000 (demo demo)"),
    ]


def test_an_open_call_holds_back_what_began_later_and_lets_nothing_wait_for_the_run_s_end() -> None:
    told, fold = Told(), Fold()
    assert fold.take(told.call("a", n=1)) == []
    assert fold.take(told.call("b")) == []
    assert fold.take(told.result("b", "second")) == []

    released = fold.take(told.result("a", "first"))

    assert [(block[1], block[3]) for block in shown(released)] == [("a", "first"), ("b", "second")]
    assert fold.end() == []


def test_what_a_failed_call_said_is_void_and_what_it_says_anew_is_not() -> None:
    told = Told()
    events = [told.token("half an ans"), told.warning("MODEL_RETRY", "again", "attempt 2"), told.token("whole"), told.done()]

    assert shown(folded(events)) == [
        ("answer", "half an ans", True),
        ("notice", "again", "attempt 2"),
        ("answer", "whole", False),
    ]


def test_an_approval_that_nobody_decides_says_how_it_ended() -> None:
    told = Told()
    events = [told.asked("appr_1"), told.warning("APPROVAL_EXPIRED", "Nobody decided in time", "appr_1"), told.asked("appr_2")]

    assert shown(folded(events)) == [("asked", "appr_1", "Nobody decided in time"), ("asked", "appr_2", "")]


def test_a_run_that_is_cut_short_leaves_its_calls_without_a_result() -> None:
    told = Told()
    events = [told.call("a"), told.status("Tool output", "so far"), told.complete("cancelled"), told.said("again")]

    [tool, ended, said] = folded(events)

    assert isinstance(tool, blocks.Tool)
    assert (tool.result, tool.output, tool.done) == (None, "so far", True)
    assert shown([ended, said]) == [("ended", "cancelled", ""), ("said", "again", "")]


def test_a_result_without_its_call_is_shown_all_the_same() -> None:
    assert shown(folded([Told().result("a", "text")])) == [("tool", "a", {}, "text", False)]


def test_after_a_gap_the_last_answer_stands_for_what_is_gone() -> None:
    told = Told()
    snapshot = {
        "state": "idle",
        "activeRunId": None,
        "lastAssistantText": "as I said",
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    events = [told.event("session_snapshot", snapshot), told.warning("EVENT_GAP"), told.event("session_snapshot", snapshot)]

    assert shown(folded(events)) == [
        ("notice", "What came before is no longer kept in full", ""),
        ("answer", "as I said", False),
    ]


def test_a_dialog_is_told_with_how_it_ended() -> None:
    told = Told()
    detail = '{"dialogId":"dlg_1","method":"confirm","message":"All of it?","expiresAt":1}'
    events = [told.warning("DIALOG_OPENED", "Delete?", detail), told.status("Dialog answered", "dlg_1")]

    assert shown(folded(events)) == [("notice", "Asks: Delete?", "All of it?"), ("notice", "Delete?: answered", "")]


def test_a_text_without_an_end_comes_out_in_pieces_and_nothing_of_it_is_lost() -> None:
    told, fold = Told(), Fold()
    piece = "x" * (folding.LONGEST_PROSE // 4)
    found = [block for _ in range(21) for block in fold.take(told.token(piece))]

    assert len(found) >= 3, "most of it was written before its end"
    assert [block.goes_on for block in found if isinstance(block, blocks.Prose)][:2] == [False, True]
    found += fold.take(told.done())
    assert sum(len(block.text) for block in found if isinstance(block, blocks.Prose)) == 21 * len(piece)
    assert fold.end() == []


def test_output_without_an_end_keeps_its_end() -> None:
    told, fold = Told(), Fold()
    fold.take(told.call("a"))
    for number in range(40):
        fold.take(told.status("Tool output", f"{number}" * 20_000))

    [tool] = fold.end()

    assert isinstance(tool, blocks.Tool)
    assert len(tool.output) == folding.LONGEST_OUTPUT
    assert tool.output.endswith("39")


def test_what_is_held_back_is_bounded_and_a_late_result_is_not_lost() -> None:
    told, fold = Told(), Fold()
    fold.take(told.call("slow"))
    found = []
    for _ in range(3 * folding.MOST_HELD_BACK):
        found += fold.take(told.status("Something", "new"))
    found += fold.take(told.result("slow", "at last"))
    found += fold.end()

    results = [block.result for block in found if isinstance(block, blocks.Tool)]
    assert results == [None, "at last"]
    assert len(found) == 3 * folding.MOST_HELD_BACK + 2


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


def _event(told: Told, step: str) -> Event:
    match step:
        case "said":
            return told.said("hi")
        case "token" | "thought":
            return told.token("word ", thinking=step == "thought")
        case "done":
            return told.done()
        case "call" | "other":
            return told.call(step)
        case "result":
            return told.result("call", "out")
        case "asked":
            return told.asked()
        case "decided":
            return told.decided()
        case "expired":
            return told.warning("APPROVAL_EXPIRED", "late", "appr_1")
        case "retry":
            return told.warning("MODEL_RETRY", "again")
        case "output":
            return told.status("Tool output", "x")
    return told.complete()


@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_in_any_order_every_word_comes_out_once_and_nothing_stays_open_after_a_run(steps: list[str]) -> None:
    told, fold = Told(), Fold()
    found: list[blocks.Block] = []
    for step in steps:
        found += fold.take(_event(told, step))
        assert all(block.done for block in found)
        if step in ("said", "complete"):
            assert fold.end() == [], "a run that begins or ends settles all"
    found += fold.end()

    words = sum(block.text.count("word ") for block in found if isinstance(block, blocks.Prose))
    assert words == steps.count("token") + steps.count("thought")
    assert sum(isinstance(block, blocks.Said) for block in found) == steps.count("said")
    assert sum(isinstance(block, blocks.Ended) for block in found) == steps.count("complete")
    results = [block for block in found if isinstance(block, blocks.Tool) and block.result is not None]
    assert len(results) == steps.count("result")
