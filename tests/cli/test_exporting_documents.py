"""Documents: what others said stays in its place, in Markdown as CommonMark reads it and in HTML as a browser does."""

from collections.abc import Callable
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.cli.events import PushEventFactory

from switchtower.cli.export import blocks, html_page, markdown, markup
from switchtower.cli.export.document import LastScreen
from switchtower.presentation.safe_text import to_plain_text
from switchtower.presentation.session_details import RunUsage
from switchtower.protocols.push import extension_messages, messages

TS = 1_800_000_000_000
READER = MarkdownIt("commonmark")

PIECES = [
    "```",
    "````",
    "~~~",
    "`",
    "``",
    ">",
    "-",
    "1.",
    "#",
    "===",
    "---",
    "<b>",
    "</details>",
    "<script>alert(1)</script>",
    "<!--",
    "-->",
    "\\",
    "&lt;",
    "&",
    '"',
    "'",
    "text",
    "[a](b)",
    "|",
    "~~~a`b",
    "<https://x>",
    "<?php",
    "<![CDATA[",
    "</pre>",
]
nasty = st.lists(
    st.sampled_from(
        [*PIECES, "\n", "\n\n", "    ", " ", "\t", "\r", "# ", "> ", "- ", "```diff\n+a", "\x1b[31m", "\u202e", "\x00", "\ud800"]
    )
    | st.text(max_size=5),
    max_size=14,
).map("".join)


def make_info(**changes: Any) -> extension_messages.SessionInfo:
    usage = extension_messages.Usage(0, 0, 0, 0, 0, 0.0, 0)
    told: dict[str, Any] = {
        "sessionId": "sess_1",
        "state": "completed",
        "title": "the failing build",
        "mode": "headless",
        "engine": "agent",
        "provider": "demo",
        "model": None,
        "thinking": None,
        "policy": "ask",
        "rules": [],
        "limits": messages.Limits(),
        "sandbox": "local",
        "rootPath": "/w",
        "branch": "main",
        "worktreeOf": None,
        "activeRunId": None,
        "queue": [],
        "usage": usage,
        "runUsage": None,
        "contextTokens": 0,
        "contextWindow": None,
        "undoable": 0,
        "redoable": 0,
        "version": 1,
        "lastSeq": 9,
        "createdAt": TS,
        "updatedAt": TS + 60_000,
    }
    return extension_messages.SessionInfo(**(told | changes))


def make_approval(title: str = "Run a command", summary: str = "make test", **details: Any) -> messages.ApprovalRequired:
    return messages.ApprovalRequired("appr_1", "exec", title, summary, details, ["approve", "deny"], 1)


def make_every_block(said: str) -> list[blocks.ExportBlock]:
    """Each kind of block, with the same words wherever somebody else's can be."""
    result = messages.CriterionResult(said, False, 1, said)
    return [
        blocks.ExportedMessage(ts=TS, text=said),
        blocks.ExportedText(ts=TS, thinking=False, pieces=[said]),
        blocks.ExportedText(ts=TS, thinking=True, pieces=[said]),
        blocks.ExportedText(ts=TS, thinking=False, pieces=[said], void=True),
        blocks.ExportedToolCall(ts=TS, name=said, args={said: said, "x": [said]}, result=said, problem=said),
        blocks.ExportedToolCall(ts=TS, name=said, args={}, output=said),
        blocks.ExportedApproval(ts=TS, approval=make_approval(said, said, command=said, diff=f"{said}\n{said}"), ending=said),
        blocks.ExportedNotice(ts=TS, text=said, detail=said, is_error=True),
        blocks.ExportedRunEnd(ts=TS, outcome="failed", summary=said, results=[result], usage=said),
        blocks.ExportedScreen(ts=TS, lines=said.split("\n")),
    ]


# Markdown


def parse_outline(text: str) -> list[tuple[str, str]]:
    """Headings of our levels that stand in no list or quotation, and what is HTML, as CommonMark reads the document."""
    tokens = READER.parse(text)
    found = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and not token.level and token.tag in ("h1", "h2", "h3"):
            found.append((token.tag, tokens[at + 1].content))
        elif token.type == "html_block":
            found.append(("html", token.content.strip()))
        for child in token.children or []:
            if child.type == "html_inline" and child.content not in ("<code>", "</code>"):
                found.append(("html", child.content))
    return found


OWN_TAGS = ("<details><summary>Thinking</summary>", "<details><summary>Begun, and then begun again</summary>", "</details>")


@given(nasty)
@example("```\n# You\n")
@example("~~~ a`b\n\n## You\n")
@example("```~~~a`b<b>~~~a`b")
@example("`\n`<script>` `")
@example("- x `a\n- <script> `")
@example("\\`<script>`")
@example("a\r===\r")
@example("<details>\n\n")
@example("<!-- ")
def test_whatever_is_said_the_headings_and_tags_of_a_document_are_ours(said: str) -> None:
    sentinel = blocks.ExportedMessage(ts=TS, text="the end")
    for block in make_every_block(said):
        text = markdown.render_block(block) + markdown.render_block(sentinel)
        own = parse_outline(text)
        assert own[-1] == ("h2", f"You · {markup.format_moment(TS)}"), f"the block has swallowed what came behind it: {text!r}"
        assert sum(tag == "h2" for tag, _ in own) <= 2, text
        assert sum(tag == "h3" for tag, _ in own) <= 1, text
        for tag, content in own:
            assert tag in ("h2", "h3") or content in OWN_TAGS or content.startswith("<details><summary>Output, "), text


@given(nasty)
def test_a_fence_holds_exactly_what_was_put_in(said: str) -> None:
    text = to_plain_text(said)
    tokens = READER.parse(f"{markup.fence_code(text, 'json')}\n\nbehind\n")

    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content.rstrip("\n") == text.rstrip("\n")
    assert tokens[0].info == "json"


@given(nasty)
def test_a_span_is_one_piece_of_code(said: str) -> None:
    span = markup.format_code_span(to_plain_text(said).replace("\ud800", ""))

    tokens = READER.parseInline(span)[0].children or []

    assert [token.type for token in tokens] == (["code_inline"] if span else [])


@given(nasty)
def test_words_of_others_in_a_line_of_ours_mean_nothing(said: str) -> None:
    tokens = READER.parse(f"Usage: {markdown.escape_inline(said)}\n")

    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    kinds = {token.type for token in tokens[1].children or []}
    assert kinds <= {"text", "text_special"}


def test_what_the_model_says_stays_markdown() -> None:
    said = "# Plan\n\n- a `List<int>` and `x`\n- *b*\n\n```python\nif a < b: print('<b>')\n```\nTitle\n---\n\n---\n1 < 2"

    assert markdown.render_prose(said) == (
        "#### Plan\n\n- a <code>List&lt;int&gt;</code> and `x`\n- *b*\n\n"
        "```python\nif a < b: print('<b>')\n```\nTitle\n\\---\n\n---\n1 < 2"
    )


def test_a_call_shows_its_arguments_its_output_and_how_it_ended() -> None:
    args = {"path": "a.py", "content": "one\n```\ntwo\n", "count": 2}
    shown = markdown.render_block(
        blocks.ExportedToolCall(ts=TS, name="write_file", args=args, result="", duration_ms=12, is_error=True, problem="No")
    )

    assert shown == (
        "\n### `write_file` · failed, 12 ms\n\n"
        '```json\n{\n  "path": "a.py",\n  "count": 2\n}\n```\n\n'
        "`content`:\n\n````\none\n```\ntwo\n````\n\n"
        "*No*\n"
    )


def test_an_approval_shows_the_diff_and_who_decided() -> None:
    asked = make_approval("Write a file", "a.py (2 bytes)", path="a.py", diff="--- a\n+++ b\n", destructive=True, always="rule")

    shown = markdown.render_block(blocks.ExportedApproval(ts=TS, approval=asked, ending="approved by web"))

    assert "### Approval: Write a file · approved by web" in shown
    assert "a.py (2 bytes) · asked 2027-01-15 08:00:00 UTC" in shown
    assert "**Destructive.**" in shown
    assert "```diff\n--- a\n+++ b\n```" in shown
    assert "rule" not in shown


def test_long_output_is_folded_and_short_output_is_not() -> None:
    def shown(lines: int) -> str:
        return markdown.render_block(blocks.ExportedToolCall(ts=TS, name="a", args={}, result="x\n" * lines))

    assert "<details><summary>Output, 21 lines</summary>" in shown(21)
    assert "<details>" not in shown(20)


def test_the_head_says_what_session_it_is_and_the_tail_what_it_took() -> None:
    usage = RunUsage()
    usage.add_report("100 tokens in, 10 out (demo demo)")

    head = markdown.render_head("sess_1", make_info(title="a *bold* <b>title\nin two lines"))

    assert head.startswith("# a \\*bold\\* \\<b\\>title in two lines\n")
    assert "- Started: 2027-01-15 08:00:00 UTC\n- Last event: 2027-01-15 08:01:00 UTC\n- Model: demo\n- Policy: ask\n" in head
    assert "- Folder: /w (branch main)\n" in head
    assert markdown.render_tail(usage) == "\n---\n\nUsage: 100 tokens in, 10 out (demo demo)\n"
    assert markdown.render_tail(RunUsage()) == ""
    assert markdown.render_head("sess_1", None) == "# Session sess\\_1\n\n- Session: sess\\_1\n\n---\n"


# HTML


class DocumentReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("an instruction")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")


def read(text: str) -> DocumentReader:
    reader = DocumentReader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


ALLOWED = {"article", "h2", "p", "pre", "details", "summary", "span", "time", "b"}


@given(nasty)
@example("</pre></article><script>alert(1)</script>")
@example('" onmouseover="x')
def test_whatever_is_said_a_page_has_only_our_tags_and_attributes(said: str) -> None:
    for block in make_every_block(said):
        reader = read(html_page.render_block(block))
        assert set(reader.tags) <= ALLOWED
        assert reader.attributes <= {"class"}
        assert reader.tags.count("article") == 1


@given(nasty)
def test_a_page_shows_all_of_what_was_said(said: str) -> None:
    reader = read(html_page.render_block(blocks.ExportedToolCall(ts=TS, name="a", args={}, result=said)))

    assert to_plain_text(said).strip() in reader.text or not to_plain_text(said).splitlines()


def test_a_page_needs_nothing_else_and_runs_nothing() -> None:
    usage = RunUsage()
    usage.add_report("100 tokens in, 10 out (demo demo)")

    whole = (
        html_page.render_head("sess_1", make_info(title="<b> & co"))
        + html_page.render_block(blocks.ExportedMessage(ts=TS, text="hi"))
        + html_page.render_tail(usage)
    )

    reader = read(whole)
    assert {"script", "link", "img", "iframe", "a"}.isdisjoint(reader.tags)
    assert "src" not in reader.attributes
    assert "href" not in reader.attributes
    assert "url(" not in whole
    assert "@import" not in whole
    assert "default-src 'none'" in whole
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in whole
    assert "prefers-color-scheme: dark" in whole
    assert "<title>&lt;b&gt; &amp; co</title>" in whole
    assert whole.startswith("<!doctype html>\n")
    assert whole.endswith("</body>\n</html>\n")
    assert "100 tokens in" in reader.text


def test_code_and_diffs_in_a_page_stand_out() -> None:
    said = "Look:\n```diff\n@@ -1 +1 @@\n-a\n+b\n```\nand\n```\n<b>\n```\n"

    shown = html_page.render_block(blocks.ExportedText(ts=TS, thinking=False, pieces=[said]))

    assert "<p>Look:</p>" in shown
    assert '<span class="red">-a</span>\n<span class="green">+b</span></pre>' in shown
    assert "<pre>\n&lt;b&gt;</pre>" in shown


# Both


@pytest.mark.parametrize("writer", [markdown, html_page])
def test_no_document_holds_what_steers_a_terminal_or_turns_the_writing(writer: ModuleType) -> None:
    block: Callable[[blocks.ExportBlock], str] = writer.render_block
    for shown in make_every_block("a\x1b]0;title\x07\x1b[31mred\x1b[0m\u202eright\x9b1m\x00\ud800"):
        text = block(shown)
        assert not set(text) & set("\x1b\x07\x9b\x00\u202e\ud800"), repr(text)
        text.encode()


@pytest.mark.parametrize("writer", [markdown, html_page])
def test_values_of_any_type_and_depth_can_be_shown(writer: ModuleType) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    args = {"deep": deep, "none": None, "number": 1e400, "text": "ü", "": ""}

    assert "ü" in writer.render_block(blocks.ExportedToolCall(ts=TS, name="a", args=args, result="ok"))


@pytest.mark.parametrize("ts", [-(10**18), 10**18, 2**63])
def test_a_time_that_no_clock_shows_is_a_number(ts: int) -> None:
    assert markup.format_moment(ts) == str(ts)


def test_a_program_s_head_has_its_command_and_exit_code() -> None:
    terminal = extension_messages.Terminal("bash", "bash -c 'x'", 80, 24, 0, None, 3, None)

    facts = dict(markup.list_facts("sess_1", make_info(terminal=terminal)))

    assert (facts["Program"], facts["Exit code"]) == ("bash -c 'x'", "3")
    assert "Model" not in facts


def test_the_last_screen_is_what_painted_it_whole_and_all_since() -> None:
    told, screen = PushEventFactory(), LastScreen(extension_messages.Terminal("sh", "sh", 20, 5, 0, None, None, None))
    for event in (
        told.make_status("Tool output", "old\r\nold\r\nold"),
        told.make_status("Screen", "\x1b[1;1Hnew"),
        told.make_status("Terminal resized", "10x3"),
        told.make_status("Terminal resized", "nonsense"),
        told.make_status("Tool output", " words\r\n\r\n"),
        told.complete("failed", "gone"),
    ):
        screen.add_event(event)

    shown, ended = screen.finish()

    assert isinstance(shown, blocks.ExportedScreen)
    assert shown.lines == ["new words"]
    assert isinstance(ended, blocks.ExportedRunEnd)
    assert (ended.outcome, ended.summary) == ("failed", "gone")


def test_arguments_of_several_lines_are_texts_of_their_own() -> None:
    pieces = list(markup.split_arguments({"a": 1, "diff": "-x\n+y", "text": "one\ntwo", "always": "rule"}))

    assert pieces == [("", '{\n  "a": 1\n}', "json"), ("diff", "-x\n+y", "diff"), ("text", "one\ntwo", "")]


def test_events_as_they_come_are_told_without_a_loss() -> None:
    """The double's own events are what the client makes of lines."""
    event = PushEventFactory().make_token("hi")

    assert isinstance(event.payload, messages.Token)
    assert event.line.startswith(b'{"v":"push.runtime.v1"')
