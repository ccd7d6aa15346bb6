"""A session as names and values for people. Pure."""

import time
from collections.abc import Iterator, Sequence

from switchtower.cli import ages, usage, waiting
from switchtower.client import wording, workspace
from switchtower.protocols.push import extensions

_LONGEST_MESSAGE = 100


def of(
    about: extensions.SessionInfo, waits: Sequence[waiting.Waiting] = (), *, node: str = "", now: float | None = None
) -> list[tuple[str, str]]:
    """`waits` is what people are asked there, `node` what its home is called, where there are several."""
    return list(_pairs(about, waits, node, time.time() if now is None else now))


def _pairs(about: extensions.SessionInfo, waits: Sequence[waiting.Waiting], node: str, now: float) -> Iterator[tuple[str, str]]:
    yield "session", about.sessionId
    if about.title:
        yield "title", about.title
    yield "state", about.state + (f", {about.activeRunId}" if about.activeRunId else "")
    if waits:
        yield "waits for", "\n".join(f"{waiting.spelled(one)}{_left(one, now)}" for one in waits)
    if about.preset:
        yield "preset", about.preset
    if about.terminal is not None:
        yield from _program(about.terminal)
    else:
        yield "model", f"{about.provider} {about.model}" if about.model else about.provider
    if about.thinking:
        yield "thinking", about.thinking
    yield "policy", about.policy
    if about.rules:
        yield "rules", "\n".join(map(wording.rule, about.rules))
    if limits := wording.limits(about.limits):
        yield "limits of a run", limits
    yield "sandbox", about.sandbox
    if about.childOf:
        yield "child of", about.childOf
    yield "folder", _folder(about)
    if node:
        yield "node", node
    yield "usage", _usage(about.usage)
    if about.runUsage is not None:
        yield "usage of the run", _usage(about.runUsage)
    yield "context", wording.context(about.contextTokens, about.contextWindow)
    if about.queue:
        yield "queue", "\n".join(f"{queued.delivery}: {_cut(queued.text)}" for queued in about.queue)
    yield "undo", f"{_runs(about.undoable)} can be undone, {about.redoable} made again"
    yield "started", f"{ages.age(now - about.createdAt / 1000)} ago, in the mode {about.mode}, by the engine {about.engine}"
    yield "last event", f"{about.lastSeq}, {ages.age(now - about.updatedAt / 1000)} ago"


def _left(asked: waiting.Waiting, now: float) -> str:
    return f" (expires in {ages.age(asked.expires_at / 1000 - now)})" if asked.expires_at else ""


def _program(terminal: extensions.Terminal) -> Iterator[tuple[str, str]]:
    yield "program", terminal.command
    yield "tool", terminal.tool
    yield "terminal", f"{terminal.cols} columns, {terminal.rows} rows"
    if terminal.waitsFor is not None:
        yield "waits for", terminal.waitsFor
    if terminal.exitCode is not None:
        yield "exit code", str(terminal.exitCode)
    if terminal.host is not None:
        yield "host", terminal.host


def _folder(about: extensions.SessionInfo) -> str:
    branch = "a commit, no branch" if about.branch == workspace.DETACHED else f"branch {about.branch}"
    return (
        about.rootPath
        + (f" ({branch})" if about.branch else "")
        + (f"\na worktree of {about.worktreeOf}" if about.worktreeOf else "")
    )


def _usage(spent: extensions.Usage) -> str:
    if not spent.calls:
        return "no call of a model yet"
    cached = f" ({spent.cacheReadTokens:,} from the cache)" if spent.cacheReadTokens else ""
    price = usage.money(spent.cost, spent.calls - spent.unpricedCalls, spent.calls)
    calls = "1 call" if spent.calls == 1 else f"{spent.calls} calls"
    return f"{calls}, {spent.inputTokens:,} tokens in{cached}, {spent.outputTokens:,} out{price}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST_MESSAGE else f"{flat[:_LONGEST_MESSAGE]}…"
