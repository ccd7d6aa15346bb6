"""Renders blocks as Markdown. Pure.

A model's text is Markdown too and stays so within its block: its fences are closed, its tags are escaped, and its headings are
below ours. All other external text is between fences that it cannot close.
"""

import html
import re
from collections.abc import Iterator

from switchtower.cli.export import blocks, markup
from switchtower.presentation.safe_text import to_exact_text, to_plain_line, to_plain_text
from switchtower.presentation.session_details import RunUsage
from switchtower.protocols.push import extension_messages

SHORT_OUTPUT_LINES = 20
"""The number of output lines that are shown; longer output is collapsed."""

_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=[ \t]|$)", re.MULTILINE)
_UNDERLINE = re.compile(r"(?<=[^\n])\n( {0,3})(=+|-+)[ \t]*(?=\n|$)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CODE_OR_ESCAPE = re.compile(r"\\.|(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&!])")


def render_head(session_id: str, about: extension_messages.SessionInfo | None) -> str:
    facts = "\n".join(f"- {name}: {escape_inline(value)}" for name, value in markup.list_facts(session_id, about))
    return f"# {escape_inline(markup.format_title(session_id, about))}\n\n{facts}\n\n---\n"


def render_tail(usage: RunUsage) -> str:
    return f"\n---\n\nUsage: {escape_inline(str(usage))}\n" if usage.calls else ""


def render_block(block: blocks.ExportBlock) -> str:
    return "\n" + "\n\n".join(_render_paragraphs(block)) + "\n"


def _render_paragraphs(block: blocks.ExportBlock) -> Iterator[str]:
    match block:
        case blocks.ExportedMessage():
            yield f"## You{f' ({block.how})' if block.how else ''} · {markup.format_moment(block.ts)}"
            yield "\n".join(f"> {line}".rstrip() for line in render_prose(block.text).split("\n"))
        case blocks.ExportedText():
            yield from _render_message(block)
        case blocks.ExportedToolCall():
            yield from _render_tool(block)
        case blocks.ExportedApproval():
            yield from _render_approval(block)
        case blocks.ExportedNotice():
            yield f"*{'Error' if block.is_error else 'Note'}: {escape_inline(block.text)}*"
            if block.detail:
                yield markup.fence_code(to_plain_text(block.detail))
        case blocks.ExportedRunEnd():
            yield from _render_run_end(block)
        case blocks.ExportedScreen():
            yield "## The terminal's screen"
            yield markup.fence_code(to_plain_text("\n".join(block.lines)))
        case _:
            raise AssertionError(f"no such block: {type(block).__name__}")


def _render_message(block: blocks.ExportedText) -> Iterator[str]:
    if block.thinking or block.void:
        summary = "Thinking" if block.thinking else "Begun, and then begun again"
        yield f"<details><summary>{summary}</summary>"
        yield markup.fence_code(to_plain_text(block.text))
        yield "</details>"
        return
    if not block.goes_on:
        yield f"## Assistant · {markup.format_moment(block.ts)}"
    yield render_prose(block.text)


def _render_tool(block: blocks.ExportedToolCall) -> Iterator[str]:
    how = "failed, " if block.is_error else ""
    ended = f" · {how}{block.duration_ms} ms" if block.result is not None else " · no result"
    yield f"### {markup.format_code_span(to_plain_line(block.name)) or 'A tool'}{ended}"
    yield from _render_arguments(block.args)
    if block.problem:
        yield f"*{escape_inline(block.problem)}*"
    yield from _render_output(to_plain_text(block.output if block.result is None else block.result))


def _render_output(text: str) -> Iterator[str]:
    count = len(text.splitlines())
    if not count:
        return
    if count <= SHORT_OUTPUT_LINES:
        yield markup.fence_code(text)
        return
    yield f"<details><summary>Output, {count} lines</summary>"
    yield markup.fence_code(text)
    yield "</details>"


def _render_approval(block: blocks.ExportedApproval) -> Iterator[str]:
    approval = block.approval
    yield f"### Approval: {escape_inline(to_exact_text(approval.title))} · {escape_inline(block.ending) or 'not decided yet'}"
    yield f"{escape_inline(to_exact_text(approval.summary))} · asked {markup.format_moment(block.ts)}"
    if approval.details.get("destructive") is True:
        yield "**Destructive.**"
    yield from _render_arguments(approval.details)


def _render_arguments(values: dict[str, object]) -> Iterator[str]:
    for name, text, kind in markup.split_arguments(values):
        if name:
            yield f"{markup.format_code_span(to_plain_line(to_exact_text(name)))}:"
        yield markup.fence_code(to_exact_text(text), kind)


def _render_run_end(block: blocks.ExportedRunEnd) -> Iterator[str]:
    yield f"**{escape_inline(block.outcome)}** · {markup.format_moment(block.ts)}" + (
        f" · {escape_inline(block.usage)}" if block.usage else ""
    )
    if block.outcome != "success" and block.summary.strip():
        yield markup.fence_code(to_plain_text(block.summary))
    for result in block.results:
        verdict = "accepted" if result.passed else f"not accepted, exit code {result.exitCode}"
        yield f"- {markup.format_code_span(to_plain_line(result.id))}: {verdict}"
        if result.output.strip() and not result.passed:
            yield from _render_output(to_plain_text(result.output))


def render_prose(text: str) -> str:
    """Renders a model's Markdown with closed fences, escaped tags, and headings below ours."""
    return "\n".join(
        markup.fence_code(part.text, part.info) if part.is_code else _escape_structure(part.text)
        for part in markup.split_fences(to_plain_text(text))
    )


def _escape_structure(text: str) -> str:
    # A line that was no fence can become one when a code span with a backtick in its info string turns into an element.
    lines = (_escape_tags(line) for line in text.split("\n"))
    without_tags = "\n".join(re.sub(r"^( *)", r"\1\\", line, count=1) if markup.is_fence(line) else line for line in lines)
    lowered = _HEADING.sub(lambda found: f"{found[1]}{'#' * min(6, len(found[2]) + 3)}", without_tags)
    return _UNDERLINE.sub(r"\n\1\\\2", lowered)


def _escape_tags(line: str) -> str:
    """Escapes tags. A code span with a tag becomes an HTML code element, which shows the tag verbatim whatever the backticks of
    other lines do."""
    if not _TAG.search(line):
        return line
    told, at = [], 0
    for found in _CODE_OR_ESCAPE.finditer(line):
        told.append(_TAG.sub("&lt;", line[at : found.start()]))
        code = found[2]
        if code is None:
            told.append(found[0].replace("<", "&lt;"))
        else:
            told.append(f"<code>{html.escape(code)}</code>" if _TAG.search(code) else found[0])
        at = found.end()
    told.append(_TAG.sub("&lt;", line[at:]))
    return "".join(told)


def escape_inline(text: str) -> str:
    """Escapes external text for use within a line, so that none of it is interpreted as Markdown."""
    return _SPECIAL.sub(r"\\\1", to_plain_line(text))
