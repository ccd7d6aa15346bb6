"""The reports that a run leaves for machines: a JUnit file, and annotations on stderr. Nothing else is written here.

The file is there before the run begins, and says that it has not ended: whoever kills this process leaves an honest report,
and a place that cannot be written to is noticed before the run costs anything.
"""

import secrets
import time
from pathlib import Path

from switchtower.cli import annotations, console, junit, whole_file
from switchtower.cli.verdict import CriterionCheck, RunVerdict
from switchtower.client import errors

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
            self._print_annotations(*annotations.open_group(f"tower run: {self._title}", self._word))

    def end(self, verdict: RunVerdict) -> None:
        """Raises `ClientError` when the file cannot be written any more."""
        if self._annotates:
            self._print_annotations(*annotations.close_group(self._word), *annotations.annotate_verdict(verdict))
        self._write_junit(verdict)

    def end_unfinished(self, outcome: str, message: str, *, session_id: str | None = None, run_id: str | None = None) -> None:
        """Of a run whose end was not seen: it never began, or somebody leaves at once."""
        self.end(RunVerdict(outcome, message, self._checks, self.elapsed_seconds, session_id, run_id))

    def _print_annotations(self, *lines: str) -> None:
        # On stderr: stdout is the answer's. The runner reads commands from both.
        for line in lines:
            console.print_line(line)

    def _write_junit(self, verdict: RunVerdict) -> None:
        if self._file is None:
            return
        try:
            whole_file.write_atomic(self._file, junit.render_junit(verdict, at=self._began))
        except OSError as problem:
            raise errors.ClientError(
                f"cannot write `{self._file}`: {problem.strerror or problem}", hint="give another file with `--junit`"
            ) from None
