"""Everything about a session, as names and values. Pure."""

from collections.abc import Iterator

from switchtower.client import wording
from switchtower.protocols.push import extensions
from switchtower.tui.state import amounts


def of(about: extensions.SessionInfo, *, now_ms: float) -> list[tuple[str, str]]:
    return [(name, value) for name, value in _pairs(about, now_ms) if value]


def _pairs(about: extensions.SessionInfo, now_ms: float) -> Iterator[tuple[str, str]]:
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
    yield "rules", "\n".join(map(wording.rule, about.rules))
    yield "limits of a run", wording.limits(about.limits)
    yield "sandbox", about.sandbox
    yield "child of", about.childOf or ""
    yield "folder", about.rootPath + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    yield "branch", about.branch or ""
    yield "tokens", _spent(about.usage)
    yield "context", wording.context(about.contextTokens, about.contextWindow)
    yield "queue", "\n".join(f"{one.delivery}: {' '.join(one.text.split())[:100]}" for one in about.queue)
    yield "undo", f"{amounts.counted(about.undoable, 'run')} can be undone, {about.redoable} made again"
    yield "started", f"{amounts.age((now_ms - about.createdAt) / 1000)} ago, by the engine {about.engine}"
    yield "last event", f"{about.lastSeq:,}, {amounts.age((now_ms - about.updatedAt) / 1000)} ago"


def _spent(usage: extensions.Usage) -> str:
    if not usage.calls:
        return ""
    price = "" if usage.unpricedCalls == usage.calls else f", {amounts.dollars(usage.cost)}"
    at_least = " at least" if 0 < usage.unpricedCalls < usage.calls else ""
    calls = amounts.counted(usage.calls, "call")
    return f"{usage.inputTokens:,} in, {usage.outputTokens:,} out in {calls}{price and at_least}{price}"
