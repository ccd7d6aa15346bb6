"""The details of a session as names and values, in the terms that all front ends share. Pure."""

import time
from collections.abc import Iterator, Sequence

from switchtower.client import open_requests, workspace
from switchtower.presentation import formats, run_facts
from switchtower.protocols.push import extension_messages, messages

_MAX_MESSAGE_CHARS = 100


def list_session_details(
    about: extension_messages.SessionInfo,
    requests: Sequence[open_requests.OpenRequest] = (),
    *,
    node: str = "",
    now: float | None = None,
) -> list[tuple[str, str]]:
    """`requests` are the session's open requests; `node` is the name of its owner, empty with a single node."""
    return list(_iterate_details(about, requests, node, time.time() if now is None else now))


def _iterate_details(
    about: extension_messages.SessionInfo, requests: Sequence[open_requests.OpenRequest], node: str, now: float
) -> Iterator[tuple[str, str]]:
    yield "session", about.sessionId
    if about.title:
        yield "title", about.title
    yield "state", about.state + (f", {about.activeRunId}" if about.activeRunId else "")
    if requests:
        yield "waits for", "\n".join(f"{open_requests.format_request(one)}{_format_expiry(one, now)}" for one in requests)
    if about.preset:
        yield "preset", about.preset
    if about.terminal is not None:
        yield from _describe_program(about.terminal)
    else:
        yield "model", f"{about.provider} {about.model}" if about.model else about.provider
    if about.thinking:
        yield "thinking", about.thinking
    yield "policy", about.policy
    if about.rules:
        yield "rules", "\n".join(map(format_rule, about.rules))
    if limits := format_limits(about.limits):
        yield "limits of a run", limits
    yield "sandbox", about.sandbox
    if about.childOf:
        yield "child of", about.childOf
    yield "folder", _format_folder(about)
    if node:
        yield "node", node
    yield "usage", _format_usage(about.usage)
    if about.runUsage is not None:
        yield "usage of the run", _format_usage(about.runUsage)
    yield "context", format_context(about.contextTokens, about.contextWindow)
    if about.queue:
        yield "queue", "\n".join(f"{queued.delivery}: {_cut_message(queued.text)}" for queued in about.queue)
    yield "undo", f"{_format_runs(about.undoable)} can be undone, {about.redoable} made again"
    yield (
        "started",
        f"{formats.format_age(now - about.createdAt / 1000)} ago, in the mode {about.mode}, by the engine {about.engine}",
    )
    yield "last event", f"{about.lastSeq}, {formats.format_age(now - about.updatedAt / 1000)} ago"


def _format_expiry(request: open_requests.OpenRequest, now: float) -> str:
    return f" (expires in {formats.format_age(request.expires_at / 1000 - now)})" if request.expires_at else ""


def _describe_program(terminal: extension_messages.Terminal) -> Iterator[tuple[str, str]]:
    yield "program", terminal.command
    yield "tool", terminal.tool
    yield "terminal", f"{terminal.cols} columns, {terminal.rows} rows"
    if terminal.waitsFor is not None:
        yield "waits for", terminal.waitsFor
    if terminal.exitCode is not None:
        yield "exit code", str(terminal.exitCode)
    if terminal.host is not None:
        yield "host", terminal.host


def _format_folder(about: extension_messages.SessionInfo) -> str:
    branch = "a commit, no branch" if about.branch == workspace.DETACHED else f"branch {about.branch}"
    return (
        about.rootPath
        + (f" ({branch})" if about.branch else "")
        + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    )


def _format_usage(spent: extension_messages.Usage) -> str:
    if not spent.calls:
        return "no call of a model yet"
    cached = f" ({spent.cacheReadTokens:,} from the cache)" if spent.cacheReadTokens else ""
    price = run_facts.format_price(spent.cost, spent.calls - spent.unpricedCalls, spent.calls)
    calls = "1 call" if spent.calls == 1 else f"{spent.calls} calls"
    return f"{calls}, {spent.inputTokens:,} tokens in{cached}, {spent.outputTokens:,} out{price}"


def _format_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _cut_message(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_MESSAGE_CHARS else f"{flat[:_MAX_MESSAGE_CHARS]}…"


def format_rule(rule: extension_messages.Rule) -> str:
    about = " ".join(part for part in (rule.path, rule.command) if part is not None)
    return f"{rule.effect} {rule.tool or 'any tool'}" + (f": {about}" if about else "")


def format_limits(limits: messages.Limits) -> str:
    parts = [
        f"{limits.maxTurns} turns" if limits.maxTurns is not None else "",
        f"{limits.maxTokens:,} tokens" if limits.maxTokens is not None else "",
        f"${limits.maxCost:g}" if limits.maxCost is not None else "",
        f"{limits.maxMinutes:g} minutes" if limits.maxMinutes is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def format_context(tokens: int, window: int | None) -> str:
    return f"{tokens:,} of {window:,} tokens ({tokens / window:.0%})" if window else f"{tokens:,} tokens"


def list_brief_details(about: extension_messages.SessionInfo, *, now_ms: float) -> list[tuple[str, str]]:
    return [(name, value) for name, value in _list_brief_pairs(about, now_ms) if value]


def _list_brief_pairs(about: extension_messages.SessionInfo, now_ms: float) -> Iterator[tuple[str, str]]:
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
    yield "rules", "\n".join(map(format_rule, about.rules))
    yield "limits of a run", format_limits(about.limits)
    yield "sandbox", about.sandbox
    yield "child of", about.childOf or ""
    yield "folder", about.rootPath + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    yield "branch", about.branch or ""
    yield "tokens", _format_brief_cost(about.usage)
    yield "context", format_context(about.contextTokens, about.contextWindow)
    yield "queue", "\n".join(f"{one.delivery}: {' '.join(one.text.split())[:100]}" for one in about.queue)
    yield "undo", f"{formats.format_count(about.undoable, 'run')} can be undone, {about.redoable} made again"
    yield "started", f"{formats.format_short_age((now_ms - about.createdAt) / 1000)} ago, by the engine {about.engine}"
    yield "last event", f"{about.lastSeq:,}, {formats.format_short_age((now_ms - about.updatedAt) / 1000)} ago"


def _format_brief_cost(usage: extension_messages.Usage) -> str:
    if not usage.calls:
        return ""
    price = "" if usage.unpricedCalls == usage.calls else f", {formats.format_dollars(usage.cost)}"
    at_least = " at least" if 0 < usage.unpricedCalls < usage.calls else ""
    calls = formats.format_count(usage.calls, "call")
    return f"{usage.inputTokens:,} in, {usage.outputTokens:,} out in {calls}{price and at_least}{price}"
