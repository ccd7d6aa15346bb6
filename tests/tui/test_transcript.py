"""Events to blocks: what is shown, and that neither batches nor pages change it."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tui import told

from switchtower.client.frames import PushEvent
from switchtower.presentation import transcript as presentation_transcript
from switchtower.presentation.transcript import MOST_BLOCKS, TranscriptModel

TOOLS = st.sampled_from(["sandbox_exec", "sandbox_read_file", "mcp_thing"])
TEXTS = st.text(max_size=6)
TOLD = st.one_of(
    TEXTS.map(told.make_token),
    TEXTS.map(told.make_thinking),
    st.just(told.DONE),
    TOOLS.map(lambda tool: told.call(tool, path="a")),
    TEXTS.map(told.make_output),
    st.tuples(TOOLS, TEXTS).map(lambda pair: told.make_tool_result(*pair)),
    TOOLS.map(lambda tool: told.make_tool_result(tool, "", error="no")),
    TEXTS.map(told.make_user_message),
    st.sampled_from(["Compaction started", "Message delivered", "Message queued", "Screen", "Anything"]).map(
        lambda phase: told.make_status(phase, "x")
    ),
    st.just(told.make_status("Usage", "10 tokens in, 2 out, $0.000100 (demo demo)", "model")),
    st.sampled_from(["appr_1", "appr_2"]).map(lambda name: told.make_approval(name, command="ls")),
    st.sampled_from(["appr_1", "appr_2"]).map(told.make_decision),
    st.sampled_from(["MODEL_RETRY", "EVENT_GAP", "SESSION_CONFIGURED", "APPROVAL_EXPIRED", "POLICY_YOLO", "SESSION_LOADED"]).map(
        lambda code: told.make_warning(code, "m", "appr_1")
    ),
    st.just(told.make_failure("MODEL_ERROR", "it failed")),
    st.sampled_from(["success", "failed"]).map(told.complete),
    st.just(
        (
            "session_snapshot",
            {
                "state": "running",
                "activeRunId": None,
                "lastAssistantText": "last words",
                "pendingApproval": None,
                "meta": {"provider": "demo", "sandboxProvider": "local"},
            },
        )
    ),
)


def fold_events(*batches: list[PushEvent]) -> TranscriptModel:
    transcript = TranscriptModel()
    for batch in batches:
        transcript.extend(batch)
    return transcript


def list_shown(transcript: TranscriptModel) -> list[tuple[Any, ...]]:
    return [block.get_content() for block in transcript.blocks]


def get_only_block(kind: type[Any], *events: told.Told) -> Any:
    (block,) = (block for block in fold_events(told.make_story(*events)).blocks if isinstance(block, kind))
    return block


@given(st.lists(TOLD, max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_any_split_into_batches_gives_the_same_blocks(events: list[told.Told], cuts: list[int]) -> None:
    story = told.make_story(*events)
    edges = [0, *sorted(min(cut, len(story)) for cut in cuts), len(story)]
    whole, parts = fold_events(story), fold_events(*(story[start:end] for start, end in pairwise(edges)))
    assert list_shown(parts) == list_shown(whole)
    assert parts.facts == whole.facts


@given(st.lists(TOLD, min_size=1, max_size=40), st.lists(st.integers(0, 39), min_size=1, max_size=4), st.integers(0, 40))
def test_older_pages_read_afterwards_give_the_same_blocks(events: list[told.Told], cuts: list[int], live: int) -> None:
    story = told.make_story(*events)
    edges = sorted({0, *(min(cut, len(story) - 1) for cut in cuts)})
    newest = edges.pop()
    live_from = max(newest + 1, min(live, len(story)))
    transcript = fold_events(story[newest:live_from])
    for start in reversed(edges):
        before = len(transcript.blocks)
        more = transcript.prepend(story[start:newest])
        assert len(transcript.blocks) == before + more
        newest = start
    # What comes while pages are read folds on as if they had been there from the beginning.
    transcript.extend(story[live_from:])
    whole = fold_events(story)
    assert list_shown(transcript) == list_shown(whole)
    assert transcript.facts == whole.facts
    assert transcript.first_seq == 1


def test_the_result_of_a_call_goes_to_its_card_also_when_several_are_under_way() -> None:
    transcript = fold_events(
        told.make_story(
            told.call("sandbox_read_file", path="a"),
            told.call("sandbox_read_file", path="b"),
            told.make_tool_result("sandbox_read_file", "of a"),
            told.make_tool_result("sandbox_read_file", "of b"),
        )
    )
    cards = [(block.args, block.result) for block in transcript.blocks if isinstance(block, presentation_transcript.ToolBlock)]
    assert cards == [({"path": "a"}, "of a"), ({"path": "b"}, "of b")]


def test_output_of_a_running_command_grows_in_its_card() -> None:
    card = get_only_block(
        presentation_transcript.ToolBlock,
        told.call("sandbox_exec", command="make"),
        told.make_output("one\n"),
        told.make_output("two\n"),
    )
    assert (card.text, card.is_open) == ("one\ntwo\n", True)


def test_a_message_that_the_model_begins_again_is_void() -> None:
    transcript = fold_events(
        told.make_story(
            told.make_token("half"), told.make_warning("MODEL_RETRY", "again", "in 1 s"), told.make_token("whole"), told.DONE
        )
    )
    answers = [(block.text, block.void) for block in transcript.blocks if isinstance(block, presentation_transcript.AnswerBlock)]
    assert answers == [("half", True), ("whole", False)]


def test_a_decision_is_known_to_its_question_whoever_made_it() -> None:
    transcript = fold_events(told.make_story(told.make_approval(command="ls"), told.make_decision(by="app")))
    assert transcript.facts.get_decision("appr_1") == "approved by app"


def test_an_error_comes_with_a_remedy() -> None:
    assert "/model" in get_only_block(presentation_transcript.NoticeBlock, told.make_failure("MODEL_ERROR", "no")).remedy


def test_a_gap_shows_what_was_said_last() -> None:
    snapshot = {
        "state": "completed",
        "activeRunId": None,
        "lastAssistantText": "the end",
        "pendingApproval": None,
        "meta": {"provider": "demo", "sandboxProvider": "local"},
    }
    answer = get_only_block(
        presentation_transcript.AnswerBlock, told.make_warning("EVENT_GAP", "gap", "earliest"), ("session_snapshot", snapshot)
    )
    assert answer.text == "the end"


def test_what_a_run_took_is_added_up() -> None:
    transcript = fold_events(
        told.make_story(
            told.make_user_message("go"),
            told.make_status("Usage", "10 tokens in, 2 out, $0.500000 (demo demo)", "model"),
            told.make_status("Usage", "1 tokens in, 1 out (demo demo)", "model"),
            told.complete(),
        )
    )
    run = transcript.facts.runs[told.RUN]
    assert (run.tokens_in, run.tokens_out, run.cost, run.priced) == (11, 3, 0.5, False)
    assert (run.started_ms, run.ended_ms) == (told.T0 + 1_000, told.T0 + 4_000)


def test_a_text_without_end_keeps_its_end_and_a_bound() -> None:
    transcript = TranscriptModel()
    piece = "x" * 10_000
    transcript.extend(told.make_story(*(told.make_token(piece) for _ in range(100)), told.make_token("end")))
    (answer,) = transcript.blocks
    assert isinstance(answer, presentation_transcript.AnswerBlock)
    assert answer.text.endswith("end")
    assert len(answer.text) <= presentation_transcript.LONGEST_TEXT * 5 // 4
    assert answer.dropped + len(answer.text) == 100 * len(piece) + 3


def test_a_transcript_without_end_forgets_its_beginning_and_can_read_it_again() -> None:
    runs = [told.make_user_message("go"), told.make_token("yes"), told.DONE, told.complete()]
    story = told.make_story(*(one for _ in range(MOST_BLOCKS) for one in runs))
    transcript = fold_events(story)
    assert len(transcript.blocks) <= MOST_BLOCKS * 5 // 4
    assert transcript.first_seq > 1
    first = transcript.first_seq
    before = list_shown(transcript)
    transcript.prepend(story[first - 9 : first - 1])
    assert list_shown(transcript)[6:] == before
    assert transcript.first_seq == first - 8
