"""Blocks as one HTML page that needs nothing else: no script, no picture, no other file. Pure.

Everything is escaped, whoever said it; the page's own policy forbids what a mistake here would let in.
"""

import html
from collections.abc import Iterator

from switchtower.cli import diffs
from switchtower.cli.exporting import about as abouts
from switchtower.cli.exporting import arguments, blocks, fences
from switchtower.cli.exporting.plain import exact, one_line, plain
from switchtower.cli.usage import Usage
from switchtower.protocols.push import extensions

SHORT = 20
"""Lines of output that are shown; more are folded."""

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


def head(session_id: str, about: extensions.SessionInfo | None) -> str:
    title = _text(abouts.title(session_id, about))
    facts = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in abouts.facts(session_id, about))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{facts}\n</dl>\n"
    )


def tail(usage: Usage) -> str:
    spent = f'<article class="how">Usage: {_text(str(usage))}</article>\n' if usage.calls else ""
    return f"{spent}</body>\n</html>\n"


def block(shown: blocks.Block) -> str:
    kind, lines = _shown(shown)
    return f'<article class="{kind}">\n' + "\n".join(lines) + "\n</article>\n"


def _shown(shown: blocks.Block) -> tuple[str, Iterator[str]]:
    """A class of ours, and the lines."""
    match shown:
        case blocks.Said():
            return "said", _said(shown)
        case blocks.Prose():
            return "prose", _prose(shown)
        case blocks.Tool():
            return "tool", _tool(shown)
        case blocks.Asked():
            return "asked", _asked(shown)
        case blocks.Notice():
            return "error" if shown.is_error else "how", _notice(shown)
        case blocks.Ended():
            return "ended", _ended(shown)
        case blocks.Screen():
            return "terminal", iter(("<h2>The terminal's screen</h2>", _pre("\n".join(shown.lines), "screen")))
    raise AssertionError(f"no such block: {type(shown).__name__}")


def _heading(words: str, shown: blocks.Block, how: str = "") -> str:
    told = f' <span class="how">{_text(how)}</span>' if how else ""
    return f"<h2>{_text(words)}{told} <time>{abouts.moment(shown.ts)}</time></h2>"


def _said(shown: blocks.Said) -> Iterator[str]:
    yield _heading("You", shown, shown.how)
    yield from _paragraphs(shown.text)


def _prose(shown: blocks.Prose) -> Iterator[str]:
    if shown.thinking or shown.void:
        summary = "Thinking" if shown.thinking else "Begun, and then begun again"
        yield f"<details><summary>{summary}</summary>"
        yield from _paragraphs(shown.text)
        yield "</details>"
        return
    if not shown.goes_on:
        yield _heading("Assistant", shown)
    yield from _paragraphs(shown.text)


def _tool(shown: blocks.Tool) -> Iterator[str]:
    ended = "no result" if shown.result is None else f"{'failed, ' if shown.is_error else ''}{shown.duration_ms} ms"
    yield _heading(one_line(shown.name) or "A tool", shown, ended)
    yield from _pieces(shown.args)
    if shown.problem:
        yield f'<p class="error">{_text(shown.problem)}</p>'
    yield from _output(shown.output if shown.result is None else shown.result)


def _asked(shown: blocks.Asked) -> Iterator[str]:
    approval = shown.approval
    yield _heading(f"Approval: {one_line(exact(approval.title))}", shown, shown.ending or "not decided yet")
    yield f"<p>{_text(exact(approval.summary))}</p>"
    if approval.details.get("destructive") is True:
        yield '<p class="error">Destructive.</p>'
    yield from _pieces(approval.details)


def _notice(shown: blocks.Notice) -> Iterator[str]:
    yield f"<p>{_text(shown.text)}</p>"
    if shown.detail:
        yield _pre(shown.detail)


def _ended(shown: blocks.Ended) -> Iterator[str]:
    colour = "success" if shown.outcome == "success" else "error"
    usage = f' <span class="how">{_text(shown.usage)}</span>' if shown.usage else ""
    yield f'<p><b class="{colour}">{_text(shown.outcome)}</b>{usage} <time>{abouts.moment(shown.ts)}</time></p>'
    if shown.outcome != "success" and shown.summary.strip():
        yield f"<p>{_text(shown.summary)}</p>"
    for result in shown.results:
        colour, verdict = ("success", "accepted") if result.passed else ("error", f"not accepted, exit code {result.exitCode}")
        yield f'<p class="{colour}">{_text(result.id)}: {verdict}</p>'
        if not result.passed:
            yield from _output(result.output)


def _pieces(values: dict[str, object]) -> Iterator[str]:
    for name, text, kind in arguments.pieces(values):
        if name:
            yield f'<p class="how">{_text(one_line(exact(name)))}:</p>'
        yield _diff(exact(text)) if kind == "diff" else _pre(exact(text))


def _output(text: str) -> Iterator[str]:
    count = len(text.splitlines())
    if not count:
        return
    if count <= SHORT:
        yield _pre(text)
    else:
        yield f"<details><summary>Output, {count} lines</summary>{_pre(text)}</details>"


def _paragraphs(text: str) -> Iterator[str]:
    for part in fences.parts(plain(text)):
        if part.is_code:
            yield _diff(part.text) if part.info == "diff" else _pre(part.text)
        elif said := part.text.strip("\n"):
            yield f"<p>{_text(said)}</p>"


def _pre(text: str, kind: str = "") -> str:
    # The line feed behind the tag is HTML's own, and swallowed by it.
    return f"<pre{f' class={kind}' if kind else ''}>\n{_text(text)}</pre>"


def _diff(text: str) -> str:
    lines = [
        f'<span class="{colour}">{_text(line)}</span>' if colour in ("green", "red", "cyan") else _text(line)
        for line, colour in diffs.lines(plain(text))
    ]
    return "<pre>\n" + "\n".join(lines) + "</pre>"


def _text(text: str) -> str:
    return html.escape(plain(text))
