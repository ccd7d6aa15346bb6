"""What blocks look like: Markdown, cards, diffs; folded and unfolded; never broken by what is in them."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tui import told

from switchtower.presentation import transcript
from switchtower.presentation.transcript import TranscriptModel
from switchtower.tui.paint import blocks, palette

HOSTILE = "[bold red]x[/] \x1b[31m \u202e [link=http://evil]y[/link] :smile: [@click=app.bell]z[/]"


def paint_blocks(*events: told.Told, width: int = 60, unfolded: bool = False, dark: bool = True) -> str:
    transcript = TranscriptModel()
    transcript.extend(told.make_story(*events))
    look = blocks.PaintOptions(width, palette.DARK if dark else palette.LIGHT, transcript.facts, unfolded)
    painter = blocks.BlockPainter()
    return "\n".join(blocks.to_plain_text(painter.paint_block(block, look)) for block in transcript.blocks)


def test_an_answer_is_markdown() -> None:
    shown = paint_blocks(
        told.make_token("# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```python\nx = 1\n```\n"), told.DONE
    )
    assert "Title" in shown
    assert "**" not in shown
    assert "`" not in shown
    assert "• one" in shown
    assert "x = 1" in shown


def test_a_link_shows_where_it_leads() -> None:
    assert "http://evil.example" in paint_blocks(told.make_token("[a bank](http://evil.example)"), told.DONE)


@pytest.mark.parametrize(
    "events",
    [
        [told.make_token(HOSTILE), told.DONE],
        [told.make_thinking(HOSTILE)],
        [told.make_user_message(HOSTILE)],
        [told.call("sandbox_exec", command=HOSTILE), told.make_tool_result("sandbox_exec", HOSTILE)],
        [told.call(HOSTILE, **{HOSTILE: HOSTILE}), told.make_tool_result(HOSTILE, HOSTILE, error=HOSTILE)],
        [told.make_approval(command=HOSTILE)],
        [told.make_warning(HOSTILE, HOSTILE, HOSTILE)],
        [told.make_failure(HOSTILE, HOSTILE)],
        [told.complete("failed", HOSTILE, [{"id": HOSTILE, "passed": False, "exitCode": 1, "output": HOSTILE}])],
    ],
)
@pytest.mark.parametrize("unfolded", [False, True])
def test_no_markup_of_ours_is_found_in_strangers_text(events: list[told.Told], unfolded: bool) -> None:
    shown = paint_blocks(*events, width=400, unfolded=unfolded)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    if "thought" not in shown and "thinking" not in shown:
        assert "[bold red]x" in shown


@given(st.text(max_size=200), st.integers(1, 100))
def test_any_text_can_be_painted_at_any_width(text: str, width: int) -> None:
    paint_blocks(
        told.make_token(text),
        told.DONE,
        told.call("sandbox_exec", command=text),
        told.make_output(text),
        width=width,
        unfolded=True,
    )


@given(st.text(st.sampled_from("ab# \n`-*1.>|~"), max_size=80), st.lists(st.integers(0, 80), max_size=4))
def test_a_text_that_grows_ends_up_as_if_it_had_come_at_once(text: str, cuts: list[int]) -> None:
    once = blocks.MarkdownPainter().paint_markdown(text, 40, palette.DARK)
    growing = blocks.MarkdownPainter()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for _, end in pairwise(edges):
        growing.paint_markdown(text[:end], 40, palette.DARK)
    assert growing.paint_markdown(text, 40, palette.DARK) == once


@given(st.text(st.sampled_from("ab# \n`-~"), max_size=120))
def test_chunks_lose_no_line_that_says_something(text: str) -> None:
    said = [line for chunk in blocks.split_chunks(text) for line in chunk.split("\n") if line.strip()]
    assert said == [line for line in text.split("\n") if line.strip()]


@given(st.text(st.sampled_from("ab "), max_size=300), st.integers(1, 40))
def test_a_line_without_end_loses_nothing_but_blanks(text: str, longest: int) -> None:
    cut = list(blocks.split_long_line(text, longest))
    assert "".join(cut).replace(" ", "") == text.replace(" ", "")
    assert all(len(piece) <= longest for piece in cut[:-1])


def test_a_fence_and_a_list_are_never_cut() -> None:
    assert len(list(blocks.split_chunks("```\na\n\nb\n```"))) == 1
    assert len(list(blocks.split_chunks("- a\n\n- b\n\n  more"))) == 1
    assert list(blocks.split_chunks("one\n\ntwo")) == ["one\n", "two"]
    assert list(blocks.split_chunks("```\na\n```\n\ntwo")) == ["```\na\n```\n", "two"]


def test_thinking_is_folded_until_somebody_wants_it() -> None:
    events = [told.make_thinking("a secret plan"), told.DONE]
    assert "secret" not in paint_blocks(*events)
    assert "3 words" in paint_blocks(*events)
    assert "a secret plan" in paint_blocks(*events, unfolded=True)


def test_a_card_shows_the_end_of_long_output_and_all_of_it_unfolded() -> None:
    text = "\n".join(f"line {number}" for number in range(50))
    events = [told.call("sandbox_exec", command="make"), told.make_tool_result("sandbox_exec", text, ms=1_200)]
    folded = paint_blocks(*events)
    assert "$ make  1.2 s · 50 lines" in folded
    assert "line 49" in folded
    assert "line 40" not in folded
    assert "44 more lines" in folded
    assert "line 0\n" in paint_blocks(*events, unfolded=True)


def test_an_edit_is_shown_as_a_diff() -> None:
    call = told.call("sandbox_edit_file", path="a.py", old="x = 1\ny = 2", new="x = 1\ny = 3")
    shown = paint_blocks(call, told.make_tool_result("sandbox_edit_file", "done"))
    assert "Edit a.py" in shown
    assert "- y = 2" in shown
    assert "+ y = 3" in shown


def test_a_failed_tool_says_why() -> None:
    shown = paint_blocks(
        told.call("sandbox_exec", command="false"), told.make_tool_result("sandbox_exec", "", error="exit code 1")
    )
    assert "✗ $ false" in shown
    assert "exit code 1" in shown


def test_acceptance_and_the_outcome_end_a_run() -> None:
    results = [
        {"id": "tests", "passed": False, "exitCode": 2, "output": "a\nb\n"},
        {"id": "lint", "passed": True, "exitCode": 0, "output": ""},
    ]
    usage = told.make_status("Usage", "1200 tokens in, 34 out, $0.010000 (demo demo)", "model")
    shown = paint_blocks(told.make_user_message("go"), usage, told.complete("failed", "not accepted", results))
    assert "✗ tests  not accepted, exit code 2" in shown
    assert "✓ lint  accepted" in shown
    assert "✗ failed in 2.0 s · 1,200 tokens in, 34 out · $0.0100" in shown
    assert "not accepted" in shown


def test_a_question_shows_who_decided() -> None:
    assert "needs approval" in paint_blocks(told.make_approval(command="ls"))
    assert "denied by app" in paint_blocks(told.make_approval(command="ls"), told.make_decision(decision="deny", by="app"))


def test_a_line_inside_of_a_hunk_is_no_header() -> None:
    lines = list(palette.paint_diff("--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+y"))
    assert [str(line.style) for line in lines] == ["dim", "dim", "hunk", "removed", "added"]


@pytest.mark.parametrize("dark", [True, False])
def test_both_looks_know_every_style(dark: bool) -> None:
    everything: list[Any] = [
        told.make_thinking("a"),
        told.make_token("# b\n`c`\n> d\n\n---"),
        told.DONE,
        told.make_failure("X", "e"),
        told.complete(),
    ]
    assert paint_blocks(*everything, dark=dark)


def test_a_void_message_is_not_shown() -> None:
    assert "half" not in paint_blocks(told.make_token("half"), told.make_warning("MODEL_RETRY", "again", "soon"))


def test_blocks_of_every_kind_can_be_painted() -> None:
    kinds = [
        kind for kind in vars(transcript).values() if isinstance(kind, type) and issubclass(kind, transcript.TranscriptBlock)
    ]
    shown = {
        transcript.AnswerBlock,
        transcript.ThinkingBlock,
        transcript.ToolBlock,
        transcript.UserMessageBlock,
        transcript.ApprovalBlock,
        transcript.NoticeBlock,
        transcript.RunEndBlock,
    }
    assert set(kinds) - {transcript.TranscriptBlock, transcript.TextStreamBlock} == shown
