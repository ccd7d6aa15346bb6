"""The reports that a run leaves for machines: a JUnit file, and annotations on stderr. Nothing else is written here.

The file is there before the run begins, and says that it has not ended: whoever kills this process leaves an honest report,
and a place that cannot be written to is noticed before the run costs anything.
"""

import secrets
import time
from pathlib import Path

from switchtower.cli import annotations, console, junit, whole_file
from switchtower.cli.verdict import Check, Verdict
from switchtower.client import errors

NOT_ENDED = "the run has not ended"


class Reports:
    def __init__(self, title: str, checks: tuple[Check, ...], *, file: Path | None = None, annotates: bool = False) -> None:
        self._title = title
        self._checks = checks
        self._file = file
        self._annotates = annotates
        self._word = secrets.token_hex(16)
        self._began = time.time()
        self._clock = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._clock

    def begin(self) -> None:
        """Raises `ClientError` when the file cannot be written."""
        self._write(Verdict("error", NOT_ENDED, self._checks))
        if self._annotates:
            self._say(*annotations.opening(f"tower run: {self._title}", self._word))

    def end(self, verdict: Verdict) -> None:
        """Raises `ClientError` when the file cannot be written any more."""
        if self._annotates:
            self._say(*annotations.closing(self._word), *annotations.verdict(verdict))
        self._write(verdict)

    def end_without(self, outcome: str, message: str, *, session_id: str | None = None, run_id: str | None = None) -> None:
        """Of a run whose end was not seen: it never began, or somebody leaves at once."""
        self.end(Verdict(outcome, message, self._checks, self.seconds, session_id, run_id))

    def _say(self, *lines: str) -> None:
        # On stderr: stdout is the answer's. The runner reads commands from both.
        for line in lines:
            console.say(line)

    def _write(self, verdict: Verdict) -> None:
        if self._file is None:
            return
        try:
            whole_file.write(self._file, junit.report(verdict, at=self._began))
        except OSError as problem:
            raise errors.ClientError(
                f"cannot write `{self._file}`: {problem.strerror or problem}", hint="give another file with `--junit`"
            ) from None
