"""A verdict as workflow commands, which GitHub's runner finds in a step's output and shows at the run of a workflow. Pure.

The runner takes such commands from whoever writes a line of output, so also from a model or a program. While a run talks, they
are switched off with a word that nobody can guess.
"""

from collections.abc import Iterator, Mapping

from switchtower.cli import console
from switchtower.cli.verdict import Verdict

VARIABLE = "GITHUB_ACTIONS"
MOST = 4_000
"""Characters of one message. The runner shows little more."""
_SUMMARY = 80


def are_wanted(named: str | None, environ: Mapping[str, str]) -> bool:
    """As the command line says it; where it says nothing, inside of GitHub's runner."""
    return named == "github" if named is not None else environ.get(VARIABLE) == "true"


def opening(title: str, word: str) -> Iterator[str]:
    yield command("group", _cut(" ".join(title.split()), _SUMMARY))
    yield command("stop-commands", word)


def closing(word: str) -> Iterator[str]:
    yield f"::{word}::"
    yield command("endgroup")


def verdict(found: Verdict) -> Iterator[str]:
    """What is worth a mark at the run: how it ended, and each criterion that was not met."""
    said = _cut(found.message.strip(), MOST)
    if found.is_good and not found.failed_checks:
        yield command("notice", f"success: {said}" if said else "success", title="tower run")
    elif not found.is_good:
        yield command("error", f"{found.outcome}: {said}" if said else found.outcome, title="tower run")
    for check in found.failed_checks:
        output = _end(console.program_text(check.output).strip(), MOST)
        message = f"exit code {check.exit_code}: {check.command}" + (f"\n{output}" if output else "")
        yield command("error", message, title=f"not accepted: {check.id}")


def command(name: str, message: str = "", **properties: str) -> str:
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name}{' ' if told else ''}{told}::{_data(message)}"


def _data(text: str) -> str:
    """The percent sign first: it is what escapes the others."""
    return _harmless(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _harmless(text: str) -> str:
    """What steers a terminal is spelled out; a return has an escape of its own, as the line end has."""
    return "\r".join(console.printable(part) for part in text.split("\r"))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[-most:]}"
