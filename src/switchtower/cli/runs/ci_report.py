"""The reports of a run for CI: a JUnit file, and annotations for GitHub Actions on stderr.

The file exists before the run starts and states that the run has not ended. So a killed process leaves a correct report, and an
unwritable location is noticed before the run costs anything. Characters that XML 1.0 cannot carry are escaped. The runner
executes workflow commands from any line of output, even a model's, so they are disabled with an unguessable token while the run
prints.
"""

import datetime
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from switchtower.cli import atomic_file, console
from switchtower.cli.console import ExitStatus
from switchtower.client import errors
from switchtower.presentation.safe_text import strip_terminal_codes
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
    """`success`, `failed`, `cancelled`, `denied`, `timeout`, or `error` for a run whose end this process has not seen."""
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
    # push, Headless Mode Semantics: 4 means that the run itself succeeded and only its result was not accepted.
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
    """Matches results to criteria in the order of the criteria; two may have the same id, so each result is used once."""
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


NOT_ENDED = "the run has not ended"


class CiReports:
    def __init__(
        self, title: str, checks: tuple[CriterionCheck, ...], *, file: Path | None = None, annotates: bool = False
    ) -> None:
        self._title = title
        self._checks = checks
        self._file = file
        self._annotates = annotates
        self._word = secrets.token_hex(16)
        self._began = time.time()
        self._clock = time.monotonic()

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._clock

    def begin(self) -> None:
        """Raises `ClientError` when the file cannot be written."""
        self._write_junit(RunVerdict("error", NOT_ENDED, self._checks))
        if self._annotates:
            self._print_annotations(*open_group(f"tower run: {self._title}", self._word))

    def end(self, verdict: RunVerdict) -> None:
        """Raises `ClientError` when the file can no longer be written."""
        if self._annotates:
            self._print_annotations(*close_group(self._word), *annotate_verdict(verdict))
        self._write_junit(verdict)

    def end_unfinished(self, outcome: str, message: str, *, session_id: str | None = None, run_id: str | None = None) -> None:
        """Reports a run whose end was not seen, because it never started or the user quit at once."""
        self.end(RunVerdict(outcome, message, self._checks, self.elapsed_seconds, session_id, run_id))

    def _print_annotations(self, *lines: str) -> None:
        # Annotations go to stderr, because stdout carries the answer. The runner reads commands from both.
        for line in lines:
            console.print_line(line)

    def _write_junit(self, verdict: RunVerdict) -> None:
        if self._file is None:
            return
        try:
            atomic_file.write_atomic(self._file, render_junit(verdict, at=self._began))
        except OSError as problem:
            raise errors.ClientError(
                f"cannot write `{self._file}`: {problem.strerror or problem}", hint="give another file with `--junit`"
            ) from None


MAX_OUTPUT_CHARS = 256 * 1024
"""The maximum number of characters of a criterion's output; the end is kept, where the reason usually is."""

_INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_ATTRIBUTE_ESCAPES = {**_TEXT_ESCAPES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}

SUITE_NAME = "tower run"


def render_junit(verdict: RunVerdict, *, at: float) -> bytes:
    """Renders the report. `at` is the start of the run in seconds since 1970."""
    failures = len(verdict.failed_checks) + (verdict.outcome in ("failed", "denied", "timeout"))
    errors = int(verdict.outcome in ("error", "cancelled"))
    skipped = sum(check.passed is None for check in verdict.checks)
    began = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds")
    counts = _format_attributes(
        name=SUITE_NAME,
        tests=len(verdict.checks) + 1,
        failures=failures,
        errors=errors,
        skipped=skipped,
        time=f"{verdict.seconds:.3f}",
        timestamp=began,
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites{counts}>",
        f"<testsuite{counts}>",
        *_render_properties(verdict),
        *_render_run(verdict),
        *(line for check in verdict.checks for line in _render_check(check)),
        "</testsuite>",
        "</testsuites>",
        "",
    ]
    return "\n".join(lines).encode()


def _render_properties(verdict: RunVerdict) -> Iterator[str]:
    known = {"session": verdict.session_id, "run": verdict.run_id}
    told = [f"<property{_format_attributes(name=name, value=value)}/>" for name, value in known.items() if value is not None]
    if told:
        yield f"<properties>{''.join(told)}</properties>"


def _render_run(verdict: RunVerdict) -> Iterator[str]:
    yield f"<testcase{_format_attributes(classname=SUITE_NAME, name='run', time=f'{verdict.seconds:.3f}')}>"
    first_line = verdict.message.strip().partition("\n")[0]
    match verdict.outcome:
        case "success":
            if verdict.message:
                yield f"<system-out>{escape_xml(verdict.message)}</system-out>"
        case "error" | "cancelled":
            yield f"<error{_format_attributes(type=verdict.outcome, message=first_line)}>{escape_xml(verdict.message)}</error>"
        case _:
            attributes = _format_attributes(type=verdict.outcome, message=first_line)
            yield f"<failure{attributes}>{escape_xml(verdict.message)}</failure>"
    yield "</testcase>"


def _render_check(check: CriterionCheck) -> Iterator[str]:
    yield f"<testcase{_format_attributes(classname=f'{SUITE_NAME}.acceptance', name=check.id)}>"
    if check.passed is None:
        yield f"<skipped{_format_attributes(message=f'not checked: {check.command}')}/>"
    elif check.passed:
        if check.output:
            yield f"<system-out>{_format_output(check)}</system-out>"
    else:
        message = f"exit code {check.exit_code}: {check.command}"
        yield f"<failure{_format_attributes(type='acceptance', message=message)}>{_format_output(check)}</failure>"
    yield "</testcase>"


def _format_output(check: CriterionCheck) -> str:
    put_out = check.output
    left_out = len(put_out) - MAX_OUTPUT_CHARS
    if left_out > 0:
        put_out = f"[{left_out} characters left out]\n{put_out[left_out:]}"
    return escape_xml(strip_terminal_codes(put_out))


def escape_xml(text: str) -> str:
    """Escapes text as the content of an element."""
    return _escape(text, _TEXT_ESCAPES)


def _format_attributes(**values: object) -> str:
    return "".join(f' {name}="{_escape(str(value), _ATTRIBUTE_ESCAPES)}"' for name, value in values.items())


def _escape(text: str, escapes: dict[str, str]) -> str:
    carried = _INVALID_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return "".join(escapes.get(character, character) for character in carried)


GITHUB_VARIABLE = "GITHUB_ACTIONS"
MAX_ANNOTATION_CHARS = 4_000
"""The maximum number of characters of a message. The runner shows little more."""
_SUMMARY_CHARS = 80


def should_annotate(target: str | None, environ: Mapping[str, str]) -> bool:
    """Returns the choice from the command line, or by default whether this is GitHub's runner."""
    return target == "github" if target is not None else environ.get(GITHUB_VARIABLE) == "true"


def open_group(title: str, word: str) -> Iterator[str]:
    yield format_workflow_command("group", _cut_text(" ".join(title.split()), _SUMMARY_CHARS))
    yield format_workflow_command("stop-commands", word)


def close_group(word: str) -> Iterator[str]:
    yield f"::{word}::"
    yield format_workflow_command("endgroup")


def annotate_verdict(verdict: RunVerdict) -> Iterator[str]:
    """Yields annotations for the outcome and for each criterion that was not met."""
    said = _cut_text(verdict.message.strip(), MAX_ANNOTATION_CHARS)
    if verdict.is_good and not verdict.failed_checks:
        yield format_workflow_command("notice", f"success: {said}" if said else "success", title="tower run")
    elif not verdict.is_good:
        yield format_workflow_command("error", f"{verdict.outcome}: {said}" if said else verdict.outcome, title="tower run")
    for check in verdict.failed_checks:
        output = _cut_start(strip_terminal_codes(check.output).strip(), MAX_ANNOTATION_CHARS)
        message = f"exit code {check.exit_code}: {check.command}" + (f"\n{output}" if output else "")
        yield format_workflow_command("error", message, title=f"not accepted: {check.id}")


def format_workflow_command(name: str, message: str = "", **properties: str) -> str:
    told = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{name}{' ' if told else ''}{told}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    """Escapes the percent sign first, because it escapes the others."""
    return _escape_controls(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _escape_controls(text: str) -> str:
    """Escapes control characters, except carriage returns, which `_escape_data` encodes like line feeds."""
    return "\r".join(console.escape_unprintable(part) for part in text.split("\r"))


def _cut_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _cut_start(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"…{text[-limit:]}"
