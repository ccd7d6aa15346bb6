"""A verdict as workflow commands, which GitHub's runner finds in a step's output and shows at the run of a workflow. Pure.

The runner takes such commands from whoever writes a line of output, so also from a model or a program. While a run talks, they
are switched off with a word that nobody can guess.
"""

from collections.abc import Iterator, Mapping

from switchtower.cli import console
from switchtower.cli.verdict import RunVerdict

GITHUB_VARIABLE = "GITHUB_ACTIONS"
MAX_ANNOTATION_CHARS = 4_000
"""Characters of one message. The runner shows little more."""
_SUMMARY_CHARS = 80


def should_annotate(target: str | None, environ: Mapping[str, str]) -> bool:
    """As the command line says it; where it says nothing, inside of GitHub's runner."""
    return target == "github" if target is not None else environ.get(GITHUB_VARIABLE) == "true"


def open_group(title: str, word: str) -> Iterator[str]:
    yield format_workflow_command("group", _cut_text(" ".join(title.split()), _SUMMARY_CHARS))
    yield format_workflow_command("stop-commands", word)


def close_group(word: str) -> Iterator[str]:
    yield f"::{word}::"
    yield format_workflow_command("endgroup")


def annotate_verdict(verdict: RunVerdict) -> Iterator[str]:
    """What is worth a mark at the run: how it ended, and each criterion that was not met."""
    said = _cut_text(verdict.message.strip(), MAX_ANNOTATION_CHARS)
    if verdict.is_good and not verdict.failed_checks:
        yield format_workflow_command("notice", f"success: {said}" if said else "success", title="tower run")
    elif not verdict.is_good:
        yield format_workflow_command("error", f"{verdict.outcome}: {said}" if said else verdict.outcome, title="tower run")
    for check in verdict.failed_checks:
        output = _cut_start(console.strip_terminal_codes(check.output).strip(), MAX_ANNOTATION_CHARS)
        message = f"exit code {check.exit_code}: {check.command}" + (f"\n{output}" if output else "")
        yield format_workflow_command("error", message, title=f"not accepted: {check.id}")


def format_workflow_command(name: str, message: str = "", **properties: str) -> str:
    told = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{name}{' ' if told else ''}{told}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    """The percent sign first: it is what escapes the others."""
    return _escape_controls(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _escape_controls(text: str) -> str:
    """What steers a terminal is spelled out; a return has an escape of its own, as the line end has."""
    return "\r".join(console.escape_unprintable(part) for part in text.split("\r"))


def _cut_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _cut_start(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"…{text[-limit:]}"
