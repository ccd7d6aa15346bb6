"""The details of a session as names and values, in the terms that all front ends share. Pure.

Facts from events that have no place in the transcript: how long runs took, what they cost, how approvals were decided. Pure.

Facts add up in any order, so that older events may be read after newer ones."""

import re
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from switchtower.client import open_requests, workspace
from switchtower.client.frames import PushEvent
from switchtower.presentation import formats
from switchtower.protocols.push import extension_messages, messages

_CALL_USAGE_REPORT = re.compile(r"(\d+) tokens in, (\d+) out(?:, \$(\d+(?:\.\d+)?))? \((.*)\)", re.DOTALL)


class RunUsage(Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    cost: float = 0.0
    priced_calls: int = 0
    models: dict[str, None] = {}
    """The models that answered, in order of first use."""

    def add_report(self, report: str) -> bool:
        """Adds the usage of one model call and returns whether the report could be parsed. push carries it only as a line of
        text."""
        if (parts := _CALL_USAGE_REPORT.fullmatch(report)) is None:
            return False
        tokens_in, tokens_out, cost, model = parts.groups()
        self.input_tokens += int(tokens_in)
        self.output_tokens += int(tokens_out)
        self.calls += 1
        if cost is not None:
            self.cost += float(cost)
            self.priced_calls += 1
        self.models[model] = None
        return True

    def __str__(self) -> str:
        spent = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        return f"{spent}{format_price(self.cost, self.priced_calls, self.calls)} ({', '.join(self.models)})"


def format_price(cost: float, priced_calls: int, calls: int) -> str:
    """Formats the known part of a price, to append to the token counts."""
    if not priced_calls:
        return ""
    return f", {format_dollars(cost)}" if priced_calls == calls else f", at least {format_dollars(cost)}"


def format_dollars(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


_USAGE_REPORT = re.compile(r"(\d+) tokens in, (\d+) out(?:, \$(\d+(?:\.\d+)?))? \((.*)\)", re.DOTALL)
START_PHASES = {
    "Run started": "",
    "Compaction started": "Summarising the conversation",
    "Undo started": "Taking back the last run's changes",
    "Redo started": "Making the changes again",
    "Program started": "",
}
"""The phases with which runs start, and labels for runs that no message started."""


class RunTotals(Struct):
    started_ms: int | None = None
    ended_ms: int | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    priced: bool = True


class RunFacts(Struct):
    runs: dict[str, RunTotals] = field(default_factory=dict)
    _decisions: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The outcome of each approval as text, with the seq of its decision."""

    def get_decision(self, approval_id: str) -> str | None:
        """Returns the outcome of an approval as text."""
        known = self._decisions.get(approval_id)
        return known[1] if known else None

    def on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Status(_, phase, detail) if event.run_id is not None:
                if phase in START_PHASES:
                    run = self._get_run(event.run_id)
                    run.started_ms = event.ts if run.started_ms is None else min(run.started_ms, event.ts)
                elif phase == "Usage" and isinstance(detail, str):
                    self._record_usage(self._get_run(event.run_id), detail)
            case messages.ApprovalReceived(approval_id, decision, by):
                self._record_decision(approval_id, event.seq, f"{'approved' if decision == 'approve' else 'denied'} by {by}")
            case messages.Warn("APPROVAL_EXPIRED", _, str(approval_id)):
                self._record_decision(approval_id, event.seq, "nobody decided in time")
            case messages.Warn("APPROVAL_WITHDRAWN", _, str(approval_id)):
                self._record_decision(approval_id, event.seq, "withdrawn")
            case messages.RunComplete(run_id):
                run = self._get_run(run_id)
                run.ended_ms = event.ts if run.ended_ms is None else max(run.ended_ms, event.ts)

    def _record_decision(self, approval_id: str, seq: int, how: str) -> None:
        """push, Concurrency Rules: the first valid decision wins."""
        known = self._decisions.get(approval_id)
        if known is None or seq < known[0]:
            self._decisions[approval_id] = seq, how

    def _get_run(self, run_id: str) -> RunTotals:
        return self.runs.setdefault(run_id, RunTotals())

    def _record_usage(self, run: RunTotals, report: str) -> None:
        if (parts := _USAGE_REPORT.fullmatch(report)) is None:
            return
        tokens_in, tokens_out, cost, _ = parts.groups()
        run.tokens_in += int(tokens_in)
        run.tokens_out += int(tokens_out)
        if cost is None:
            run.priced = False
        else:
            run.cost += float(cost)


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
    price = format_price(spent.cost, spent.calls - spent.unpricedCalls, spent.calls)
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
