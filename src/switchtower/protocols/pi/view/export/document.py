"""The exported page: the session's figures, then its conversation. Pure: from messages to HTML.

Each result stands with the call it answers. It can be read without scripts, and its policy lets it load nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from switchtower.protocols.pi.view import shapes, stats
from switchtower.protocols.pi.view.export import escaping
from switchtower.protocols.pi.view.export.style import CSS

_MAX_HINT_LENGTH = 100

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_page(info: shapes.SessionInfo, figures: shapes.SessionStats, messages: Sequence[shapes.Message]) -> str:
    title = escaping.escape_text(info.sessionName or f"Session {info.sessionId}")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>",
        f"<style>{CSS}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{title}</h1>{_render_figures(info, figures)}</header>",
        "<main>",
        *_render_conversation(messages),
        "</main>",
        f"<footer>Session {escaping.escape_text(info.sessionId)}, exported by Switchtower</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def _render_figures(info: shapes.SessionInfo, figures: shapes.SessionStats) -> str:
    model = info.model
    tokens = figures.tokens
    rows = {
        "Model": f"{model.provider}/{model.id}" if model else "",
        "Thinking": info.thinkingLevel,
        "Started": _format_time(info.createdAt),
        "Messages": f"{figures.userMessages} from the user, {figures.assistantMessages} from the assistant",
        "Tool calls": f"{figures.toolCalls:,}",
        "Tokens": f"{tokens.input + tokens.cacheRead + tokens.cacheWrite:,} in, {tokens.output:,} out",
        "Cost": f"${figures.cost:,.4f}",
    }
    told = [f"<div><dt>{name}</dt><dd>{escaping.escape_text(value)}</dd></div>" for name, value in rows.items() if value]
    return f"<dl>{''.join(told)}</dl>"


def _render_conversation(messages: Sequence[shapes.Message]) -> Iterator[str]:
    if not messages:
        yield '<p class="note">Nothing has been said yet.</p>'
    called = {call.id for message in messages if isinstance(message, shapes.Assistant) for call in _list_calls(message)}
    results = {result.toolCallId: result for result in messages if isinstance(result, shapes.ToolResult)}
    for message in messages:
        match message:
            case shapes.User():
                yield _render_article("user", "User", message.timestamp, _render_blocks(message.content))
            case shapes.Assistant():
                yield _render_article("assistant", _name_speaker(message), message.timestamp, _render_assistant(message, results))
            case shapes.ToolResult() if message.toolCallId not in called:
                yield _render_article(
                    "tool", f"Result of {message.toolName}", message.timestamp, _render_blocks(message.content, verbatim=True)
                )
            case shapes.ToolResult():
                pass  # stands with its call


def _render_article(kind: str, who: str, at_ms: int, inside: Iterator[str]) -> str:
    moment = stats.format_iso_time(at_ms)
    when = f'<time datetime="{moment}">{_format_time(moment)}</time>'
    return (
        f'<article class="{kind}"><h2><span>{escaping.escape_text(who)}</span>{when}</h2>\n' + "\n".join(inside) + "\n</article>"
    )


def _render_assistant(message: shapes.Assistant, results: Mapping[str, shapes.ToolResult]) -> Iterator[str]:
    for block in message.content:
        match block:
            case shapes.Thinking():
                yield f"<details><summary>Thinking</summary>{_render_prose(block.thinking)}</details>"
            case shapes.Text():
                yield _render_prose(block.text)
            case shapes.ToolCall():
                yield _render_call(block, results.get(block.id))
    if message.errorMessage:
        yield f'<p class="error">{escaping.escape_text(message.errorMessage)}</p>'


def _render_call(call: shapes.ToolCall, result: shapes.ToolResult | None) -> str:
    told = '<p class="note">No result.</p>' if result is None else "\n".join(_render_blocks(result.content, verbatim=True))
    opened, failed = ('<details class="failed">', "Failed: ") if result is not None and result.isError else ("<details>", "")
    summary = (
        f"<summary>{failed}<code>{escaping.escape_text(call.name)}</code> {escaping.escape_text(_summarize_call(call))}</summary>"
    )
    return f"{opened}{summary}\n<pre>{escaping.escape_json(call.arguments)}</pre>\n{told}\n</details>"


def _summarize_call(call: shapes.ToolCall) -> str:
    """What a call is about, in a line: its first argument that is text."""
    first = next((value for value in call.arguments.values() if isinstance(value, str) and value.strip()), "")
    line = " ".join(first[: 4 * _MAX_HINT_LENGTH].split())
    return line if len(line) <= _MAX_HINT_LENGTH else f"{line[:_MAX_HINT_LENGTH]}…"


def _render_blocks(content: Sequence[shapes.Text | shapes.Image], *, verbatim: bool = False) -> Iterator[str]:
    for block in content:
        match block:
            case shapes.Text():
                yield f"<pre>{escaping.escape_text(block.text)}</pre>" if verbatim else _render_prose(block.text)
            case shapes.Image():
                address = escaping.make_image_url(block.data, block.mimeType)
                yield (
                    '<p class="note">A picture that cannot be shown.</p>'
                    if address is None
                    else f'<img alt="A picture" src="{address}">'
                )


def _render_prose(text: str) -> str:
    """Words as paragraphs, and what stands between fences as code."""
    parts: list[str] = []
    for index, part in enumerate(_split_fences(text)):
        if index % 2:
            parts.append(f"<pre><code>{escaping.escape_text(part)}</code></pre>")
        elif part.strip():
            parts.append(f'<p dir="auto">{escaping.escape_text(part.strip(chr(10)))}</p>')
    return "\n".join(parts)


def _split_fences(text: str) -> Iterator[str]:
    """By turns what is outside of fences and what is inside."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _list_calls(message: shapes.Assistant) -> list[shapes.ToolCall]:
    return [block for block in message.content if isinstance(block, shapes.ToolCall)]


def _name_speaker(message: shapes.Assistant) -> str:
    return f"Assistant ({message.model})" if message.model else "Assistant"


def _format_time(moment: str) -> str:
    return f"{moment[:10]} {moment[11:19]} UTC"
