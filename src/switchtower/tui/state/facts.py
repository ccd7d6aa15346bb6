"""What events tell that belongs to no place in the transcript: how long runs took, what they cost, what was decided. Pure.

Facts add up in any order, so that older events may be read after newer ones.
"""

import re

from msgspec import Struct, field

from switchtower.client.frames import Event
from switchtower.protocols.push import messages

_REPORT = re.compile(r"(\d+) tokens in, (\d+) out(?:, \$(\d+(?:\.\d+)?))? \((.*)\)", re.DOTALL)
BEGINNINGS = {
    "Run started": "",
    "Compaction started": "Summarising the conversation",
    "Undo started": "Taking back the last run's changes",
    "Redo started": "Making the changes again",
    "Program started": "",
}
"""The phases with which runs begin, and what to call those that no message began."""


class Run(Struct):
    started_ms: int | None = None
    ended_ms: int | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    priced: bool = True


class Facts(Struct):
    runs: dict[str, Run] = field(default_factory=dict)
    _decisions: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What became of each approval in words, with the seq at which."""

    def decided(self, approval_id: str) -> str | None:
        """What became of an approval, in words."""
        known = self._decisions.get(approval_id)
        return known[1] if known else None

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.Status(_, phase, detail) if event.run_id is not None:
                if phase in BEGINNINGS:
                    run = self._run(event.run_id)
                    run.started_ms = event.ts if run.started_ms is None else min(run.started_ms, event.ts)
                elif phase == "Usage" and isinstance(detail, str):
                    self._spent(self._run(event.run_id), detail)
            case messages.ApprovalReceived(approval_id, decision, by):
                self._decided(approval_id, event.seq, f"{'approved' if decision == 'approve' else 'denied'} by {by}")
            case messages.Warn("APPROVAL_EXPIRED", _, str(approval_id)):
                self._decided(approval_id, event.seq, "nobody decided in time")
            case messages.Warn("APPROVAL_WITHDRAWN", _, str(approval_id)):
                self._decided(approval_id, event.seq, "withdrawn")
            case messages.RunComplete(run_id):
                run = self._run(run_id)
                run.ended_ms = event.ts if run.ended_ms is None else max(run.ended_ms, event.ts)

    def _decided(self, approval_id: str, seq: int, how: str) -> None:
        """push, Concurrency Rules: the first valid decision wins."""
        known = self._decisions.get(approval_id)
        if known is None or seq < known[0]:
            self._decisions[approval_id] = seq, how

    def _run(self, run_id: str) -> Run:
        return self.runs.setdefault(run_id, Run())

    def _spent(self, run: Run, report: str) -> None:
        if (parts := _REPORT.fullmatch(report)) is None:
            return
        tokens_in, tokens_out, cost, _ = parts.groups()
        run.tokens_in += int(tokens_in)
        run.tokens_out += int(tokens_out)
        if cost is None:
            run.priced = False
        else:
            run.cost += float(cost)
