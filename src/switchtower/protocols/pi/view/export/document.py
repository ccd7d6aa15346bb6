"""The exported page: the session's figures, then its conversation. Pure: from messages to HTML.

Each result stands with the call it answers. It can be read without scripts, and its policy lets it load nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from switchtower.protocols.pi.view import shapes, stats
from switchtower.protocols.pi.view.export import escaping
from switchtower.protocols.pi.view.export.style import CSS

_LONGEST_HINT = 100

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(info: shapes.SessionInfo, figures: shapes.SessionStats, messages: Sequence[shapes.Message]) -> str:
    title = escaping.text(info.sessionName or f"Session {info.sessionId}")
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
        f"<header><h1>{title}</h1>{_figures(info, figures)}</header>",
        "<main>",
        *_conversation(messages),
        "</main>",
        f"<footer>Session {escaping.text(info.sessionId)}, exported by Switchtower</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def _figures(info: shapes.SessionInfo, figures: shapes.SessionStats) -> str:
    model = info.model
    tokens = figures.tokens
    rows = {
        "Model": f"{model.provider}/{model.id}" if model else "",
        "Thinking": info.thinkingLevel,
        "Started": _readable(info.createdAt),
        "Messages": f"{figures.userMessages} from the user, {figures.assistantMessages} from the assistant",
        "Tool calls": f"{figures.toolCalls:,}",
        "Tokens": f"{tokens.input + tokens.cacheRead + tokens.cacheWrite:,} in, {tokens.output:,} out",
        "Cost": f"${figures.cost:,.4f}",
    }
    told = [f"<div><dt>{name}</dt><dd>{escaping.text(value)}</dd></div>" for name, value in rows.items() if value]
    return f"<dl>{''.join(told)}</dl>"


def _conversation(messages: Sequence[shapes.Message]) -> Iterator[str]:
    if not messages:
        yield '<p class="note">Nothing has been said yet.</p>'
    called = {call.id for message in messages if isinstance(message, shapes.Assistant) for call in _calls(message)}
    results = {result.toolCallId: result for result in messages if isinstance(result, shapes.ToolResult)}
    for message in messages:
        match message:
            case shapes.User():
                yield _article("user", "User", message.timestamp, _blocks(message.content))
            case shapes.Assistant():
                yield _article("assistant", _speaker(message), message.timestamp, _assistant(message, results))
            case shapes.ToolResult() if message.toolCallId not in called:
                yield _article(
                    "tool", f"Result of {message.toolName}", message.timestamp, _blocks(message.content, verbatim=True)
                )
            case shapes.ToolResult():
                pass  # stands with its call


def _article(kind: str, who: str, at_ms: int, inside: Iterator[str]) -> str:
    moment = stats.iso(at_ms)
    when = f'<time datetime="{moment}">{_readable(moment)}</time>'
    return f'<article class="{kind}"><h2><span>{escaping.text(who)}</span>{when}</h2>\n' + "\n".join(inside) + "\n</article>"


def _assistant(message: shapes.Assistant, results: Mapping[str, shapes.ToolResult]) -> Iterator[str]:
    for block in message.content:
        match block:
            case shapes.Thinking():
                yield f"<details><summary>Thinking</summary>{_prose(block.thinking)}</details>"
            case shapes.Text():
                yield _prose(block.text)
            case shapes.ToolCall():
                yield _call(block, results.get(block.id))
    if message.errorMessage:
        yield f'<p class="error">{escaping.text(message.errorMessage)}</p>'


def _call(call: shapes.ToolCall, result: shapes.ToolResult | None) -> str:
    told = '<p class="note">No result.</p>' if result is None else "\n".join(_blocks(result.content, verbatim=True))
    opened, failed = ('<details class="failed">', "Failed: ") if result is not None and result.isError else ("<details>", "")
    summary = f"<summary>{failed}<code>{escaping.text(call.name)}</code> {escaping.text(_hint(call))}</summary>"
    return f"{opened}{summary}\n<pre>{escaping.json(call.arguments)}</pre>\n{told}\n</details>"


def _hint(call: shapes.ToolCall) -> str:
    """What a call is about, in a line: its first argument that is text."""
    first = next((value for value in call.arguments.values() if isinstance(value, str) and value.strip()), "")
    line = " ".join(first[: 4 * _LONGEST_HINT].split())
    return line if len(line) <= _LONGEST_HINT else f"{line[:_LONGEST_HINT]}…"


def _blocks(content: Sequence[shapes.Text | shapes.Image], *, verbatim: bool = False) -> Iterator[str]:
    for block in content:
        match block:
            case shapes.Text():
                yield f"<pre>{escaping.text(block.text)}</pre>" if verbatim else _prose(block.text)
            case shapes.Image():
                address = escaping.image(block.data, block.mimeType)
                yield (
                    '<p class="note">A picture that cannot be shown.</p>'
                    if address is None
                    else f'<img alt="A picture" src="{address}">'
                )


def _prose(text: str) -> str:
    """Words as paragraphs, and what stands between fences as code."""
    parts: list[str] = []
    for index, part in enumerate(_fenced(text)):
        if index % 2:
            parts.append(f"<pre><code>{escaping.text(part)}</code></pre>")
        elif part.strip():
            parts.append(f'<p dir="auto">{escaping.text(part.strip(chr(10)))}</p>')
    return "\n".join(parts)


def _fenced(text: str) -> Iterator[str]:
    """By turns what is outside of fences and what is inside."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _calls(message: shapes.Assistant) -> list[shapes.ToolCall]:
    return [block for block in message.content if isinstance(block, shapes.ToolCall)]


def _speaker(message: shapes.Assistant) -> str:
    return f"Assistant ({message.model})" if message.model else "Assistant"


def _readable(moment: str) -> str:
    return f"{moment[:10]} {moment[11:19]} UTC"
