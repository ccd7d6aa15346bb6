"""Exports a session as a page: its statistics, then its conversation. One file, no scripts, nothing loaded. Pure: from messages
to HTML.

Each result is shown with the call that it answers. The page is light or dark like the reader's system, has one column, and suits
a phone and paper. All text of a model, a tool or a user is escaped by `escape_text`, and nothing else writes text.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.sessions import info

CSS = """
:root { color-scheme: light dark; --ink: #1d2328; --soft: #5b6670; --paper: #fbfbf9; --card: #ffffff; --line: #dfe3e6;
  --user: #eef4fb; --code: #f2f3f1; --accent: #1f5fa8; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #9aa5af; --paper: #14171a; --card: #1b1f23; --line: #2f363c;
    --user: #1b2a3a; --code: #22272c; --accent: #7db4f0; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
header, main, footer { max-width: 52rem; margin: 0 auto; padding: 1rem; }
header { padding-top: 2rem; }
h1 { margin: 0 0 .75rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .5rem 1.25rem; margin: 0;
  padding: .9rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
dt { color: var(--soft); font-size: .78rem; }
dd { margin: 0; overflow-wrap: anywhere; }
article { margin: 1rem 0; padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
article.user { background: var(--user); }
article > h2 { display: flex; justify-content: space-between; gap: 1rem; margin: 0 0 .4rem;
  font-size: .82rem; color: var(--soft); }
article > h2 time { font-weight: normal; white-space: nowrap; }
p { margin: .5rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .7rem .8rem; overflow: auto; max-height: 32rem; background: var(--code); border-radius: .4rem;
  font: .86rem/1.45 ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .5rem 0; border: 1px solid var(--line); border-radius: .4rem; padding: .35rem .7rem; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; overflow-wrap: anywhere; }
summary code { font-size: .86rem; }
.failed > summary, .error { color: var(--bad); }
.note { color: var(--soft); font-size: .85rem; }
img { max-width: 100%; height: auto; border-radius: .4rem; }
footer { color: var(--soft); font-size: .8rem; padding-bottom: 2rem; }
@media print { article, dl { break-inside: avoid; } pre { max-height: none; } }
"""


_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_base64 = re.compile(r"[A-Za-z0-9+/]+={0,2}").fullmatch

# A page may not contain these characters, and a reader should see that the text had them.
_SHOWN = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_SHOWN |= {0x7F: "␡", 0x0D: ""}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
# These change the direction of the text after them, so that it reads as something else.
_SHOWN |= {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def escape_text(raw: str) -> str:
    """Makes text safe between tags and in quoted attributes."""
    return html.escape(raw.translate(_SHOWN), quote=True)


def escape_json(value: object) -> str:
    try:
        encoded = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        encoded = repr(type(value))
    return escape_text(encoded)


def make_image_url(data: str, media_type: str) -> str | None:
    """Returns a data URL with the image itself, or None when the data is not an image."""
    if media_type not in _IMAGE_TYPES or not _base64(data):
        return None
    return f"data:{media_type};base64,{data}"


_MAX_HINT_LENGTH = 100

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_page(
    info: event_messages.SessionInfo, figures: event_messages.SessionStats, messages: Sequence[event_messages.Message]
) -> str:
    title = escape_text(info.sessionName or f"Session {info.sessionId}")
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
        f"<footer>Session {escape_text(info.sessionId)}, exported by Switchtower</footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(parts)


def _render_figures(info: event_messages.SessionInfo, figures: event_messages.SessionStats) -> str:
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
    told = [f"<div><dt>{name}</dt><dd>{escape_text(value)}</dd></div>" for name, value in rows.items() if value]
    return f"<dl>{''.join(told)}</dl>"


def _render_conversation(messages: Sequence[event_messages.Message]) -> Iterator[str]:
    if not messages:
        yield '<p class="note">Nothing has been said yet.</p>'
    called = {call.id for message in messages if isinstance(message, event_messages.Assistant) for call in _list_calls(message)}
    results = {result.toolCallId: result for result in messages if isinstance(result, event_messages.ToolResult)}
    for message in messages:
        match message:
            case event_messages.User():
                yield _render_article("user", "User", message.timestamp, _render_blocks(message.content))
            case event_messages.Assistant():
                yield _render_article("assistant", _name_speaker(message), message.timestamp, _render_assistant(message, results))
            case event_messages.ToolResult() if message.toolCallId not in called:
                yield _render_article(
                    "tool", f"Result of {message.toolName}", message.timestamp, _render_blocks(message.content, verbatim=True)
                )
            case event_messages.ToolResult():
                pass  # it is shown with its call


def _render_article(kind: str, who: str, at_ms: int, inside: Iterator[str]) -> str:
    moment = info.format_iso_time(at_ms)
    when = f'<time datetime="{moment}">{_format_time(moment)}</time>'
    return f'<article class="{kind}"><h2><span>{escape_text(who)}</span>{when}</h2>\n' + "\n".join(inside) + "\n</article>"


def _render_assistant(message: event_messages.Assistant, results: Mapping[str, event_messages.ToolResult]) -> Iterator[str]:
    for block in message.content:
        match block:
            case event_messages.Thinking():
                yield f"<details><summary>Thinking</summary>{_render_prose(block.thinking)}</details>"
            case event_messages.Text():
                yield _render_prose(block.text)
            case event_messages.ToolCall():
                yield _render_call(block, results.get(block.id))
    if message.errorMessage:
        yield f'<p class="error">{escape_text(message.errorMessage)}</p>'


def _render_call(call: event_messages.ToolCall, result: event_messages.ToolResult | None) -> str:
    told = '<p class="note">No result.</p>' if result is None else "\n".join(_render_blocks(result.content, verbatim=True))
    opened, failed = ('<details class="failed">', "Failed: ") if result is not None and result.isError else ("<details>", "")
    summary = f"<summary>{failed}<code>{escape_text(call.name)}</code> {escape_text(_summarize_call(call))}</summary>"
    return f"{opened}{summary}\n<pre>{escape_json(call.arguments)}</pre>\n{told}\n</details>"


def _summarize_call(call: event_messages.ToolCall) -> str:
    """Summarizes a call in a line: its first argument that is text."""
    first = next((value for value in call.arguments.values() if isinstance(value, str) and value.strip()), "")
    line = " ".join(first[: 4 * _MAX_HINT_LENGTH].split())
    return line if len(line) <= _MAX_HINT_LENGTH else f"{line[:_MAX_HINT_LENGTH]}…"


def _render_blocks(content: Sequence[event_messages.Text | event_messages.Image], *, verbatim: bool = False) -> Iterator[str]:
    for block in content:
        match block:
            case event_messages.Text():
                yield f"<pre>{escape_text(block.text)}</pre>" if verbatim else _render_prose(block.text)
            case event_messages.Image():
                address = make_image_url(block.data, block.mimeType)
                yield (
                    '<p class="note">A picture that cannot be shown.</p>'
                    if address is None
                    else f'<img alt="A picture" src="{address}">'
                )


def _render_prose(text: str) -> str:
    """Renders text as paragraphs, and the parts between fences as code."""
    parts: list[str] = []
    for index, part in enumerate(_split_fences(text)):
        if index % 2:
            parts.append(f"<pre><code>{escape_text(part)}</code></pre>")
        elif part.strip():
            parts.append(f'<p dir="auto">{escape_text(part.strip(chr(10)))}</p>')
    return "\n".join(parts)


def _split_fences(text: str) -> Iterator[str]:
    """Yields the parts outside and inside of fences by turns."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _list_calls(message: event_messages.Assistant) -> list[event_messages.ToolCall]:
    return [block for block in message.content if isinstance(block, event_messages.ToolCall)]


def _name_speaker(message: event_messages.Assistant) -> str:
    return f"Assistant ({message.model})" if message.model else "Assistant"


def _format_time(moment: str) -> str:
    return f"{moment[:10]} {moment[11:19]} UTC"
