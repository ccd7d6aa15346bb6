"""Blocks as Markdown. Pure.

What a model says is Markdown too and stays so, but not beyond its own block: its fences are closed, its tags are text, and its
headings are below ours. All else that came from outside stands between fences that it cannot end.
"""

import html
import re
from collections.abc import Iterator

from switchtower.cli.exporting import about as abouts
from switchtower.cli.exporting import arguments, blocks, fences
from switchtower.cli.exporting.plain import exact, one_line, plain
from switchtower.cli.usage import Usage
from switchtower.protocols.push import extensions

SHORT = 20
"""Lines of output that are shown; more are folded."""

_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=[ \t]|$)", re.MULTILINE)
_UNDERLINE = re.compile(r"(?<=[^\n])\n( {0,3})(=+|-+)[ \t]*(?=\n|$)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CODE_OR_ESCAPE = re.compile(r"\\.|(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&!])")


def head(session_id: str, about: extensions.SessionInfo | None) -> str:
    facts = "\n".join(f"- {name}: {inline(value)}" for name, value in abouts.facts(session_id, about))
    return f"# {inline(abouts.title(session_id, about))}\n\n{facts}\n\n---\n"


def tail(usage: Usage) -> str:
    return f"\n---\n\nUsage: {inline(str(usage))}\n" if usage.calls else ""


def block(shown: blocks.Block) -> str:
    return "\n" + "\n\n".join(_paragraphs(shown)) + "\n"


def _paragraphs(shown: blocks.Block) -> Iterator[str]:
    match shown:
        case blocks.Said():
            yield f"## You{f' ({shown.how})' if shown.how else ''} · {abouts.moment(shown.ts)}"
            yield "\n".join(f"> {line}".rstrip() for line in prose(shown.text).split("\n"))
        case blocks.Prose():
            yield from _prose(shown)
        case blocks.Tool():
            yield from _tool(shown)
        case blocks.Asked():
            yield from _asked(shown)
        case blocks.Notice():
            yield f"*{'Error' if shown.is_error else 'Note'}: {inline(shown.text)}*"
            if shown.detail:
                yield fences.fence(plain(shown.detail))
        case blocks.Ended():
            yield from _ended(shown)
        case blocks.Screen():
            yield "## The terminal's screen"
            yield fences.fence(plain("\n".join(shown.lines)))
        case _:
            raise AssertionError(f"no such block: {type(shown).__name__}")


def _prose(shown: blocks.Prose) -> Iterator[str]:
    if shown.thinking or shown.void:
        summary = "Thinking" if shown.thinking else "Begun, and then begun again"
        yield f"<details><summary>{summary}</summary>"
        yield fences.fence(plain(shown.text))
        yield "</details>"
        return
    if not shown.goes_on:
        yield f"## Assistant · {abouts.moment(shown.ts)}"
    yield prose(shown.text)


def _tool(shown: blocks.Tool) -> Iterator[str]:
    how = "failed, " if shown.is_error else ""
    ended = f" · {how}{shown.duration_ms} ms" if shown.result is not None else " · no result"
    yield f"### {fences.span(one_line(shown.name)) or 'A tool'}{ended}"
    yield from _pieces(shown.args)
    if shown.problem:
        yield f"*{inline(shown.problem)}*"
    yield from _output(plain(shown.output if shown.result is None else shown.result))


def _output(text: str) -> Iterator[str]:
    count = len(text.splitlines())
    if not count:
        return
    if count <= SHORT:
        yield fences.fence(text)
        return
    yield f"<details><summary>Output, {count} lines</summary>"
    yield fences.fence(text)
    yield "</details>"


def _asked(shown: blocks.Asked) -> Iterator[str]:
    approval = shown.approval
    yield f"### Approval: {inline(exact(approval.title))} · {inline(shown.ending) or 'not decided yet'}"
    yield f"{inline(exact(approval.summary))} · asked {abouts.moment(shown.ts)}"
    if approval.details.get("destructive") is True:
        yield "**Destructive.**"
    yield from _pieces(approval.details)


def _pieces(values: dict[str, object]) -> Iterator[str]:
    for name, text, kind in arguments.pieces(values):
        if name:
            yield f"{fences.span(one_line(exact(name)))}:"
        yield fences.fence(exact(text), kind)


def _ended(shown: blocks.Ended) -> Iterator[str]:
    yield f"**{inline(shown.outcome)}** · {abouts.moment(shown.ts)}" + (f" · {inline(shown.usage)}" if shown.usage else "")
    if shown.outcome != "success" and shown.summary.strip():
        yield fences.fence(plain(shown.summary))
    for result in shown.results:
        verdict = "accepted" if result.passed else f"not accepted, exit code {result.exitCode}"
        yield f"- {fences.span(one_line(result.id))}: {verdict}"
        if result.output.strip() and not result.passed:
            yield from _output(plain(result.output))


def prose(text: str) -> str:
    """Markdown that ends where it ends, without tags, and with its headings below ours."""
    return "\n".join(
        fences.fence(part.text, part.info) if part.is_code else _tame(part.text) for part in fences.parts(plain(text))
    )


def _tame(text: str) -> str:
    without_tags = "\n".join(_without_tags(line) for line in text.split("\n"))
    lowered = _HEADING.sub(lambda found: f"{found[1]}{'#' * min(6, len(found[2]) + 3)}", without_tags)
    return _UNDERLINE.sub(r"\n\1\\\2", lowered)


def _without_tags(line: str) -> str:
    """Where a span of code holds a tag, it is spelled as one of HTML: that shows it as it is, and no reader takes it for a tag,
    whatever the backticks of other lines make of this one."""
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


def inline(text: str) -> str:
    """Words of others in a line of ours, where nothing of them means anything."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
