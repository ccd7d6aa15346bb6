"""What events tell that belongs to no place in the transcript: how long runs took, what they cost, what was decided. Pure.

Facts add up in any order, so that older events may be read after newer ones.
"""

import re

from msgspec import Struct, field

from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

_USAGE_REPORT = re.compile(r"(\d+) tokens in, (\d+) out(?:, \$(\d+(?:\.\d+)?))? \((.*)\)", re.DOTALL)
START_PHASES = {
    "Run started": "",
    "Compaction started": "Summarising the conversation",
    "Undo started": "Taking back the last run's changes",
    "Redo started": "Making the changes again",
    "Program started": "",
}
"""The phases with which runs begin, and what to call those that no message began."""


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
    """What became of each approval in words, with the seq at which."""

    def get_decision(self, approval_id: str) -> str | None:
        """What became of an approval, in words."""
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
