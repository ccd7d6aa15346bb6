"""Renders blocks as one self-contained HTML page without scripts, images or other files. Pure.

All text is escaped, whatever its source; the page's content security policy blocks what a mistake here would let in.
"""

import html
from collections.abc import Iterator

from switchtower.cli.export import blocks
from switchtower.cli.export import markup as abouts
from switchtower.presentation import approval_text
from switchtower.presentation.safe_text import to_exact_text, to_plain_line, to_plain_text
from switchtower.presentation.session_details import RunUsage
from switchtower.protocols.push import extension_messages

SHORT_OUTPUT_LINES = 20
"""The number of output lines that are shown; longer output is collapsed."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #57606a; --line: #d8dee4; --box: #f6f8fa;
  --green: #1a7f37; --red: #cf222e; --amber: #8a5a00; --cyan: #0a6a80; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9198a1; --line: #30363d;
  --box: #161b22; --green: #4ac26b; --red: #ff7b72; --amber: #e3b341; --cyan: #56c8dc; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; color: var(--soft); font-size: .9rem; }
dd { margin: 0; }
article { border-top: 1px solid var(--line); padding: .8rem 0; }
.said { border-left: 4px solid var(--cyan); padding-left: .8rem; }
.asked { border-left: 4px solid var(--amber); padding-left: .8rem; }
.error { color: var(--red); }
.success { color: var(--green); }
time, .how { color: var(--soft); font-weight: normal; font-size: .85rem; }
p { margin: .4rem 0; white-space: pre-wrap; }
pre { margin: .4rem 0; padding: .6rem .8rem; background: var(--box); border: 1px solid var(--line); border-radius: 6px;
  overflow-x: auto; font: .85rem/1.45 ui-monospace, monospace; white-space: pre; overflow-wrap: normal; }
pre.screen { line-height: 1.2; }
summary { cursor: pointer; color: var(--soft); }
.green { color: var(--green); } .red { color: var(--red); } .cyan { color: var(--cyan); }
@media print { pre { white-space: pre-wrap; } }
"""


def render_head(session_id: str, about: extension_messages.SessionInfo | None) -> str:
    title = _escape_html(abouts.format_title(session_id, about))
    facts = "\n".join(
        f"<dt>{_escape_html(name)}</dt><dd>{_escape_html(value)}</dd>" for name, value in abouts.list_facts(session_id, about)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{facts}\n</dl>\n"
    )


def render_tail(usage: RunUsage) -> str:
    spent = f'<article class="how">Usage: {_escape_html(str(usage))}</article>\n' if usage.calls else ""
    return f"{spent}</body>\n</html>\n"


def render_block(block: blocks.ExportBlock) -> str:
    kind, lines = _render_content(block)
    return f'<article class="{kind}">\n' + "\n".join(lines) + "\n</article>\n"


def _render_content(block: blocks.ExportBlock) -> tuple[str, Iterator[str]]:
    """Returns a CSS class and the lines."""
    match block:
        case blocks.ExportedMessage():
            return "said", _render_user_message(block)
        case blocks.ExportedText():
            return "prose", _render_message(block)
        case blocks.ExportedToolCall():
            return "tool", _render_tool(block)
        case blocks.ExportedApproval():
            return "asked", _render_approval(block)
        case blocks.ExportedNotice():
            return "error" if block.is_error else "how", _render_notice(block)
        case blocks.ExportedRunEnd():
            return "ended", _render_run_end(block)
        case blocks.ExportedScreen():
            return "terminal", iter(("<h2>The terminal's screen</h2>", _render_pre("\n".join(block.lines), "screen")))
    raise AssertionError(f"no such block: {type(block).__name__}")


def _render_heading(words: str, block: blocks.ExportBlock, how: str = "") -> str:
    told = f' <span class="how">{_escape_html(how)}</span>' if how else ""
    return f"<h2>{_escape_html(words)}{told} <time>{abouts.format_moment(block.ts)}</time></h2>"


def _render_user_message(block: blocks.ExportedMessage) -> Iterator[str]:
    yield _render_heading("You", block, block.how)
    yield from _render_paragraphs(block.text)


def _render_message(block: blocks.ExportedText) -> Iterator[str]:
    if block.thinking or block.void:
        summary = "Thinking" if block.thinking else "Begun, and then begun again"
        yield f"<details><summary>{summary}</summary>"
        yield from _render_paragraphs(block.text)
        yield "</details>"
        return
    if not block.goes_on:
        yield _render_heading("Assistant", block)
    yield from _render_paragraphs(block.text)


def _render_tool(block: blocks.ExportedToolCall) -> Iterator[str]:
    ended = "no result" if block.result is None else f"{'failed, ' if block.is_error else ''}{block.duration_ms} ms"
    yield _render_heading(to_plain_line(block.name) or "A tool", block, ended)
    yield from _render_arguments(block.args)
    if block.problem:
        yield f'<p class="error">{_escape_html(block.problem)}</p>'
    yield from _render_output(block.output if block.result is None else block.result)


def _render_approval(block: blocks.ExportedApproval) -> Iterator[str]:
    approval = block.approval
    yield _render_heading(f"Approval: {to_plain_line(to_exact_text(approval.title))}", block, block.ending or "not decided yet")
    yield f"<p>{_escape_html(to_exact_text(approval.summary))}</p>"
    if approval.details.get("destructive") is True:
        yield '<p class="error">Destructive.</p>'
    yield from _render_arguments(approval.details)


def _render_notice(block: blocks.ExportedNotice) -> Iterator[str]:
    yield f"<p>{_escape_html(block.text)}</p>"
    if block.detail:
        yield _render_pre(block.detail)


def _render_run_end(block: blocks.ExportedRunEnd) -> Iterator[str]:
    colour = "success" if block.outcome == "success" else "error"
    usage = f' <span class="how">{_escape_html(block.usage)}</span>' if block.usage else ""
    yield f'<p><b class="{colour}">{_escape_html(block.outcome)}</b>{usage} <time>{abouts.format_moment(block.ts)}</time></p>'
    if block.outcome != "success" and block.summary.strip():
        yield f"<p>{_escape_html(block.summary)}</p>"
    for result in block.results:
        colour, verdict = ("success", "accepted") if result.passed else ("error", f"not accepted, exit code {result.exitCode}")
        yield f'<p class="{colour}">{_escape_html(result.id)}: {verdict}</p>'
        if not result.passed:
            yield from _render_output(result.output)


def _render_arguments(values: dict[str, object]) -> Iterator[str]:
    for name, text, kind in abouts.split_arguments(values):
        if name:
            yield f'<p class="how">{_escape_html(to_plain_line(to_exact_text(name)))}:</p>'
        yield _render_diff(to_exact_text(text)) if kind == "diff" else _render_pre(to_exact_text(text))


def _render_output(text: str) -> Iterator[str]:
    count = len(text.splitlines())
    if not count:
        return
    if count <= SHORT_OUTPUT_LINES:
        yield _render_pre(text)
    else:
        yield f"<details><summary>Output, {count} lines</summary>{_render_pre(text)}</details>"


def _render_paragraphs(text: str) -> Iterator[str]:
    for part in abouts.split_fences(to_plain_text(text)):
        if part.is_code:
            yield _render_diff(part.text) if part.info == "diff" else _render_pre(part.text)
        elif said := part.text.strip("\n"):
            yield f"<p>{_escape_html(said)}</p>"


def _render_pre(text: str, kind: str = "") -> str:
    # HTML ignores the newline directly after the tag.
    return f"<pre{f' class={kind}' if kind else ''}>\n{_escape_html(text)}</pre>"


def _render_diff(text: str) -> str:
    lines = [
        f'<span class="{colour}">{_escape_html(line)}</span>' if colour in ("green", "red", "cyan") else _escape_html(line)
        for line, colour in approval_text.colour_lines(to_plain_text(text))
    ]
    return "<pre>\n" + "\n".join(lines) + "</pre>"


def _escape_html(text: str) -> str:
    return html.escape(to_plain_text(text))
