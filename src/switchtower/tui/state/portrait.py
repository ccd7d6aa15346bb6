"""Everything about a session, as names and values. Pure."""

from collections.abc import Iterator

from switchtower.client import wording
from switchtower.protocols.push import extensions
from switchtower.tui.state import amounts


def list_brief_details(about: extensions.SessionInfo, *, now_ms: float) -> list[tuple[str, str]]:
    return [(name, value) for name, value in _list_brief_pairs(about, now_ms) if value]


def _list_brief_pairs(about: extensions.SessionInfo, now_ms: float) -> Iterator[tuple[str, str]]:
    yield "session", about.sessionId
    yield "title", about.title
    yield "state", about.state
    yield "preset", about.preset or ""
    if about.terminal is not None:
        yield "program", about.terminal.command
        yield "window", f"{about.terminal.cols} columns, {about.terminal.rows} rows"
        yield "host", about.terminal.host or ""
        yield "exit code", "" if about.terminal.exitCode is None else str(about.terminal.exitCode)
    else:
        yield "model", f"{about.provider} {about.model or ''}".strip()
    yield "thinking", about.thinking or ""
    yield "policy", about.policy
    yield "rules", "\n".join(map(wording.format_rule, about.rules))
    yield "limits of a run", wording.format_limits(about.limits)
    yield "sandbox", about.sandbox
    yield "child of", about.childOf or ""
    yield "folder", about.rootPath + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    yield "branch", about.branch or ""
    yield "tokens", _format_brief_cost(about.usage)
    yield "context", wording.format_context(about.contextTokens, about.contextWindow)
    yield "queue", "\n".join(f"{one.delivery}: {' '.join(one.text.split())[:100]}" for one in about.queue)
    yield "undo", f"{amounts.format_count(about.undoable, 'run')} can be undone, {about.redoable} made again"
    yield "started", f"{amounts.format_short_age((now_ms - about.createdAt) / 1000)} ago, by the engine {about.engine}"
    yield "last event", f"{about.lastSeq:,}, {amounts.format_short_age((now_ms - about.updatedAt) / 1000)} ago"


def _format_brief_cost(usage: extensions.Usage) -> str:
    if not usage.calls:
        return ""
    price = "" if usage.unpricedCalls == usage.calls else f", {amounts.format_dollars(usage.cost)}"
    at_least = " at least" if 0 < usage.unpricedCalls < usage.calls else ""
    calls = amounts.format_count(usage.calls, "call")
    return f"{usage.inputTokens:,} in, {usage.outputTokens:,} out in {calls}{price and at_least}{price}"
