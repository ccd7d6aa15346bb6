"""Facts from events that have no place in the transcript: how long runs took, what they cost, how approvals were decided. Pure.

Facts add up in any order, so that older events may be read after newer ones.
"""

import re

from msgspec import Struct, field

from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

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
