"""A session as names and values for people. Pure."""

import time
from collections.abc import Iterator, Sequence

from switchtower.cli import ages, usage, waiting
from switchtower.client import wording, workspace
from switchtower.protocols.push import extensions

_MAX_MESSAGE_CHARS = 100


def list_session_details(
    about: extensions.SessionInfo, requests: Sequence[waiting.OpenRequest] = (), *, node: str = "", now: float | None = None
) -> list[tuple[str, str]]:
    """`waits` is what people are asked there, `node` what its home is called, where there are several."""
    return list(_iterate_details(about, requests, node, time.time() if now is None else now))


def _iterate_details(
    about: extensions.SessionInfo, requests: Sequence[waiting.OpenRequest], node: str, now: float
) -> Iterator[tuple[str, str]]:
    yield "session", about.sessionId
    if about.title:
        yield "title", about.title
    yield "state", about.state + (f", {about.activeRunId}" if about.activeRunId else "")
    if requests:
        yield "waits for", "\n".join(f"{waiting.format_request(one)}{_format_expiry(one, now)}" for one in requests)
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
        yield "rules", "\n".join(map(wording.format_rule, about.rules))
    if limits := wording.format_limits(about.limits):
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
    yield "context", wording.format_context(about.contextTokens, about.contextWindow)
    if about.queue:
        yield "queue", "\n".join(f"{queued.delivery}: {_cut_message(queued.text)}" for queued in about.queue)
    yield "undo", f"{_format_runs(about.undoable)} can be undone, {about.redoable} made again"
    yield (
        "started",
        f"{ages.format_age(now - about.createdAt / 1000)} ago, in the mode {about.mode}, by the engine {about.engine}",
    )
    yield "last event", f"{about.lastSeq}, {ages.format_age(now - about.updatedAt / 1000)} ago"


def _format_expiry(request: waiting.OpenRequest, now: float) -> str:
    return f" (expires in {ages.format_age(request.expires_at / 1000 - now)})" if request.expires_at else ""


def _describe_program(terminal: extensions.Terminal) -> Iterator[tuple[str, str]]:
    yield "program", terminal.command
    yield "tool", terminal.tool
    yield "terminal", f"{terminal.cols} columns, {terminal.rows} rows"
    if terminal.waitsFor is not None:
        yield "waits for", terminal.waitsFor
    if terminal.exitCode is not None:
        yield "exit code", str(terminal.exitCode)
    if terminal.host is not None:
        yield "host", terminal.host


def _format_folder(about: extensions.SessionInfo) -> str:
    branch = "a commit, no branch" if about.branch == workspace.DETACHED else f"branch {about.branch}"
    return (
        about.rootPath
        + (f" ({branch})" if about.branch else "")
        + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    )


def _format_usage(spent: extensions.Usage) -> str:
    if not spent.calls:
        return "no call of a model yet"
    cached = f" ({spent.cacheReadTokens:,} from the cache)" if spent.cacheReadTokens else ""
    price = usage.format_price(spent.cost, spent.calls - spent.unpricedCalls, spent.calls)
    calls = "1 call" if spent.calls == 1 else f"{spent.calls} calls"
    return f"{calls}, {spent.inputTokens:,} tokens in{cached}, {spent.outputTokens:,} out{price}"


def _format_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _cut_message(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_MESSAGE_CHARS else f"{flat[:_MAX_MESSAGE_CHARS]}…"
