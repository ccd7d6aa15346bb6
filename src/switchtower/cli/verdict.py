"""What came of a run, as reports for machines tell it: how the run itself ended, and each acceptance criterion. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from switchtower.cli.console import ExitStatus
from switchtower.protocols.push import messages


class CriterionCheck(Struct, frozen=True):
    """One acceptance criterion. `passed` is None when it was never checked."""

    id: str
    command: str
    passed: bool | None = None
    exit_code: int = 0
    output: str = ""


class RunVerdict(Struct, frozen=True):
    outcome: str
    """`success`, `failed`, `cancelled`, `denied`, `timeout`, or `error` for a run whose end nobody here has seen."""
    message: str = ""
    checks: tuple[CriterionCheck, ...] = ()
    seconds: float = 0.0
    session_id: str | None = None
    run_id: str | None = None

    @property
    def is_good(self) -> bool:
        return self.outcome == "success"

    @property
    def failed_checks(self) -> list[CriterionCheck]:
        return [check for check in self.checks if check.passed is False]


def list_unchecked(criteria: Sequence[messages.AcceptanceCriterion]) -> tuple[CriterionCheck, ...]:
    return tuple(CriterionCheck(criterion.id, criterion.check) for criterion in criteria)


def make_verdict(
    complete: messages.RunComplete,
    criteria: Sequence[messages.AcceptanceCriterion],
    *,
    session_id: str,
    seconds: float,
    timed_out: bool = False,
) -> RunVerdict:
    # push, Headless Mode Semantics: with 4 the run did its work, and only what it came to was not accepted.
    did_its_work = complete.headless.exitCodeHint == ExitStatus.ACCEPTANCE_FAILED
    outcome = "timeout" if timed_out else "success" if did_its_work else complete.outcome
    return RunVerdict(
        outcome=outcome,
        message=complete.summary,
        checks=_match_checks(complete.acceptance.results, criteria),
        seconds=seconds,
        session_id=session_id,
        run_id=complete.runId,
    )


def _match_checks(
    results: Sequence[messages.CriterionResult], criteria: Sequence[messages.AcceptanceCriterion]
) -> tuple[CriterionCheck, ...]:
    """In the order in which they were asked for; two may have one id, so each result is taken once."""
    left = list(results)
    checks = []
    for criterion in criteria:
        result = next((result for result in left if result.id == criterion.id), None)
        if result is None:
            checks.append(CriterionCheck(criterion.id, criterion.check))
        else:
            left.remove(result)
            checks.append(CriterionCheck(criterion.id, criterion.check, result.passed, result.exitCode, result.output))
    return tuple(checks)
